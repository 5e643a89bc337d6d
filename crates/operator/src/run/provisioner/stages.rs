//! One pass over a provisioner, stage by stage. What a stage needs is there when its turn comes; what stops one stops those
//! after it, and is said in its condition.

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use api::{CoderControlPlane, CoderProvisioner, CoderProvisionerStatus, Reason, annotation};
use client::organizations::Organization;
use engine::{
    Blocked, Freshness, Plan, Trouble, World,
    control_plane::address,
    held_back::HeldBack,
    objects::{self, Live},
    provisioner::{
        changes, gate, holder, names,
        report::{self, Findings, Stage},
        secret,
    },
    provisioner_keys::{
        Around, Drive, Driven, Held, KeySecrets, Names, Place, Pods, Policy, Record, Rest, Retiring, Revoked,
        SecretPlace, Wanted,
        mirror::{of_status, to_status},
    },
};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use tokio::time::sleep;

use super::{
    Context, access,
    around::{first_status, report_minted, revoke_elsewhere},
    conclude,
    daemons::{self, check},
    write_status,
};
use crate::run::{Shared, kube_cluster::error_of, owned, planes::Plane, wake::requested};

/// How long a new provisioner may be without a status while its deployment does not answer.
const FIRST_STATUS: Duration = Duration::from_secs(1);
/// Beyond the grace period of the pods, until an old key goes in any case.
const BEYOND_GRACE: SignedDuration = SignedDuration::from_secs(60);

/// What became of a pass.
pub(super) struct Passed {
    /// With what is known of its keys in the status, written or not.
    pub(super) provisioner: CoderProvisioner,
    /// The status as the cluster has it.
    pub(super) written: Option<CoderProvisionerStatus>,
    pub(super) findings: Findings,
    pub(super) trouble: Option<Failure>,
    pub(super) again_at: Option<Timestamp>,
    /// Whether an old key is still there. No watch tells when the last pod that has it is gone.
    pub(super) is_rotating: bool,
}

/// Something went wrong that may go well the next time.
pub(super) struct Failure {
    /// When coderd wants to be asked again.
    pub(super) wanted: Option<Duration>,
}

impl Failure {
    pub(super) fn of(trouble: &Trouble) -> Self {
        let wanted = if let Trouble::Remote(error) = trouble { error.retry_after() } else { None };
        Self { wanted }
    }
}

/// Nothing while nobody has looked at the control plane since we started: whoever does will tell.
pub(super) async fn pass(
    provisioner: CoderProvisioner,
    need: Freshness,
    context: &Context,
) -> Result<Option<Passed>, kube::Error> {
    if access::is_early(&provisioner, &context.shared).await {
        return Ok(None);
    }
    let findings = Findings { requested: requested(&provisioner), ..Findings::default() };
    let written = provisioner.status.clone();
    let mut passed =
        Passed { provisioner, written, findings, trouble: None, again_at: None, is_rotating: false };
    let keyed = Box::pin(keyed(&mut passed, need, context)).await?;
    let ended = match keyed {
        Some(keyed) => Box::pin(daemons::run(&mut passed, &keyed, context)).await,
        None => daemons::look_on(&mut passed, context).await,
    };
    if let Err(error) = ended {
        // Whatever is wrong with the objects: what is known of the keys is written down.
        let known = passed.provisioner.status.clone().unwrap_or_default();
        write_status(&passed.provisioner, passed.written.as_ref(), known, &context.shared).await.ok();
        return Err(error);
    }
    Ok(Some(passed))
}

/// A control plane, as far as a pass has come to know it.
pub(super) struct Known {
    pub(super) declared: CoderControlPlane,
    pub(super) plane: Arc<Plane>,
    /// The deployment, read as recently as the reconcile needs it.
    pub(super) world: World,
    pub(super) organization: Organization,
}

/// A key that works, and what was seen on the way to it.
pub(super) struct Keyed {
    pub(super) held: Held,
    pub(super) known: Known,
    pub(super) pods: Vec<Pod>,
    pub(super) wanted: Wanted,
}

/// Everything up to the key. Nothing when something stops it, which is then among the findings.
async fn keyed(
    passed: &mut Passed,
    need: Freshness,
    context: &Context,
) -> Result<Option<Keyed>, kube::Error> {
    let Some(known) = Box::pin(reach(passed, need, context)).await? else { return Ok(None) };
    let provisioner = passed.provisioner.clone();
    if let Err(message) = Names::check(provisioner.key_name()) {
        let message = format!("spec.key.name: {message}");
        passed.findings.key = Some(Err(Blocked { reason: Reason::Invalid, message }));
        return Ok(None);
    }
    let wanted = wanted(&provisioner, &known);
    let (holder, store) = (holder(&provisioner), context.shared.key_store());
    let elsewhere = |retiring: Retiring| -> BoxFuture<'_, Result<Revoked, Trouble>> {
        let (names, namespace) = (&wanted.names, &holder.namespace);
        Box::pin(async move { revoke_elsewhere(&retiring, namespace, names, None, &context.shared).await })
    };
    let mut around = Around::new(store, &holder, Live::typed(&provisioner));
    around.elsewhere = Some(&elsewhere);
    around.first_status = Some(&first_status);
    let secrets = KeySecrets::new(store, &holder);
    let recorded = recorded(&provisioner);
    let given = given(&provisioner, &recorded, &context.shared).await?;
    // An old key is revoked, and an old Secret removed, only if no pod has it, and the watch may be behind.
    let is_moving = recorded.secret.as_ref().is_some_and(|it| *it != wanted.secret);
    let is_settled = recorded.retiring.is_empty() && recorded.former.is_empty() && !is_moving;
    let pods = if is_settled {
        known_pods(&provisioner, &context.shared).await?
    } else {
        list_pods(&provisioner, &context.shared).await?
    };
    let pods_of_keys = carried(&pods, given, &provisioner);
    let keys = Keys { world: &known.world, secrets: &secrets, around: &around, recorded, pods: pods_of_keys };
    let driven = match previewed(passed, &keys.drive(&wanted), &known, &context.shared).await? {
        Ok(held_back) => keys.drive(&Wanted { held_back, ..wanted.clone() }).run().await,
        Err(trouble) => Err(trouble),
    };
    let mut provisioner = written(provisioner, around.object());
    passed.written.clone_from(&provisioner.status);
    let held = match driven {
        Err(trouble) => {
            passed.trouble = Some(Failure::of(&trouble));
            passed.findings.key = Some(Err(failed(trouble)));
            None
        }
        Ok(Driven { rest, trouble }) => {
            passed.trouble = trouble.as_ref().map(Failure::of);
            passed.again_at = rest.again_at;
            passed.is_rotating = rest.is_rotating();
            // Written into the status when the reconcile has come to its end: the Secret has it already.
            provisioner.status.get_or_insert_default().key = to_status(&rest.record);
            settle(&mut passed.findings, rest)
        }
    };
    let minted = around.take_minted();
    passed.findings.changed |= !minted.is_empty();
    report_minted(&provisioner, minted, &context.shared);
    passed.provisioner = provisioner;
    Ok(held.map(|held| Keyed { held, known, pods, wanted }))
}

/// What the work on the keys of a provisioner needs.
struct Keys<'a> {
    world: &'a World,
    secrets: &'a KeySecrets<'a>,
    around: &'a Around<'a>,
    recorded: Record,
    pods: Pods,
}

impl<'a> Keys<'a> {
    fn drive<'b>(&self, wanted: &'b Wanted) -> Drive<'b, World, KeySecrets<'a>, Around<'a>>
    where
        'a: 'b,
    {
        Drive {
            wanted,
            coderd: self.world,
            secret: self.secrets,
            around: self.around,
            mirror: self.recorded.clone(),
            remembered: self.around.remembered(),
            pods: Some(self.pods.clone()),
            now: Timestamp::now(),
        }
    }
}

/// Why no key is minted, where the plan for that is not to be carried out; that plan is among the findings then.
async fn previewed(
    passed: &mut Passed,
    drive: &Drive<'_, World, KeySecrets<'_>, Around<'_>>,
    known: &Known,
    shared: &Shared,
) -> Result<Result<Option<Blocked>, Trouble>, kube::Error> {
    if passed.provisioner.spec.changes.is_automatic() {
        return Ok(Ok(None));
    }
    let foreseen = match drive.look().await {
        Ok(foreseen) => foreseen,
        Err(trouble) => return Ok(Err(trouble)),
    };
    let provisioner = &passed.provisioner;
    let objects = if changes::is_first(&foreseen) {
        daemons::preview(provisioner, known, &drive.wanted.place.url, shared).await?
    } else {
        Plan::empty()
    };
    let key = changes::of_key(&foreseen, drive.wanted);
    let plan = changes::whole(key, objects, &changes::target(&provisioner.name_any()));
    passed.findings.held_back = check(provisioner, &plan, None).err();
    Ok(Ok(passed.findings.held_back.as_ref().map(HeldBack::blocked)))
}

/// What is said of the key and of the Secret.
fn settle(findings: &mut Findings, rest: Rest) -> Option<Held> {
    match rest.key {
        Ok(held) => {
            findings.key = Some(Ok(()));
            findings.secret = Some(Ok(()));
            Some(held)
        }
        Err(waiting) => {
            let is_secrets = waiting.reason.is_about_key_secret();
            if is_secrets {
                findings.secret = Some(Err(waiting));
            } else {
                findings.key = Some(Err(waiting));
            }
            None
        }
    }
}

fn failed(trouble: Trouble) -> Blocked {
    let own = |reason: Reason| {
        // Everything that coderd says for which there is no word of its own is a key that could not be made.
        if reason == Reason::RemoteError { Reason::ProvisionerKeyFailed } else { reason }
    };
    let waiting = trouble.into_blocked();
    Blocked { reason: own(waiting.reason), ..waiting }
}

/// How far a reconcile has come towards its organization.
#[derive(Default)]
struct Reached {
    control_plane: Stage,
    access: Stage,
    entitled: Stage,
    key: Stage,
    trouble: Option<Failure>,
    known: Option<Known>,
}

impl Reached {
    fn failed(mut self, trouble: Trouble, stage: impl FnOnce(&mut Self) -> &mut Stage) -> Self {
        self.trouble = matches!(trouble, Trouble::Remote(_)).then(|| Failure::of(&trouble));
        *stage(&mut self) = Some(Err(trouble.into_blocked()));
        self
    }
}

/// Everything up to the organization. A new provisioner whose deployment does not answer soon gets its first status meanwhile.
async fn reach(
    passed: &mut Passed,
    need: Freshness,
    context: &Context,
) -> Result<Option<Known>, kube::Error> {
    let provisioner = passed.provisioner.clone();
    let mut reaching = pin!(reached(&provisioner, need, context));
    let reached = if report::is_begun(&provisioner) {
        reaching.await
    } else {
        tokio::select! {
            biased;
            reached = &mut reaching => reached,
            () = sleep(FIRST_STATUS) => {
                passed.provisioner = conclude(&provisioner, &Findings::default(), &context.shared).await?;
                passed.written.clone_from(&passed.provisioner.status);
                reaching.await
            }
        }
    };
    let Reached { control_plane, access, entitled, key, trouble, known } = reached;
    let requested = passed.findings.requested.take();
    passed.findings = Findings { control_plane, access, entitled, key, requested, ..Findings::default() };
    passed.trouble = trouble;
    Ok(known)
}

async fn reached(provisioner: &CoderProvisioner, need: Freshness, context: &Context) -> Reached {
    let mut reached = Reached::default();
    let declared = match access::control_plane(provisioner, &context.shared).await {
        Ok(declared) => declared,
        Err(waiting) => return Reached { control_plane: Some(Err(waiting)), ..reached },
    };
    reached.control_plane = Some(Ok(()));
    let plane = match access::access(provisioner, &declared, context).await {
        Ok(plane) => plane,
        Err(trouble) => return reached.failed(trouble, |it| &mut it.access),
    };
    let world = plane.world(need);
    if let Err(trouble) = world.same_deployment().await {
        return reached.failed(trouble, |it| &mut it.access);
    }
    reached.access = Some(Ok(()));
    let entitled = gate::asked(world.licensed().await.as_ref().map(|it| &it.1));
    let is_entitled = entitled.is_ok();
    reached.entitled = Some(entitled);
    if !is_entitled {
        return reached;
    }
    match organization(provisioner.spec.organization(), &world).await {
        Ok(organization) => {
            reached.known = Some(Known { declared, plane, world, organization });
            reached
        }
        Err(trouble) => {
            let is_remote = matches!(trouble, Trouble::Remote(_));
            reached.trouble = is_remote.then(|| Failure::of(&trouble));
            reached.key = Some(Err(failed(trouble)));
            reached
        }
    }
}

async fn organization(name: &str, world: &World) -> Result<Organization, Trouble> {
    let found = world.home(name).await?;
    found.ok_or_else(|| {
        let message = format!("organization {name} does not exist yet");
        Blocked { reason: Reason::ReferenceNotFound, message }.into()
    })
}

fn wanted(provisioner: &CoderProvisioner, known: &Known) -> Wanted {
    let spec = &provisioner.spec;
    let every = spec.rotates_every().and_then(|it| SignedDuration::try_from(it).ok());
    Wanted {
        policy: Policy::Recreate,
        names: Names::new(provisioner.key_name(), &provisioner.uid().unwrap_or_default()),
        organization_id: known.organization.id,
        organization_name: spec.organization().to_owned(),
        tags: spec.tags.clone().unwrap_or_default(),
        place: Place {
            control_plane: spec.control_plane_ref.name.clone(),
            url: match &known.declared.spec.external {
                Some(_) => known.plane.client().url().as_str().trim_end_matches('/').to_owned(),
                None => address::for_daemons(&known.declared),
            },
            deployment_id: Some(known.plane.deployment()),
        },
        secret: secret(provisioner),
        rotate_every: every,
        rotate_request: provisioner.annotations().get(annotation::ROTATE_REQUESTED_AT).cloned(),
        grace: SignedDuration::from_secs(spec.termination_grace_period()) + BEYOND_GRACE,
        held_back: None,
    }
}

/// What the status says of the keys.
pub(super) fn recorded(provisioner: &CoderProvisioner) -> Record {
    let state = provisioner.status.clone().unwrap_or_default().key;
    of_status(&state, &provisioner.uid().unwrap_or_default())
}

/// The provisioner with its status, and the version of that, as they were last written. The manifest stays as it is in this
/// reconcile; the next one sees whatever has changed in it.
fn written(mut provisioner: CoderProvisioner, object: Option<Live>) -> CoderProvisioner {
    let now = object.and_then(|it| serde_json::from_value::<CoderProvisioner>(it.object).ok());
    if let Some(now) = now {
        provisioner.metadata.resource_version = now.metadata.resource_version;
        provisioner.status = now.status;
    }
    provisioner
}

/// The pods that the watch has shown, those that are being deleted included.
pub(super) async fn known_pods(
    provisioner: &CoderProvisioner,
    shared: &Shared,
) -> Result<Vec<Pod>, kube::Error> {
    let namespace = provisioner.namespace().unwrap_or_default();
    owned::pods(shared, &namespace, &names::wide_selector(provisioner)).await
}

/// The pods that there are now, those that are being deleted included.
async fn list_pods(provisioner: &CoderProvisioner, shared: &Shared) -> Result<Vec<Pod>, kube::Error> {
    let namespace = provisioner.namespace().unwrap_or_default();
    owned::list(shared, &namespace, &names::wide_selector(provisioner)).await
}

/// The key that pods get which come now. It is of interest only as long as there is an old one.
async fn given(
    provisioner: &CoderProvisioner,
    recorded: &Record,
    shared: &Shared,
) -> Result<Option<BTreeSet<String>>, kube::Error> {
    if recorded.retiring.is_empty() {
        return Ok(None);
    }
    let seen = objects::deployment(provisioner, &names::workload(provisioner), &*shared.cluster).await;
    let seen = seen.map_err(error_of)?;
    let template = seen.and_then(|it| it.spec?.template.metadata?.annotations);
    let checksum = template.and_then(|mut it| it.remove(annotation::PROVISIONER_KEY_CHECKSUM));
    Ok(Some(checksum.into_iter().collect()))
}

/// What the pods carry of keys.
fn carried(found: &[Pod], given: Option<BTreeSet<String>>, provisioner: &CoderProvisioner) -> Pods {
    let carried =
        found.iter().filter_map(|it| it.annotations().get(annotation::PROVISIONER_KEY_CHECKSUM).cloned());
    let variables = found.iter().flat_map(|it| it.spec.iter().flat_map(|it| &it.containers));
    let variables = variables.flat_map(|it| it.env.iter().flatten());
    let read = variables.filter_map(|it| it.value_from.as_ref()?.secret_key_ref.as_ref());
    let longest = found.iter().filter_map(|it| it.spec.as_ref()?.termination_grace_period_seconds).max();
    Pods {
        carried: carried.collect(),
        given,
        secrets: read.map(|it| SecretPlace { name: it.name.clone(), key: it.key.clone() }).collect(),
        are_wanted: provisioner.spec.replicas() > 0,
        grace: SignedDuration::from_secs(longest.unwrap_or_default()).saturating_add(BEYOND_GRACE),
    }
}
