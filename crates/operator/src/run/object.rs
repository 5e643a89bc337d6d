//! The controller of one kind: the engine's stages around a manifest in a cluster.

mod deletion;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use api::{AppState, DeletionPolicy, Mode, Status, finalizer, reason};
use engine::{
    Aside, Assessment, Contact, Decision, Door, Kind, Lookup as _, Object, Outcome, Report, Trouble, Verdict,
    Waiting,
    ownership::{Claim, keeper_by_id, keeper_by_name},
    status::{self, Pass},
};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::PartialObjectMeta,
    runtime::{
        PredicateConfig, WatchStreamExt as _,
        controller::{self, Action, Controller},
        events::EventType,
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    Shared, drive,
    memory::Memory,
    no_error,
    pace::{spread, until},
    pass::{self, About, Ending, Target},
    planes::{Plane, PlaneName, Standing},
    record::{has_finalizer, mark, publish, set_finalizer, writes},
    trigger,
    wake::{Wake, requested},
    watch,
};
use crate::cluster::Cluster;

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
        .predicate_filter(trigger::of::<K::Manifest>(), PredicateConfig::default());
    shared.metrics.show(manifests.clone(), |it| it.status().map_or(&[], |it| it.conditions.as_slice()));
    let context = Arc::new(Context::<K> { shared: Arc::clone(&shared), manifests: manifests.clone() });
    let [of_planes, of_organizations, of_groups, of_secrets] = std::array::from_fn(|_| manifests.clone());
    let [by_planes, by_organizations, by_groups] = std::array::from_fn(|_| Arc::clone(&shared.memory));
    let controller = Controller::for_stream(changes, manifests)
        .reconcile_on(shared.planes.changes().flat_map(move |changed| {
            let belongs =
                move |it: &K::Manifest| changed.as_ref().is_none_or(|it_is| *it_is == plane_of::<K>(it));
            futures::stream::iter(woken::<K>(&of_planes, &by_planes, belongs))
        }))
        // What waits for an organization or a group goes on when one changes.
        .watches(
            shared.api::<PartialObjectMeta<api::CoderOrganization>>(),
            watcher::Config::default(),
            move |it| waiting::<K>(&of_organizations, &by_organizations, it.metadata.namespace.as_deref()),
        )
        .watches(shared.api::<PartialObjectMeta<api::CoderGroup>>(), watcher::Config::default(), move |it| {
            waiting::<K>(&of_groups, &by_groups, it.metadata.namespace.as_deref())
        })
        .graceful_shutdown_on(shared.stop.clone().cancelled_owned());
    let controller = if K::HAS_SECRETS {
        // No event that lists have to be read again for: every reconcile reads the Secret, and a value in it that is new
        // to us is proved by coderd itself.
        controller.watches(shared.api::<PartialObjectMeta<Secret>>(), watcher::Config::default(), move |it| {
            let (namespace, name) = (it.namespace(), it.name_any());
            those::<K>(&of_secrets, |it| it.namespace() == namespace && K::refers_to_secret(it, &name))
        })
    } else {
        controller
    };
    let controller = controller.run(
        |object, context: Arc<Context<K>>| {
            let (plane, objects) = (Some(plane_of::<K>(&object)), context.manifests.clone());
            let target = Target { object, objects, plane };
            pass::over(Arc::clone(&context.shared), target, |it, wake| reconcile::<K>(it, wake, context))
        },
        no_error,
        context,
    );
    let passes = controller.inspect(|pass| {
        if let Err(controller::Error::ObjectNotFound(gone)) = pass {
            let namespace = gone.namespace.as_deref().unwrap_or_default();
            shared.memory.forget(K::Manifest::kind(&()), namespace, &gone.name);
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

/// The manifests of a namespace that wait for something that they refer to.
fn waiting<K: Kind>(
    manifests: &Store<K::Manifest>,
    memory: &Memory,
    namespace: Option<&str>,
) -> Vec<ObjectRef<K::Manifest>> {
    woken::<K>(manifests, memory, |it| {
        let conditions = it.status().map_or(&[][..], |it| &it.conditions);
        it.meta().namespace.as_deref() == namespace && trigger::waits_for_reference(conditions)
    })
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
    let deletes = manifest.policy().deletion_policy() == DeletionPolicy::Delete;
    if deletes && !has_finalizer(&manifest, finalizer::FINALIZER) {
        set_finalizer(&manifest, finalizer::FINALIZER, true, shared).await?;
        return Ok(Action::await_change());
    }
    if let Some(first) = status::begun(manifest.status(), manifest.meta().generation, Timestamp::now()) {
        let written = write_status(&manifest, first, &Map::new(), shared).await?;
        wake = wake.of_written(&manifest, &written);
        manifest = written;
    }
    let mut object = Object::<K>::new(manifest);
    let name = plane_of::<K>(&object.manifest);
    let (assessment, report) = match shared.planes.standing(&name) {
        Some(Standing::Usable(plane)) => pass(&mut object, &plane, &wake, &context).await?,
        Some(Standing::Blocked(why)) => (None, not_ready(&name, why)),
        None => match Cluster(shared.client.clone()).control_plane(&name.0, &name.1).await {
            Ok(None) => (None, not_declared(&name)),
            // Nobody has looked at it since we started; whoever does will tell.
            Ok(Some(_)) | Err(_) => return Ok(Action::requeue(SAFETY_NET)),
        },
    };
    let has_read = assessment.is_some() && !matches!(report.outcome, Outcome::Failed(_));
    let about = About::of(&object.manifest);
    let again = conclude(&object, assessment, report, started, &context).await?;
    if has_read {
        shared.memory.answered(&about, &wake);
    }
    Ok(again)
}

/// Tells what became of an object, and says when it is looked at again.
async fn conclude<K: Kind>(
    object: &Object<K>,
    assessment: Option<Assessment>,
    report: Report,
    started: Instant,
    context: &Context<K>,
) -> Result<Action, kube::Error> {
    let shared = &context.shared;
    let (manifest, about) = (&object.manifest, About::of(&object.manifest));
    let next = next_status(object, assessment.as_ref(), &report);
    // First of all: what was made is ours once that is written.
    let Aside { status: aside, again_at } =
        assessment.as_ref().map(|it| it.aside.clone()).unwrap_or_default();
    let written = write_status(manifest, next, &aside, shared).await;
    tell(object, assessment.as_ref(), &report, shared).await;
    if let Some(assessment) = &assessment {
        shared.metrics.steps(&about.kind, &assessment.plan, report.done);
    }
    written?;
    let empty = engine::Plan::<()>::empty().view("");
    let plan = assessment.as_ref().map_or(&empty, |it| &it.plan);
    ended(&about, &report.outcome, &status::message(&report.outcome, plan), started.elapsed(), shared);
    if let Outcome::Failed(trouble) = &report.outcome {
        let wanted = if let Trouble::Remote(error) = trouble { error.retry_after() } else { None };
        return Ok(Action::requeue(shared.memory.after_failure(&about, wanted)));
    }
    shared.memory.succeeded(&about);
    let interval = spread(manifest.policy().interval(), &about.uid);
    let waits = matches!(report.outcome, Outcome::Waiting(_));
    let interval = if waits { interval.min(SAFETY_NET) } else { interval };
    Ok(Action::requeue(again_at.map_or(interval, |it| interval.min(until(it, Timestamp::now())))))
}

/// Counts a pass and tells how it ended.
fn ended(about: &About, outcome: &Outcome, message: &str, took: Duration, shared: &Shared) {
    let is_trouble = matches!(outcome, Outcome::Failed(_) | Outcome::Refused(_) | Outcome::Invalid(_));
    let ending = Ending { reason: outcome.reason(), message, is_ready: outcome.is_ready(), is_trouble };
    shared.passes.ended(about, ending, took);
}

/// The stages. A write, and a first claim that all is well, are decided once more on reads of this very reconcile, unless
/// those before them were.
async fn pass<K: Kind>(
    object: &mut Object<K>,
    plane: &Plane,
    wake: &Wake,
    context: &Context<K>,
) -> Result<(Option<Assessment>, Report), kube::Error> {
    let (mine, same_words, others) = claims::<K>(&object.manifest, &context.manifests);
    if let Some(keeper) = keeper_by_name(&mine, &same_words) {
        return Ok((None, kept_by(keeper)));
    }
    let mut assessment = object.assess(&plane.world(wake.need()), Door::Controller).await;
    let id = assessment.id.map(|it| it.to_string());
    if let Some(keeper) = id.and_then(|id| keeper_by_id(&id, &mine, &others)) {
        return Ok((None, kept_by(keeper)));
    }
    let world = plane.world(wake.need_to_write());
    let was_ready = is_ready(&object.manifest);
    let adopts = is_first_contact(&assessment) && object.manifest.policy().mode() == Mode::Enforce;
    if is_to_apply(&assessment) {
        if let Some(quarrel) = quarrel::<K>(object, &assessment, context) {
            return Ok((Some(assessment), waits(quarrel)));
        }
        assessment = object.assess(&world, Door::Controller).await;
    } else if wake.is_too_old_for(was_ready && !adopts, is_equal(&assessment)) {
        assessment = object.assess(&world, Door::Controller).await;
    }
    let creating = object.manifest.status().and_then(|it| it.creating.as_ref());
    if is_to_apply(&assessment) && assessment.rest.is_some() && assessment.rest.as_ref() != creating {
        // Before it is made: should the answer be lost, what came of it is known to be ours.
        let fields = json!({"creating": assessment.rest});
        let marked = mark(&object.manifest, &fields, &context.shared).await?;
        // Everything else stays as it was assessed.
        object.manifest.meta_mut().resource_version = marked.resource_version();
        if let Some(status) = marked.status() {
            object.manifest.set_status(status.clone());
        }
    }
    let report = object.carry_out(&assessment, &world).await;
    if K::HAS_SECRETS && is_to_apply(&assessment) {
        // It has written into the status itself, and knows more of itself by now.
        object.manifest = with_status_as_it_is(&object.manifest, &context.shared).await?;
        assessment.aside = object.assess(&world, Door::Controller).await.aside;
    }
    if report.done > 0 {
        let mut done = assessment.plan.clone();
        done.steps.truncate(report.done);
        let (manifest, now) = (&object.manifest, Timestamp::now());
        context.shared.memory.with(&About::of(manifest), |it| {
            it.mended.record(manifest.meta().generation, &done, now);
        });
    }
    Ok((Some(assessment), report))
}

fn is_to_apply(assessment: &Assessment) -> bool {
    matches!(assessment.verdict, Verdict::Decided(Decision::Apply))
}

/// Whether something is about to become ours by being equal: then it is what is there now that has to be.
fn is_first_contact(assessment: &Assessment) -> bool {
    assessment.contact == Some(Contact::Foreign) && is_equal(assessment)
}

fn is_equal(assessment: &Assessment) -> bool {
    matches!(assessment.verdict, Verdict::Decided(Decision::Nothing))
}

/// Whether the status says `Ready=True`.
fn is_ready(manifest: &impl AppState) -> bool {
    let conditions = manifest.status().map_or(&[][..], |it| &it.conditions);
    trigger::is_ready(conditions)
}

/// Whether somebody else keeps undoing what this plan would do.
fn quarrel<K: Kind>(object: &Object<K>, assessment: &Assessment, context: &Context<K>) -> Option<Waiting> {
    let (manifest, now) = (&object.manifest, Timestamp::now());
    context.shared.memory.with(&About::of(manifest), |it| {
        it.mended.contended(manifest.meta().generation, &assessment.plan, now)
    })
}

/// What this manifest claims; what others claim in the same words; and what others claim at all.
fn claims<K: Kind>(
    manifest: &K::Manifest,
    manifests: &Store<K::Manifest>,
) -> (Claim, Vec<Claim>, Vec<Claim>) {
    let claim = |it: &K::Manifest| Claim {
        name: it.name_any(),
        uid: it.uid().unwrap_or_default(),
        created: it.creation_timestamp().map_or(0, |it| it.0.as_second()),
        held: it.status().and_then(|it| it.id.clone()),
    };
    let (plane, target) = (plane_of::<K>(manifest), K::target(manifest).to_lowercase());
    let others = manifests.state().into_iter();
    let others = others.filter(|it| it.uid() != manifest.uid() && plane_of::<K>(it) == plane);
    let (mut same_words, mut all) = (Vec::new(), Vec::new());
    for other in others {
        if K::target(&other).to_lowercase() == target {
            same_words.push(claim(&other));
        }
        all.push(claim(&other));
    }
    (claim(manifest), same_words, all)
}

fn kept_by(keeper: &Claim) -> Report {
    let message = format!("{} declares the same object and keeps it: delete one of the two", keeper.name);
    waits(Waiting { reason: reason::HELD_BY_OTHER, message })
}

fn not_declared((_, name): &PlaneName) -> Report {
    let message = format!("there is no control plane {name} in this namespace: create it");
    waits(Waiting { reason: reason::CONTROL_PLANE_NOT_FOUND, message })
}

fn not_ready((_, name): &PlaneName, why: &str) -> Report {
    let message = format!("control plane {name} cannot be used: {why}; its own status says more");
    waits(Waiting { reason: reason::CONTROL_PLANE_NOT_READY, message })
}

fn waits(waiting: Waiting) -> Report {
    Report { outcome: Outcome::Waiting(waiting), id: None, done: 0 }
}

fn next_status<K: Kind>(object: &Object<K>, assessment: Option<&Assessment>, report: &Report) -> Status {
    let empty = engine::Plan::<()>::empty().view("");
    let (target, asked) = (K::target(&object.manifest), requested(&object.manifest));
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
    status::next(object.manifest.status(), &pass)
}

/// Writes the status, if it is another one, and gives back the object as it is then.
async fn write_status<M: AppState>(
    manifest: &M,
    next: Status,
    aside: &Map<String, Value>,
    shared: &Shared,
) -> Result<M, kube::Error> {
    if aside.is_empty() && manifest.status() == Some(&next) {
        return Ok(manifest.clone());
    }
    let mut written = edited(manifest, |status| {
        for (field, value) in aside {
            status[field] = value.clone();
        }
        if let Value::Object(fields) = status {
            fields.retain(|_, it| !it.is_null());
        }
    })?;
    if next.id.is_some() && next.id != manifest.status().and_then(|it| it.id.clone()) {
        // What we have just taken or made is ours from now on: the id goes first.
        let marked = mark(manifest, &json!({"id": next.id}), shared).await?;
        written.meta_mut().resource_version = version_to_write(manifest, &marked)?;
    }
    written.set_status(next);
    // With the version that was read: of two writers one is refused and looks again.
    let objects = Api::<M>::namespaced(shared.client.clone(), &written.namespace().unwrap_or_default());
    objects.replace_status(&written.name_any(), &writes(), &written).await
}

/// The version on which the whole status is written after its id. Where somebody else has written the status meanwhile it is
/// the version that was read, so that the write is refused.
fn version_to_write<M: AppState>(read: &M, marked: &M) -> Result<Option<String>, kube::Error> {
    let without_id = |it: &M| {
        let mut status = serde_json::to_value(it).map_err(kube::Error::SerdeError)?["status"].take();
        status.as_object_mut().map(|it| it.remove("id"));
        Ok::<Value, kube::Error>(status)
    };
    let is_same = without_id(read)? == without_id(marked)?;
    Ok(if is_same { marked } else { read }.resource_version())
}

/// The manifest with its status, and the version of that, as they are by now. Everything else stays as it was assessed.
async fn with_status_as_it_is<M: AppState>(manifest: &M, shared: &Shared) -> Result<M, kube::Error> {
    let objects = Api::<M>::namespaced(shared.client.clone(), &manifest.namespace().unwrap_or_default());
    let now = objects.get(&manifest.name_any()).await?;
    let version = now.resource_version().filter(|_| now.uid() == manifest.uid());
    let now = serde_json::to_value(now).map_err(kube::Error::SerdeError)?;
    let mut known = edited(manifest, |status| *status = now["status"].clone())?;
    // Another object of the same name is none of ours: nothing of this is written to it.
    known.meta_mut().resource_version = version.or_else(|| manifest.resource_version());
    Ok(known)
}

/// The manifest with another status.
fn edited<M: AppState>(manifest: &M, edit: impl FnOnce(&mut Value)) -> Result<M, kube::Error> {
    let mut json = serde_json::to_value(manifest).map_err(kube::Error::SerdeError)?;
    edit(&mut json["status"]);
    serde_json::from_value(json).map_err(kube::Error::SerdeError)
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
        let fields = if fields.is_empty() { K::target(&object.manifest) } else { fields.join(", ") };
        let note = format!("{}: {fields}", step.reason);
        // `Created`, `Updated`, `Deleted`.
        let reason = format!("{:?}d", step.action);
        let action = format!("{:?}", step.action);
        tracing::info!(action, "{note}");
        publish(&object.manifest, EventType::Normal, (&reason, &action), &note, shared).await;
    }
}

#[cfg(test)]
mod tests {
    use api::CoderProvisionerKey;

    use super::*;

    #[test]
    fn whole_status_is_written_only_over_the_status_that_was_read() {
        let key = |version: &str, status: Value| -> CoderProvisionerKey {
            serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisionerKey",
                "metadata": {"name": "alpha", "resourceVersion": version},
                "spec": {"controlPlaneRef": {"name": "main"}}, "status": status}))
            .unwrap()
        };
        let read = key("1", json!({"keyEpoch": 1}));
        let version = |marked| version_to_write(&read, &marked).unwrap().unwrap();
        assert_eq!(version(key("2", json!({"keyEpoch": 1, "id": "x"}))), "2");
        assert_eq!(version(key("3", json!({"keyEpoch": 2, "id": "x"}))), "1", "the write is refused");
    }
}
