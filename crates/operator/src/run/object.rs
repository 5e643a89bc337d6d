//! The controller of one kind: the engine's stages around a manifest in a cluster.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use api::{AppState, DeletionPolicy, Mode, Status, annotation, finalizer, reason};
use engine::{
    Assessment, Door, Kind, Object, Outcome, Report, Trouble, Verdict, Waiting,
    ownership::{Claim, keeper},
    status::{self, Pass},
};
use jiff::Timestamp;
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    runtime::{
        controller::{Action, Controller},
        events::{Event, EventType},
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use serde_json::json;
use uuid::Uuid;

use super::{
    Shared,
    control_plane::requested,
    drive, no_error,
    pace::{Retries, spread},
    pass::{self, About, Ending},
    planes::Plane,
};

/// How long an object that is being deleted waits for a deployment that does not answer.
const DELETION_DEADLINE: Duration = Duration::from_mins(15);
/// How soon an object that waits is looked at again, should no watch have told.
const SAFETY_NET: Duration = Duration::from_mins(2);

struct Context<K: Kind> {
    shared: Arc<Shared>,
    retries: Retries,
    /// Every manifest of the kind, for those that want the same object.
    manifests: Store<K::Manifest>,
}

pub(super) async fn run<K: Kind>(shared: Arc<Shared>) {
    let controller = Controller::new(shared.api::<K::Manifest>(), watcher::Config::default());
    let context = Arc::new(Context::<K> {
        shared: Arc::clone(&shared),
        retries: Retries::default(),
        manifests: controller.store(),
    });
    shared.metrics.show(controller.store(), |it| it.status().map_or(&[], |it| it.conditions.as_slice()));
    let (of_organizations, of_groups) = (controller.store(), controller.store());
    let waiting = |store: Store<K::Manifest>, namespace: Option<String>| {
        let is_it =
            move |it: &Arc<K::Manifest>| it.namespace() == namespace && waits_for_reference(it.status());
        store.state().into_iter().filter(is_it).map(|it| ObjectRef::from_obj(&*it)).collect::<Vec<_>>()
    };
    let controller = controller
        .reconcile_all_on(shared.planes.changes())
        // What waits for an organization or a group goes on when one changes.
        .watches(shared.api::<api::CoderOrganization>(), watcher::Config::default(), move |it| {
            waiting(of_organizations.clone(), it.namespace())
        })
        .watches(shared.api::<api::CoderGroup>(), watcher::Config::default(), move |it| {
            waiting(of_groups.clone(), it.namespace())
        })
        .graceful_shutdown_on(shared.stop.clone().cancelled_owned())
        .run(
            |manifest, context: Arc<Context<K>>| {
                pass::over(
                    Arc::clone(&context.shared),
                    Arc::clone(&manifest),
                    reconcile::<K>(manifest, context),
                )
            },
            no_error,
            context,
        );
    drive::<K::Manifest, _>(&shared, controller).await;
}

fn waits_for_reference(status: Option<&Status>) -> bool {
    let mut conditions = status.iter().flat_map(|it| &it.conditions);
    conditions.any(|it| it.type_ == api::condition::READY && it.reason == reason::REFERENCE_NOT_FOUND)
}

async fn reconcile<K: Kind>(
    manifest: Arc<K::Manifest>,
    context: Arc<Context<K>>,
) -> Result<Action, kube::Error> {
    let Context { shared, retries, manifests } = &*context;
    let (started, kind) = (Instant::now(), K::Manifest::kind(&()));
    let manifest = (*manifest).clone();
    let uid = manifest.uid().unwrap_or_default();
    let plane =
        shared.planes.get(&(manifest.namespace().unwrap_or_default(), manifest.control_plane().to_owned()));
    if manifest.meta().deletion_timestamp.is_some() {
        return delete::<K>(manifest, plane, &context).await;
    }
    if manifest.policy().is_suspended() {
        return Ok(Action::await_change());
    }
    let deletes = manifest.policy().deletion_policy() == DeletionPolicy::Delete;
    if deletes && !manifest.finalizers().iter().any(|it| it == finalizer::FINALIZER) {
        set_finalizer::<K>(&manifest, shared, true).await?;
        return Ok(Action::await_change());
    }
    let mut object = Object::<K>::new(manifest);
    let (assessment, report) = match (other_keeper::<K>(&object.manifest, manifests), plane) {
        (Some(keeper), _) => (None, kept_by(&keeper)),
        (None, Some(plane)) => pass(&mut object, &plane).await,
        (None, None) => (None, not_reachable(&object)),
    };
    let retry_after = match &report.outcome {
        Outcome::Failed(Trouble::Remote(error)) => error.retry_after(),
        _ => None,
    };
    let failed = matches!(report.outcome, Outcome::Failed(_));
    tell(&object, assessment.as_ref(), &report, shared).await;
    if let Some(assessment) = &assessment {
        shared.metrics.steps(&kind, &assessment.plan, report.done);
    }
    let waits = matches!(report.outcome, Outcome::Waiting(_));
    let outcome = report.outcome.clone();
    write_status(&object, assessment.as_ref(), report, shared).await?;
    let empty = engine::Plan::<()>::empty().view("");
    let plan = assessment.as_ref().map_or(&empty, |it| &it.plan);
    ended(&object.manifest, &outcome, &status::message(&outcome, plan), started.elapsed(), shared);
    if failed {
        return Ok(Action::requeue(retries.after_failure(&uid, retry_after)));
    }
    retries.forget(&uid);
    let interval = spread(object.manifest.policy().interval(), &uid);
    Ok(Action::requeue(if waits { interval.min(SAFETY_NET) } else { interval }))
}

/// The stages. What is to be written is decided once more on what the deployment has now.
async fn pass<K: Kind>(object: &mut Object<K>, plane: &Plane) -> (Option<Assessment>, Report) {
    let mut assessment = object.assess(plane.world().await, Door::Controller).await;
    if matches!(assessment.verdict, Verdict::Decided(engine::Decision::Apply)) {
        assessment = object.assess(plane.world_now().await, Door::Controller).await;
    }
    let report = object.carry_out(&assessment, plane.world().await).await;
    (Some(assessment), report)
}

/// Another manifest that wants the same object and has the better claim.
fn other_keeper<K: Kind>(manifest: &K::Manifest, manifests: &Store<K::Manifest>) -> Option<Claim> {
    let target = K::target(manifest).to_lowercase();
    let wants_it = |other: &Arc<K::Manifest>| {
        other.namespace() == manifest.namespace()
            && other.control_plane() == manifest.control_plane()
            && K::target(other).to_lowercase() == target
    };
    let claim = |other: Arc<K::Manifest>| Claim {
        name: other.name_any(),
        uid: other.uid().unwrap_or_default(),
        created: other.creation_timestamp().map_or(0, |it| it.0.as_second()),
        holds: other.status().is_some_and(|it| it.id.is_some()),
    };
    let claims: Vec<Claim> = manifests.state().into_iter().filter(wants_it).map(claim).collect();
    keeper(&claims).filter(|it| Some(&it.uid) != manifest.uid().as_ref()).cloned()
}

fn kept_by(keeper: &Claim) -> Report {
    let message = format!("{} declares the same object and keeps it: delete one of the two", keeper.name);
    Report {
        outcome: Outcome::Waiting(Waiting { reason: reason::HELD_BY_OTHER, message }),
        id: None,
        done: 0,
    }
}

fn not_reachable<K: Kind>(object: &Object<K>) -> Report {
    let message =
        format!("control plane {} is not there, or cannot be talked to yet", object.manifest.control_plane());
    let waiting = Waiting { reason: reason::CONTROL_PLANE_NOT_READY, message };
    Report { outcome: Outcome::Waiting(waiting), id: None, done: 0 }
}

/// Counts a pass and tells how it ended.
fn ended(manifest: &impl AppState, outcome: &Outcome, message: &str, took: Duration, shared: &Shared) {
    let is_trouble = matches!(outcome, Outcome::Failed(_) | Outcome::Refused(_) | Outcome::Invalid(_));
    let ending = Ending { reason: outcome.reason(), message, is_ready: outcome.is_ready(), is_trouble };
    shared.passes.ended(&About::of(manifest), ending, took);
}

/// Writes the status, if it is another one.
async fn write_status<K: Kind>(
    object: &Object<K>,
    assessment: Option<&Assessment>,
    report: Report,
    shared: &Shared,
) -> Result<(), kube::Error> {
    let empty = engine::Plan::<()>::empty().view("");
    let target = K::target(&object.manifest);
    let asked = requested(&object.manifest);
    let pass = Pass {
        generation: object.manifest.meta().generation,
        contact: assessment.and_then(|it| it.contact),
        plan: assessment.map_or(&empty, |it| &it.plan),
        target: &target,
        outcome: &report.outcome,
        id: report.id.as_ref().map(Uuid::to_string),
        changed: report.done > 0,
        requested: asked.as_deref(),
        now: Timestamp::now(),
    };
    let next = status::next(object.manifest.status(), &pass);
    if object.manifest.status() == Some(&next) {
        return Ok(());
    }
    let mut written = object.manifest.clone();
    let objects =
        Api::<K::Manifest>::namespaced(shared.client.clone(), &written.namespace().unwrap_or_default());
    if next.id.is_some() && next.id != object.manifest.status().and_then(|it| it.id.clone()) {
        // What we have just taken or made must be ours whatever else happens to the manifest meanwhile, its deletion
        // included: the id goes first, on any version of this very object.
        let id = json!({"metadata": {"uid": written.uid()}, "status": {"id": next.id}});
        let recorded =
            objects.patch_status(&written.name_any(), &PatchParams::default(), &Patch::Merge(id)).await?;
        written.meta_mut().resource_version = recorded.resource_version();
    }
    written.set_status(next);
    // With the version that was read: of two writers one is refused and looks again.
    objects.replace_status(&written.name_any(), &PostParams::default(), &written).await?;
    Ok(())
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
        let fields: Vec<String> =
            step.changes.iter().map(|it| format!("{}: {} -> {}", it.field, it.before, it.after)).collect();
        let note = format!("{}: {}", step.reason, fields.join(", "));
        let reason = format!("{:?}d", step.action);
        let action = format!("{:?}", step.action);
        tracing::info!(action, "{note}");
        publish(&object.manifest, EventType::Normal, (&reason, &action), &note, shared).await;
    }
}

/// Writes an event; `words` are its reason and its action. One that cannot be written, as in a namespace that is going,
/// has been said elsewhere.
async fn publish(
    about: &impl kube::Resource<DynamicType = ()>,
    type_: EventType,
    words: (&str, &str),
    note: &str,
    shared: &Shared,
) {
    let (reason, action) = (words.0.to_owned(), words.1.to_owned());
    let note = Some(note.chars().take(1000).collect());
    let event = Event { type_, reason, note, action, secondary: None };
    shared.recorder.publish(&event, &about.object_ref(&())).await.ok();
}

/// Whether the control plane is still declared, reachable or not.
async fn control_plane_exists(manifest: &impl AppState, shared: &Shared) -> Result<bool, kube::Error> {
    let namespace = manifest.namespace().unwrap_or_default();
    let planes = Api::<api::CoderControlPlane>::namespaced(shared.client.clone(), &namespace);
    Ok(planes.get_opt(manifest.control_plane()).await?.is_some())
}

/// Lets an object go, and takes the remote one away where that is the policy.
async fn delete<K: Kind>(
    manifest: K::Manifest,
    plane: Option<Arc<Plane>>,
    context: &Context<K>,
) -> Result<Action, kube::Error> {
    let Context { shared, retries, .. } = context;
    let (started, kind) = (Instant::now(), K::Manifest::kind(&()));
    let uid = manifest.uid().unwrap_or_default();
    if !manifest.finalizers().iter().any(|it| it == finalizer::FINALIZER) {
        retries.forget(&uid);
        shared.passes.forget(&uid);
        return Ok(Action::await_change());
    }
    let forced = manifest.annotations().get(annotation::FORCE_FINALIZE).is_some_and(|it| it == "true");
    let since = manifest.meta().deletion_timestamp.as_ref().map(|it| it.0);
    let age = since.map(|it| Timestamp::now().duration_since(it)).and_then(|it| Duration::try_from(it).ok());
    let is_late = age.is_some_and(|it| it > DELETION_DEADLINE);
    let is_gone = !control_plane_exists(&manifest, shared).await?;
    let policy = manifest.policy();
    let takes_away = policy.deletion_policy() == DeletionPolicy::Delete
        && policy.mode() == Mode::Enforce
        && manifest.status().is_some_and(|it| it.id.is_some());
    let mut object = Object::<K>::new(manifest);
    let outcome = match plane {
        Some(plane) => {
            let world = plane.world_now().await;
            let assessment = object.assess_deletion(world).await;
            let report = object.carry_out(&assessment, world).await;
            shared.metrics.steps(&kind, &assessment.plan, report.done);
            report.outcome
        }
        None if takes_away => not_reachable(&object).outcome,
        // There is nothing to take away, so there is nobody to wait for.
        None => Outcome::Equal,
    };
    if !outcome.is_ready() {
        let words = status::message(&outcome, &engine::Plan::<()>::empty().view(""));
        let target = K::target(&object.manifest);
        // What is gone is not waited for; what does not answer is, for a while, unless somebody says otherwise.
        if !(is_gone || is_late || forced) {
            let message = format!("{target} is not taken away yet: {words}");
            ended(&object.manifest, &outcome, &message, started.elapsed(), shared);
            return Ok(Action::requeue(retries.after_failure(&uid, None)));
        }
        let note = format!("{target} is left behind: {words}");
        tracing::warn!(reason = outcome.reason(), "{note}");
        publish(&object.manifest, EventType::Warning, ("LeftBehind", "Delete"), &note, shared).await;
    }
    set_finalizer::<K>(&object.manifest, shared, false).await?;
    shared.metrics.reconciled(kind, outcome.reason(), started.elapsed());
    shared.passes.forget(&uid);
    retries.forget(&uid);
    Ok(Action::await_change())
}

/// Adds or removes our finalizer, on the version of the object that was read.
async fn set_finalizer<K: Kind>(
    manifest: &K::Manifest,
    shared: &Shared,
    on: bool,
) -> Result<(), kube::Error> {
    let mut finalizers = manifest.finalizers().to_vec();
    finalizers.retain(|it| it != finalizer::FINALIZER);
    if on {
        finalizers.push(finalizer::FINALIZER.to_owned());
    }
    let patch =
        json!({"metadata": {"resourceVersion": manifest.resource_version(), "finalizers": finalizers}});
    let objects =
        Api::<K::Manifest>::namespaced(shared.client.clone(), &manifest.namespace().unwrap_or_default());
    objects.patch(&manifest.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}
