//! A provisioner on the command line: its key and its objects are compared with the manifest, and never changed.

use api::{CoderControlPlane, CoderProvisioner, Reason, annotation};
use client::deployment::BuildInfo;
use futures::future::BoxFuture;
use kube::{Resource as _, ResourceExt as _};
use serde_json::Value;
use url::Url;

use super::{
    changes, children, holder, image,
    keys::{self, Keys, recorded},
    reach::{self, Reached, Search, Unreached},
    refs, workload,
};
use crate::{
    coder::{Beside, Coder},
    driver::{Assessment, Reference, Runner, Subject, Verdict, settle_in},
    kind::Aside,
    objects::{Planned, refused_secret},
    pipeline::{
        decide::{Contact, Door, Situation, decide},
        held_back::masked,
        outcome::{Blocked, Invalid, Outcome, Trouble},
        plan::Plan,
        remote_name::RemoteName,
    },
    ports::{ClusterError, Reading, object::Live},
    secrets::{Act, Around, KeyPreview, KeySecrets, Names, Wanted, referenced::Unreadable},
};

/// The manifest of a provisioner.
#[derive(Debug)]
pub struct Provisioner {
    manifest: CoderProvisioner,
    /// The namespace that the manifest of the file names, in which references are followed. Empty where it names none.
    namespace: String,
}

/// The objects that should be, compared with those that are.
struct Compared {
    planned: Planned,
    /// Why the pods must not get one of their Secrets.
    refused: Option<Blocked>,
}

impl Provisioner {
    pub fn parse(manifest: &Value) -> Result<Self, serde_json::Error> {
        let manifest: CoderProvisioner = serde_json::from_value(manifest.clone())?;
        let namespace = manifest.namespace().unwrap_or_default();
        Ok(Self { manifest, namespace })
    }

    async fn compare(&self, coder: &Coder, door: Door) -> Result<Assessment, Outcome> {
        let beside = coder.needed_cluster().map_err(Outcome::Blocked)?;
        let manifest = &self.manifest;
        let search = Box::pin(reach::find(manifest, self.reach(coder, beside))).await;
        let Search { findings, trouble, home } = search;
        let Some(home) = home else {
            let why = findings.readiness();
            let blocked = Blocked { reason: why.reason, message: why.message };
            return Err(trouble.map_or(Outcome::Blocked(blocked), Outcome::from));
        };
        let wanted = keys::wanted(manifest, &home);
        let preview = self.preview(&wanted, &home.reached.coder, beside).await?;
        let key = changes::of_key(&preview, &wanted);
        if let Err(blocked) = &preview.rest.key
            && key.is_empty()
        {
            return Err(Outcome::Blocked(blocked.clone()));
        }
        let compared = self.compare_objects(&preview, &home.reached, beside).await?;
        let (objects, refused) = match compared {
            Some(Compared { planned, refused }) => {
                (changes::of_objects(&planned.plan), refused.or_else(|| planned.refused.into_iter().next()))
            }
            None => (Plan::empty(), None),
        };
        let plan = changes::whole(key, objects, &changes::target(&manifest.name_any()));
        let is_held = preview.known.current.is_some() || preview.acts.is_empty();
        let contact = if is_held { Contact::Held } else { Contact::Absent };
        let decision = decide(&Situation {
            policy: &manifest.spec.changes.policy(),
            door,
            contact,
            impact: plan.steps.iter().map(|it| it.impact).max(),
            hash: &plan.hash,
            approved: manifest.annotations().get(annotation::APPROVED_PLAN).map(String::as_str),
        });
        let verdict = match refused {
            Some(blocked) => Verdict::Stopped(Outcome::Blocked(blocked)),
            None => Verdict::Decided(decision),
        };
        let (plan, aside) = (masked(plan), Aside::default());
        Ok(Assessment {
            contact: Some(contact),
            id: None,
            rest: None,
            plan,
            aside,
            unsupported: None,
            unknown: None,
            attributions: Vec::new(),
            verdict,
        })
    }

    /// The control plane, from the files or the cluster. What its status does not say, as that of a file, comes from the deployment.
    async fn reach(&self, coder: &Coder, beside: &Beside) -> Result<Reached, Unreached> {
        let name = &self.manifest.spec.control_plane_ref.name;
        let unavailable = |message: String| {
            Unreached::ControlPlane(Blocked { reason: Reason::ControlPlaneUnavailable, message })
        };
        let mut declared =
            match beside.references.read::<CoderControlPlane>(&self.namespace, name, Reading::Now).await {
                Ok(Some(declared)) => declared,
                Ok(None) => {
                    let message =
                        format!("control plane {name} is neither in the files nor in the cluster: add it");
                    return Err(unavailable(message));
                }
                Err(error) => {
                    let unreadable = Unreadable::from(error);
                    let message = format!("control plane {name} cannot be read: {}", unreadable.words());
                    return Err(unavailable(message));
                }
            };
        let build = build(coder).await.map_err(Unreached::Access)?;
        let known = declared.status.as_ref().and_then(|it| it.deployment_id.clone());
        if let Some(known) = known.filter(|it| *it != build.deployment_id.to_string()) {
            // The value of the key is shown to no other deployment.
            let message = format!(
                "control plane {name} is deployment {known}, and {} answers: give the address of that deployment",
                build.deployment_id
            );
            return Err(Unreached::ControlPlane(Blocked { reason: Reason::DeploymentChanged, message }));
        }
        declared.status.get_or_insert_default().version.get_or_insert(build.version);
        self.place(&mut declared);
        // People may reach a deployment by another address than its daemons do.
        let external = declared.spec.external.as_ref().map(|it| it.url.clone());
        let asked = external.map(|it| it.parse::<Url>().map_or(it, String::from)).unwrap_or_default();
        Ok(Reached::new(declared, &asked, coder.clone(), build.deployment_id))
    }

    /// Gives a managed control plane the namespace of the provisioner, where its manifest names none: the name of its Service has the
    /// namespace in it.
    fn place(&self, plane: &mut CoderControlPlane) {
        let has_none = plane.namespace().is_none_or(|it| it.is_empty());
        if has_none && plane.spec.external.is_none() {
            plane.metadata.namespace = self.manifest.namespace();
        }
    }

    /// What the controllers would do about the key.
    async fn preview(&self, wanted: &Wanted, coder: &Coder, beside: &Beside) -> Result<KeyPreview, Outcome> {
        let recorded = recorded(&self.manifest);
        let carried = keys::carried(&self.manifest, &recorded, wanted, &*beside.cluster).await;
        let (_, pods) = carried.map_err(|it| unreadable(&it))?;
        let (store, holder) = (beside.key_store(), holder(&self.manifest));
        let (around, secrets) = (Around::new(store, &holder, None), KeySecrets::new(store, &holder));
        let keys = Keys { coder, secrets: &secrets, around: &around, recorded, pods };
        keys.drive(wanted).look().await.map_err(Outcome::from)
    }

    /// Compares the objects, with the key that is there now: pods get a later one as upkeep. `None` where it is not known which key
    /// they get.
    async fn compare_objects(
        &self,
        preview: &KeyPreview,
        reached: &Reached,
        beside: &Beside,
    ) -> Result<Option<Compared>, Outcome> {
        let (manifest, cluster) = (&self.manifest, &*beside.cluster);
        let url = &reached.url_for_daemons;
        let mints = preview.acts.iter().any(|it| matches!(it, Act::Mint { .. }));
        let key = match (&preview.known.current, &preview.rest.key) {
            (None, _) if mints => (url.as_str(), ""),
            (Some(held), _) if mints => (held.place.url.as_str(), held.checksum.as_str()),
            (_, Ok(held)) => (held.place.url.as_str(), held.checksum.as_str()),
            (_, Err(_)) => return Ok(None),
        };
        let image = image(manifest, &reached.declared).map_err(Outcome::Blocked)?;
        let authority = workload::authority(&reached.declared, &*beside.references).await;
        let facts = workload::facts(manifest, key, image, authority.map_err(Outcome::Blocked)?);
        let desired = children::desire(manifest, &facts).map_err(Outcome::Invalid)?;
        let live = workload::live(manifest, cluster).await.map_err(|it| unreadable(&it))?;
        let refused =
            refused_secret(manifest, &desired, &live, cluster).await.map_err(|it| unreadable(&it))?;
        let planned =
            workload::preview(manifest, &desired, live, cluster).await.map_err(|it| unreadable(&it))?;
        Ok(Some(Compared { planned, refused }))
    }
}

/// The deployment that answers. A build without licences has no entitlements to read with it.
async fn build(coder: &Coder) -> Result<BuildInfo, Trouble> {
    match coder.licensed().await {
        Ok(known) => Ok(known.0.clone()),
        Err(error) if error.route_missing() => Ok(coder.client().build_info().await?),
        Err(error) => Err(error.into()),
    }
}

fn unreadable(error: &ClusterError) -> Outcome {
    let advice = match error.code() {
        Some(403) => ": bind the Role of deploy/rbac/cli.yaml to your account",
        _ => "",
    };
    let message = format!("the objects of the provisioner cannot be read: {error}{advice}");
    Outcome::Failed(Blocked { reason: Reason::ClusterError, message }.into())
}

impl Subject for Provisioner {
    fn reference(&self) -> Reference {
        Reference {
            kind: CoderProvisioner::kind(&()).into_owned(),
            namespace: self.manifest.namespace(),
            name: self.manifest.name_any(),
        }
    }

    /// With the namespace: provisioners of the same name in two namespaces are two.
    fn target(&self) -> String {
        let name = self.manifest.name_any();
        let name = self.manifest.namespace().map_or_else(|| name.clone(), |it| format!("{it}/{name}"));
        changes::target(&name)
    }

    fn control_plane(&self) -> &str {
        &self.manifest.spec.control_plane_ref.name
    }

    fn refs(&self) -> Vec<RemoteName> {
        refs(&self.manifest)
    }

    /// After the organizations that the keys are for.
    fn rank(&self) -> u8 {
        4
    }

    fn is_suspended(&self) -> bool {
        self.manifest.spec.is_suspended()
    }

    fn runner(&self) -> Runner {
        Runner::Controller
    }

    fn needs_cluster(&self) -> bool {
        true
    }

    fn settle_in(&mut self, namespace: &str, stored: Option<&Live>) {
        settle_in(&mut self.manifest, namespace, stored);
        // The number of daemons that the manifest does not name is an autoscaler's.
        let stored = stored.and_then(|it| it.object["spec"]["replicas"].as_i64());
        let scaled = stored.and_then(|it| i32::try_from(it).ok());
        self.manifest.spec.replicas = self.manifest.spec.replicas.or(scaled);
    }

    fn check(&self) -> Result<(), Invalid> {
        Names::check(self.manifest.key_name()).map_err(|message| Invalid::new("spec.key.name", message))
    }

    fn assess<'a>(&'a mut self, coder: &'a Coder, door: Door) -> BoxFuture<'a, Assessment> {
        Box::pin(async move {
            let compared = Box::pin(self.compare(coder, door)).await;
            compared.unwrap_or_else(|outcome| Assessment::stopped(&Subject::target(self), outcome))
        })
    }
}
