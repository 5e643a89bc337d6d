//! Provisioners: their key, their daemons, and what coderd sees of them.

mod access;
mod around;
mod daemons;
mod deletion;
mod stages;

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::{Duration, Instant},
};

use api::{CoderControlPlane, CoderProvisioner, CoderProvisionerStatus, Mode, Reason, finalizer};
use engine::{
    RemoteName,
    provisioner::{
        refers_to_secret,
        report::{self, Findings, Readiness},
    },
};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, Resource as _, ResourceExt as _,
    runtime::{
        PredicateConfig, WatchStreamExt as _,
        controller::{self, Action, Controller},
        reflector::{self, ObjectRef, Store},
    },
};

pub(super) use self::deletion::patience;

use self::access::Bootstraps;
use super::{
    Shared, drive,
    memory::Memory,
    no_error, owned,
    pace::{spread, until},
    pass::{self, About, Ending, Target},
    planes::PlaneName,
    record::{has_finalizer, note_written, set_finalizer, writes},
    secret_cache,
    trigger::{self, is_ready},
    wake::Wake,
    watch,
};

/// How soon something that waits is looked at again, should no watch have told.
const SAFETY_NET: Duration = Duration::from_mins(2);
/// How soon an old key is looked at again.
const SOON: Duration = Duration::from_secs(5);

struct Context {
    shared: Arc<Shared>,
    provisioners: Store<CoderProvisioner>,
    bootstraps: Bootstraps,
}

pub(super) async fn run(shared: Arc<Shared>) {
    let (known, writer) = reflector::store();
    let changes = watch::decoded::<CoderProvisioner>(&shared, Some(known.clone()))
        .reflect(writer)
        .applied_objects()
        .predicate_filter(trigger::of::<CoderProvisioner>(), PredicateConfig::default());
    shared.metrics.show(known.clone(), conditions);
    let context = Arc::new(Context {
        shared: Arc::clone(&shared),
        provisioners: known.clone(),
        bootstraps: Bootstraps::default(),
    });
    let [of_planes, of_statuses, of_secrets, of_references, of_objects] =
        std::array::from_fn(|_| known.clone());
    let [by_planes, by_statuses, by_references] = std::array::from_fn(|_| Arc::clone(&shared.memory));
    let statuses = watch::decoded::<CoderControlPlane>(&shared, None)
        .applied_objects()
        .predicate_filter(|it: &CoderControlPlane| Some(said(it)), PredicateConfig::default());
    let controller = Controller::for_stream(changes, known)
        .reconcile_on(shared.planes.changes().flat_map(move |changed| {
            let belongs =
                move |it: &CoderProvisioner| changed.as_ref().is_none_or(|name| *name == plane_of(it));
            futures::stream::iter(woken(&of_planes, &by_planes, belongs))
        }))
        // What a control plane says of itself is written after it has been told to everybody, and is read from there.
        .watches_stream(statuses, move |it| {
            let name = (it.namespace().unwrap_or_default(), it.name_any());
            woken(&of_statuses, &by_statuses, |it| plane_of(it) == name)
        })
        .reconcile_on(shared.references.changes().flat_map(move |changed| {
            let refers = move |it: &CoderProvisioner| {
                let organization = RemoteName::Organization(it.spec.organization().to_owned());
                changed.as_ref().is_none_or(|changed| changed.concerns(&plane_of(it), &[organization]))
            };
            futures::stream::iter(woken(&of_references, &by_references, refers))
        }))
        // Secrets and objects of the cluster are read by every reconcile: no event that lists have to be read again for.
        .reconcile_on(secret_cache::changed(&shared, of_secrets, refers_to_secret))
        .reconcile_on(owned::changed(&shared, of_objects))
        .graceful_shutdown_on(shared.stop.clone().cancelled_owned())
        .run(
            |object, context: Arc<Context>| {
                let (plane, objects) = (Some(plane_of(&object)), context.provisioners.clone());
                let target = Target { object, objects, plane };
                pass::over(Arc::clone(&context.shared), target, |it, wake| reconcile(it, wake, context))
            },
            no_error,
            Arc::clone(&context),
        );
    let passes = controller.inspect(|pass| {
        if let Err(controller::Error::ObjectNotFound(gone)) = pass {
            let namespace = gone.namespace.as_deref().unwrap_or_default();
            shared.forget(CoderProvisioner::kind(&()), namespace, &gone.name);
        }
    });
    drive::<CoderProvisioner, _>(&shared, passes).await;
}

fn those(
    known: &Store<CoderProvisioner>,
    are: impl Fn(&CoderProvisioner) -> bool,
) -> Vec<ObjectRef<CoderProvisioner>> {
    known.state().into_iter().filter(|it| are(it)).map(|it| ObjectRef::from_obj(&*it)).collect()
}

/// The same, of which something that they refer to has changed.
fn woken(
    known: &Store<CoderProvisioner>,
    memory: &Memory,
    are: impl Fn(&CoderProvisioner) -> bool,
) -> Vec<ObjectRef<CoderProvisioner>> {
    those(known, |it| {
        let is_one = are(it);
        if is_one {
            memory.reference_changed(&About::of(it));
        }
        is_one
    })
}

fn conditions(provisioner: &CoderProvisioner) -> &[Condition] {
    provisioner.status.as_ref().map_or(&[], |it| it.conditions.as_slice())
}

/// Tells two versions of a control plane apart if they are not the same to its daemons.
fn said(plane: &CoderControlPlane) -> u64 {
    let mut hasher = DefaultHasher::new();
    let status = plane.status.as_ref();
    (plane.uid(), status.and_then(|it| it.url.as_ref())).hash(&mut hasher);
    status.and_then(|it| it.deployment_id.as_ref()).hash(&mut hasher);
    status.and_then(|it| it.version.as_ref()).hash(&mut hasher);
    status.and_then(|it| it.external_provisioner_daemons_entitlement.as_ref()).hash(&mut hasher);
    plane.spec.image().hash(&mut hasher);
    hasher.finish()
}

fn plane_of(provisioner: &CoderProvisioner) -> PlaneName {
    let name = provisioner.spec.control_plane_ref.name.clone();
    (provisioner.namespace().unwrap_or_default(), name)
}

async fn reconcile(
    provisioner: Arc<CoderProvisioner>,
    mut wake: Wake,
    context: Arc<Context>,
) -> Result<Action, kube::Error> {
    let (shared, started, about) = (&context.shared, Instant::now(), About::of(&*provisioner));
    if provisioner.metadata.deletion_timestamp.is_some() {
        return deletion::depart(&provisioner, &context).await;
    }
    let mut provisioner = (*provisioner).clone();
    if provisioner.spec.is_suspended() {
        conclude(&provisioner, &Findings::suspended(), shared).await?;
        return Ok(Action::await_change());
    }
    // A provisioner that is only observed, and has no key of ours, has nothing that its deletion takes back.
    let is_observed = provisioner.spec.changes.policy().mode() == Mode::Observe;
    let has_keys = stages::recorded(&provisioner).keys().next().is_some();
    if !has_finalizer(&provisioner, finalizer::PROVISIONER) && (!is_observed || has_keys) {
        let written = set_finalizer(&provisioner, finalizer::PROVISIONER, true, shared).await?;
        wake = wake.of_written(&provisioner, &written);
        provisioner = written;
    }
    let was_ready = is_ready(conditions(&provisioner));
    let Some(mut passed) = Box::pin(stages::pass(provisioner, wake.need(), &context)).await? else {
        return Ok(Action::requeue(SAFETY_NET));
    };
    if wake.is_too_old_for(was_ready, passed.findings.readiness().is_ready) {
        let written = CoderProvisioner { status: passed.written, ..passed.provisioner };
        let Some(again) = Box::pin(stages::pass(written, wake.need_to_write(), &context)).await? else {
            return Ok(Action::requeue(SAFETY_NET));
        };
        passed = again;
    }
    let stages::Passed { provisioner, written, findings, trouble, again_at, is_rotating } = passed;
    let known = provisioner.status.clone().unwrap_or_default();
    let next = report::status(&provisioner, known, &findings, Timestamp::now());
    write_status(&provisioner, written.as_ref(), next, shared).await?;
    if trouble.is_none() {
        shared.memory.answered(&about, &wake);
    }
    let Readiness { is_ready, reason, message, is_stalled } = findings.readiness();
    let ending = Ending { reason, message: &message, is_ready, is_trouble: trouble.is_some() || is_stalled };
    shared.passes.ended(&about, ending, started.elapsed());
    let interval = spread(provisioner.spec.interval(), &about.uid);
    let is_awaited = reason == Reason::DaemonsNotSeen || reason == Reason::Progressing;
    if trouble.is_some() || is_awaited {
        let wanted = trouble.and_then(|it| it.wanted);
        return Ok(Action::requeue(shared.memory.after_failure(&about, wanted).min(interval)));
    }
    shared.memory.succeeded(&about);
    let interval = if is_ready { interval } else { interval.min(SAFETY_NET) };
    let interval = if is_rotating { interval.min(SOON) } else { interval };
    Ok(Action::requeue(again_at.map_or(interval, |it| interval.min(until(it, Timestamp::now())))))
}

/// Writes what a pass found out that changed nothing, and gives back the provisioner as it is then.
async fn conclude(
    provisioner: &CoderProvisioner,
    findings: &Findings,
    shared: &Shared,
) -> Result<CoderProvisioner, kube::Error> {
    let before = provisioner.status.clone().unwrap_or_default();
    let next = report::status(provisioner, before, findings, Timestamp::now());
    write_status(provisioner, provisioner.status.as_ref(), next, shared).await
}

/// Writes the status, if it is another one than the cluster has, and gives back the provisioner as it is then.
async fn write_status(
    provisioner: &CoderProvisioner,
    written: Option<&CoderProvisionerStatus>,
    next: CoderProvisionerStatus,
    shared: &Shared,
) -> Result<CoderProvisioner, kube::Error> {
    if written == Some(&next) {
        return Ok(provisioner.clone());
    }
    let changed = CoderProvisioner { status: Some(next), ..provisioner.clone() };
    let namespace = provisioner.namespace().unwrap_or_default();
    let provisioners = Api::<CoderProvisioner>::namespaced(shared.client.clone(), &namespace);
    // With the version that was read: of two writers one is refused and looks again.
    let written = provisioners.replace_status(&provisioner.name_any(), &writes(), &changed).await?;
    note_written(&written, shared);
    Ok(written)
}
