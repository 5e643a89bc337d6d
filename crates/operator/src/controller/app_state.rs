//! The controller of one kind: the engine's stages around a manifest in a cluster.

mod apply;
mod claims;
mod deletion;
mod record_status;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use api::{AppState, DeletionPolicy, Reason, Status, finalizer};
use engine::{
    Aside, Assessment, Blocked, Kind, Object, Outcome, Report, Trouble,
    pipeline::status::{self, Pass},
};
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::{
    Resource as _, ResourceExt as _,
    runtime::{
        PredicateConfig, WatchStreamExt as _,
        controller::{self, Action, Controller},
        events::EventType,
        reflector::{self, ObjectRef, Store},
    },
};
use serde_json::Map;
use uuid::Uuid;

use self::record_status::write_status;
use super::{
    Shared, drive,
    memory::Memory,
    no_error,
    record::{has_finalizer, publish, set_finalizer, words_of},
    wake::{Wake, requested},
    watch,
};
use crate::{
    cluster::secret_cache,
    controller::{
        about::About,
        backoff::{spread, until},
        predicate,
        reconcile::{self, Ending, Target},
    },
    planes::{PlaneName, Standing},
};

/// How soon an object that waits is looked at again, should no watch have told.
const SAFETY_NET: Duration = Duration::from_mins(2);

struct Context<K: Kind> {
    shared: Arc<Shared>,
    /// Every manifest of the kind, for those that want the same object.
    manifests: Store<K::Manifest>,
}

pub(super) async fn run<K: Kind>(shared: Arc<Shared>) {
    let (manifests, writer) = reflector::store();
    let changes = watch::decoded::<K::Manifest>(&shared, Some(manifests.clone()))
        .reflect(writer)
        .applied_objects()
        .predicate_filter(predicate::of::<K::Manifest>(), PredicateConfig::default());
    shared.metrics.show(manifests.clone(), |it| it.status().map_or(&[], |it| it.conditions.as_slice()));
    let context = Arc::new(Context::<K> { shared: Arc::clone(&shared), manifests: manifests.clone() });
    let [of_planes, of_references, of_secrets] = std::array::from_fn(|_| manifests.clone());
    let [by_planes, by_references] = std::array::from_fn(|_| Arc::clone(&shared.memory));
    let controller = Controller::for_stream(changes, manifests)
        .reconcile_on(shared.planes.changes().flat_map(move |changed| {
            let belongs =
                move |it: &K::Manifest| changed.as_ref().is_none_or(|it_is| *it_is == plane_of::<K>(it));
            futures::stream::iter(woken::<K>(&of_planes, &by_planes, belongs))
        }))
        .reconcile_on(shared.references.changes().flat_map(move |changed| {
            let refers = move |it: &K::Manifest| {
                changed.as_ref().is_none_or(|changed| changed.concerns(&plane_of::<K>(it), &K::refs(it)))
            };
            futures::stream::iter(woken::<K>(&of_references, &by_references, refers))
        }))
        .graceful_shutdown_on(shared.stop.clone().cancelled_owned());
    let controller = if K::HAS_SECRETS {
        // No event that lists have to be read again for: every reconcile reads the Secret, and a value in it that is new
        // to us is proved by coderd itself.
        controller.reconcile_on(secret_cache::changed(&shared.secrets, of_secrets, K::refers_to_secret))
    } else {
        controller
    };
    let controller = controller.run(
        |object, context: Arc<Context<K>>| {
            let (plane, objects) = (Some(plane_of::<K>(&object)), context.manifests.clone());
            let target = Target { object, objects, plane };
            reconcile::over(Arc::clone(&context.shared), target, |it, wake| reconcile::<K>(it, wake, context))
        },
        no_error,
        context,
    );
    let passes = controller.inspect(|pass| {
        if let Err(controller::Error::ObjectNotFound(gone)) = pass {
            let namespace = gone.namespace.as_deref().unwrap_or_default();
            shared.forget(K::Manifest::kind(&()), namespace, &gone.name);
        }
    });
    drive::<K::Manifest, _>(&shared, passes).await;
}

/// Those manifests.
fn those<K: Kind>(
    manifests: &Store<K::Manifest>,
    are: impl Fn(&K::Manifest) -> bool,
) -> Vec<ObjectRef<K::Manifest>> {
    manifests.state().into_iter().filter(|it| are(it)).map(|it| ObjectRef::from_obj(&*it)).collect()
}

/// The same, of which something that they refer to has changed.
fn woken<K: Kind>(
    manifests: &Store<K::Manifest>,
    memory: &Memory,
    are: impl Fn(&K::Manifest) -> bool,
) -> Vec<ObjectRef<K::Manifest>> {
    those::<K>(manifests, |it| {
        let is_one = are(it);
        if is_one {
            memory.reference_changed(&About::of(it));
        }
        is_one
    })
}

/// Announces the object of a manifest that was created, changed, adopted or deleted.
fn announce<K: Kind>(manifest: &K::Manifest, report: &Report, shared: &Shared) {
    let known = manifest.status().and_then(|it| it.id.as_deref());
    let is_new = report.id.is_some_and(|it| known != Some(it.to_string().as_str()));
    if let Some(name) = K::provides(manifest).filter(|_| report.done > 0 || is_new) {
        shared.references.announce(plane_of::<K>(manifest), name);
    }
}

fn plane_of<K: Kind>(manifest: &K::Manifest) -> PlaneName {
    (manifest.namespace().unwrap_or_default(), manifest.control_plane().to_owned())
}

async fn reconcile<K: Kind>(
    manifest: Arc<K::Manifest>,
    mut wake: Wake,
    context: Arc<Context<K>>,
) -> Result<Action, kube::Error> {
    let shared = &context.shared;
    let started = Instant::now();
    let mut manifest = (*manifest).clone();
    if manifest.meta().deletion_timestamp.is_some() {
        return deletion::delete::<K>(manifest, &context).await;
    }
    if manifest.policy().is_suspended() {
        let next = status::suspended(manifest.status(), manifest.meta().generation, Timestamp::now());
        write_status(&manifest, next, &Map::new(), shared).await?;
        return Ok(Action::await_change());
    }
    if is_owing::<K>(&manifest) && !has_finalizer(&manifest, finalizer::FINALIZER) {
        let written = set_finalizer(&manifest, finalizer::FINALIZER, true, shared).await?;
        wake = wake.of_written(&manifest, &written);
        manifest = written;
    }
    let mut object = Object::<K>::new(manifest);
    let name = plane_of::<K>(&object.manifest);
    let mut deployment = None;
    let (assessment, report) = match shared.planes.standing(&name) {
        Some(Standing::Usable(plane)) => {
            deployment = Some(plane.deployment());
            apply::compare_and_apply(&mut object, &plane, &wake, &context).await?
        }
        Some(Standing::Blocked(why)) => (None, not_ready(&name, why)),
        None => {
            if !matches!(shared.control_plane(&name).await, Ok(None)) {
                // The control plane was not reconciled since we started; its first reconcile wakes this object.
                if let Some(first) = apply::first_status(&object.manifest) {
                    write_status(&object.manifest, first, &Map::new(), shared).await?;
                }
                return Ok(Action::requeue(SAFETY_NET));
            }
            (None, not_declared(&name))
        }
    };
    let has_read = assessment.is_some() && !matches!(report.outcome, Outcome::Failed(_));
    let about = About::of(&object.manifest);
    let again = conclude(&object, deployment, (assessment, report), started, &context).await?;
    if has_read {
        shared.memory.answered(&about, &wake);
    }
    Ok(again)
}

/// Tells what became of an object, and says when it is looked at again.
async fn conclude<K: Kind>(
    object: &Object<K>,
    deployment: Option<Uuid>,
    (assessment, report): (Option<Assessment>, Report),
    started: Instant,
    context: &Context<K>,
) -> Result<Action, kube::Error> {
    let shared = &context.shared;
    let (manifest, about) = (&object.manifest, About::of(&object.manifest));
    let next = next_status(object, deployment, assessment.as_ref(), &report);
    // First of all: what was made is ours once that is written.
    let Aside { status: aside, again_at } =
        assessment.as_ref().map(|it| it.aside.clone()).unwrap_or_default();
    let written = write_status(manifest, next, &aside, shared).await;
    announce::<K>(manifest, &report, shared);
    tell(object, assessment.as_ref(), &report, shared).await;
    if let Some(assessment) = &assessment {
        shared.metrics.steps(&about.kind, &assessment.plan, report.done);
    }
    let written = written?;
    if has_finalizer(&written, finalizer::FINALIZER) && !is_owing::<K>(&written) {
        set_finalizer(&written, finalizer::FINALIZER, false, shared).await?;
    }
    let empty = engine::Plan::<()>::empty().view("");
    let plan = assessment.as_ref().map_or(&empty, |it| &it.plan);
    ended(&about, &report.outcome, &status::message(&report.outcome, plan), started.elapsed(), shared);
    if let Outcome::Failed(trouble) = &report.outcome {
        let wanted = if let Trouble::Remote(error) = trouble { error.retry_after() } else { None };
        return Ok(Action::requeue(shared.memory.after_failure(&about, wanted)));
    }
    shared.memory.succeeded(&about);
    let interval = spread(manifest.policy().interval(), &about.uid);
    let waits = matches!(report.outcome, Outcome::Blocked(_));
    let interval = if waits { interval.min(SAFETY_NET) } else { interval };
    Ok(Action::requeue(again_at.map_or(interval, |it| interval.min(until(it, Timestamp::now())))))
}

/// Whether the deletion of a manifest has to take something back, so that a finalizer is needed.
fn is_owing<K: Kind>(manifest: &K::Manifest) -> bool {
    manifest.policy().deletion_policy() == DeletionPolicy::Delete || K::owes(manifest)
}

/// Counts a pass and tells how it ended.
fn ended(about: &About, outcome: &Outcome, message: &str, took: Duration, shared: &Shared) {
    let is_trouble = matches!(outcome, Outcome::Failed(_) | Outcome::Refused(_) | Outcome::Invalid(_));
    let ending = Ending { reason: outcome.reason(), message, is_ready: outcome.is_ready(), is_trouble };
    shared.passes.ended(about, ending, took);
}

fn not_declared((_, name): &PlaneName) -> Report {
    let message = format!("there is no control plane {name} in this namespace: create it");
    waits(Blocked { reason: Reason::ControlPlaneNotFound, message })
}

fn not_ready((_, name): &PlaneName, why: Reason) -> Report {
    let message = format!("control plane {name} cannot be used: {why}; its own status says more");
    waits(Blocked { reason: Reason::ControlPlaneNotReady, message })
}

fn waits(waiting: Blocked) -> Report {
    Report { outcome: Outcome::Blocked(waiting), id: None, done: 0 }
}

fn next_status<K: Kind>(
    object: &Object<K>,
    deployment: Option<Uuid>,
    assessment: Option<&Assessment>,
    report: &Report,
) -> Status {
    let empty = engine::Plan::<()>::empty().view("");
    let (target, asked) = (K::target(&object.manifest), requested(&object.manifest));
    let pass = Pass {
        generation: object.manifest.meta().generation,
        contact: assessment.and_then(|it| it.contact),
        plan: assessment.map_or(&empty, |it| &it.plan),
        target: &target,
        outcome: &report.outcome,
        id: report.id.as_ref().map(Uuid::to_string),
        deployment,
        changed: report.done > 0,
        requested: asked.as_deref(),
        now: Timestamp::now(),
    };
    status::next(object.manifest.status(), &pass)
}

/// Events for what was changed, field by field; none when nothing was.
async fn tell<K: Kind>(
    object: &Object<K>,
    assessment: Option<&Assessment>,
    report: &Report,
    shared: &Shared,
) {
    let steps = assessment.iter().flat_map(|it| &it.plan.steps).take(report.done);
    for step in steps {
        let fields: Vec<String> = step.changes.iter().map(status::line).collect();
        let fields = if fields.is_empty() { K::target(&object.manifest) } else { fields.join(", ") };
        let note = format!("{}: {fields}", step.reason);
        let words = words_of(step.action);
        tracing::info!(action = words.1, "{note}");
        publish(&object.manifest, EventType::Normal, words, &note, shared);
    }
}
