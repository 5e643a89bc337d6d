//! The controller of provisioners: what causes a reconcile, which control plane it uses, and when the next one comes.

mod access;
mod deletion;
mod elsewhere;

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::{Duration, Instant},
};

use api::{CoderControlPlane, CoderProvisioner, Mode, Reason, finalizer};
use engine::{
    Freshness, RemoteName, Trouble,
    kinds::provisioner::{
        keys::recorded,
        reconcile::{Reconciled, conclude, reconcile as reconcile_provisioner, write_status},
        refers_to_secret,
        status::{self, Findings, Readiness},
    },
    secrets::{Names, Retiring, Revoked},
};
use futures::{StreamExt as _, future::BoxFuture};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Resource as _, ResourceExt as _,
    runtime::{
        PredicateConfig, WatchStreamExt as _,
        controller::{self, Action, Controller},
        reflector::{self, ObjectRef, Store},
    },
};

pub(super) use self::deletion::patience;

use self::{access::Bootstraps, elsewhere::revoke_elsewhere};
use super::{
    Shared, drive,
    memory::Memory,
    no_error,
    record::{has_finalizer, set_finalizer},
    wake::{Wake, requested},
    watch,
};
use crate::{
    cluster::{owned, port::error_of, secret_cache},
    controller::{
        about::About,
        backoff::{spread, until},
        predicate::{self, is_ready},
        reconcile::{self, Ending, Target},
    },
    planes::PlaneName,
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
        .predicate_filter(predicate::of::<CoderProvisioner>(), PredicateConfig::default());
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
        .reconcile_on(secret_cache::changed(&shared.secrets, of_secrets, refers_to_secret))
        .reconcile_on(owned::changed(&shared.owned, of_objects))
        .graceful_shutdown_on(shared.stop.clone().cancelled_owned())
        .run(
            |object, context: Arc<Context>| {
                let (plane, objects) = (Some(plane_of(&object)), context.provisioners.clone());
                let target = Target { object, objects, plane };
                reconcile::over(Arc::clone(&context.shared), target, |it, wake| reconcile(it, wake, context))
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
        conclude(&provisioner, &Findings::suspended(), &*shared.cluster).await.map_err(error_of)?;
        return Ok(Action::await_change());
    }
    // A provisioner that is only observed, and has no key of ours, has nothing that its deletion takes back.
    let is_observed = provisioner.spec.changes.policy().mode() == Mode::Observe;
    let has_keys = recorded(&provisioner).keys().next().is_some();
    if !has_finalizer(&provisioner, finalizer::PROVISIONER) && (!is_observed || has_keys) {
        let written = set_finalizer(&provisioner, finalizer::PROVISIONER, true, shared).await?;
        wake = wake.of_written(&provisioner, &written);
        provisioner = written;
    }
    let was_ready = is_ready(conditions(&provisioner));
    let Some(mut done) = Box::pin(stages(provisioner, wake.need(), &context)).await? else {
        return Ok(Action::requeue(SAFETY_NET));
    };
    if wake.is_too_old_for(was_ready, done.findings.readiness().is_ready) {
        let written = CoderProvisioner { status: done.written, ..done.provisioner };
        let Some(again) = Box::pin(stages(written, wake.need_to_write(), &context)).await? else {
            return Ok(Action::requeue(SAFETY_NET));
        };
        done = again;
    }
    let Reconciled { provisioner, written, findings, trouble, again_at, is_rotating } = done;
    let known = provisioner.status.clone().unwrap_or_default();
    let next = status::status(&provisioner, known, &findings, Timestamp::now());
    write_status(&provisioner, written.as_ref(), next, &*shared.cluster).await.map_err(error_of)?;
    if trouble.is_none() {
        shared.memory.answered(&about, &wake);
    }
    let Readiness { is_ready, reason, message, is_stalled } = findings.readiness();
    let ending = Ending { reason, message: &message, is_ready, is_trouble: trouble.is_some() || is_stalled };
    shared.passes.ended(&about, ending, started.elapsed());
    let interval = spread(provisioner.spec.interval(), &about.uid);
    let is_awaited = reason == Reason::DaemonsNotSeen || reason == Reason::Progressing;
    if trouble.is_some() || is_awaited {
        let wanted = trouble.as_ref().and_then(retry_after);
        return Ok(Action::requeue(shared.memory.after_failure(&about, wanted).min(interval)));
    }
    shared.memory.succeeded(&about);
    let interval = if is_ready { interval } else { interval.min(SAFETY_NET) };
    let interval = if is_rotating { interval.min(SOON) } else { interval };
    Ok(Action::requeue(again_at.map_or(interval, |it| interval.min(until(it, Timestamp::now())))))
}

/// The stages of a reconcile. `None` until the control plane has been reconciled once, which wakes the provisioner.
async fn stages(
    provisioner: CoderProvisioner,
    need: Freshness,
    context: &Context,
) -> Result<Option<Reconciled>, kube::Error> {
    let shared = &context.shared;
    if access::is_early(&provisioner, shared).await {
        return Ok(None);
    }
    let names = Names::new(provisioner.key_name(), &provisioner.uid().unwrap_or_default());
    let (namespace, requested) = (provisioner.namespace().unwrap_or_default(), requested(&provisioner));
    let elsewhere = |retiring: Retiring| -> BoxFuture<'_, Result<Revoked, Trouble>> {
        let (names, namespace) = (&names, &namespace);
        Box::pin(async move { revoke_elsewhere(&retiring, namespace, names, None, shared).await })
    };
    let manifest = provisioner.clone();
    let (reaching, beside) = (access::reach(&manifest, need, context), shared.beside());
    let done = Box::pin(reconcile_provisioner(provisioner, reaching, &elsewhere, &beside)).await;
    let mut done = done.map_err(error_of)?;
    done.findings.requested = requested;
    Ok(Some(done))
}

/// When coderd wants to be asked again.
fn retry_after(trouble: &Trouble) -> Option<Duration> {
    if let Trouble::Remote(error) = trouble { error.retry_after() } else { None }
}
