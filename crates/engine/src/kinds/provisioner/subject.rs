//! A provisioner on the command line: its key and its objects are compared with the manifest, and never changed.

use api::{CoderControlPlane, CoderProvisioner, Reason};
use client::deployment::BuildInfo;
use futures::future::BoxFuture;
use kube::{Resource as _, ResourceExt as _};
use serde_json::Value;
use url::Url;

use super::{
    compared::{Objects, Unplanned},
    holder,
    keys::{self, Keys, recorded},
    names::target,
    observed::{Observed, observe},
    plan::plan,
    reach::{self, Home, Reached, Search, Unreached},
    refs,
};
use crate::{
    coder::{Beside, Coder},
    driver::{Assessment, Reference, Runner, Subject, Verdict, settle_in},
    kind::Aside,
    pipeline::{
        approval::Approvals,
        decide::{Contact, Door, Situation, decide},
        held_back::masked,
        outcome::{Blocked, Invalid, Outcome, Trouble},
        remote_name::RemoteName,
    },
    ports::{ClusterError, Reading, object::Live},
    secrets::{Around, KeySecrets, Names, referenced::Unreadable},
};

/// The manifest of a provisioner.
#[derive(Debug)]
pub struct Provisioner {
    manifest: CoderProvisioner,
    /// The namespace that the manifest of the file names, in which references are followed. Empty where it names none.
    namespace: String,
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
        let observed = Box::pin(self.observe(&home, beside)).await?;
        let Observed { key, objects, .. } = &observed;
        if let (Err(blocked), true) = (&key.rest.key, key.acts.is_empty()) {
            return Err(Outcome::Blocked(blocked.clone()));
        }
        let refused = match objects {
            Ok(Some(Objects { keeps_image: Some(blocked), .. })) => {
                return Err(Outcome::Blocked(blocked.clone()));
            }
            Ok(objects) => objects.as_ref().and_then(|it| it.compared.planned.refused.first().cloned()),
            Err(unplanned) => return Err(outcome_of(unplanned)),
        };
        let target = target(&manifest.name_any());
        let plan = plan(&observed).view(&target);
        let is_held = key.known.current.is_some() || key.acts.is_empty();
        let contact = if is_held { Contact::Held } else { Contact::Absent };
        let recorded = manifest.status.as_ref().and_then(|it| it.approved.as_ref());
        let is_approved = Approvals::of(manifest, recorded).cover(&plan, &target);
        let decision = decide(&Situation {
            policy: &manifest.spec.changes.policy(),
            door,
            contact,
            impact: plan.steps.iter().map(|it| it.impact).max(),
            hash: &plan.hash,
            approved: is_approved.then_some(plan.hash.as_str()),
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

    /// Observes what the controllers would.
    async fn observe(&self, home: &Home, beside: &Beside) -> Result<Observed, Outcome> {
        let (manifest, recorded) = (&self.manifest, recorded(&self.manifest));
        let wanted = keys::wanted(manifest, home);
        let carried = keys::carried(manifest, &recorded, &wanted, &*beside.cluster).await;
        let (_, pods) = carried.map_err(|it| unreadable(&it))?;
        let (store, holder) = (beside.key_store(), holder(manifest));
        let (around, secrets) = (Around::new(store, &holder, None), KeySecrets::new(store, &holder));
        let coder = &home.reached.coder;
        let keys = Keys { coder, secrets: &secrets, around: &around, recorded, pods };
        let observed = observe(manifest, (&keys, &wanted), &home.reached.declared, (true, beside)).await;
        observed.map(|it| it.0).map_err(Outcome::from)
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

/// What the command line reports of objects that cannot be compared.
fn outcome_of(unplanned: &Unplanned) -> Outcome {
    match unplanned {
        Unplanned::Image(blocked) | Unplanned::Authority(blocked) => Outcome::Blocked(blocked.clone()),
        Unplanned::Invalid(invalid) => Outcome::Invalid(invalid.clone()),
        Unplanned::Cluster(error) => unreadable(error),
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
        target(&name)
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
