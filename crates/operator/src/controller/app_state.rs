//! The controller of app-state kinds: the engine's stages around a manifest in a cluster.

pub(super) mod apply;
mod claims;
mod deletion;
mod record_status;

use std::{marker::PhantomData, sync::Arc, time::Duration};

use api::{AppState, Reason, Status, finalizer};
use engine::{
    Aside, Assessment, Blocked, Kind, Object, Outcome, Ref, Report, Trouble,
    pipeline::{
        cleanup::Cleanup,
        ledger::{Leaves, Ledger},
        plan::{Action, StepView},
        status::{self, StatusInput},
    },
    ports::ClusterError,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Map, Value};
use uuid::Uuid;

use self::record_status::write_status;
use super::{
    Shared,
    driver::{Done, Driven, Driver, Next, SAFETY_NET},
    reconcile::Ending,
    record::{publish, words_of},
    wake::{Wake, requested},
};
use crate::{
    controller::driver::deletion::{Deletion, Taken, Waiting},
    index::{Holding, Target},
    planes::{Plane, PlaneName, Standing},
};

/// An app-state kind.
#[derive(Debug)]
pub(super) struct OfKind<K>(PhantomData<K>);

impl<K> Default for OfKind<K> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<K: Kind> Driven for OfKind<K> {
    type Manifest = K::Manifest;

    const FINALIZER: &'static str = finalizer::FINALIZER;

    fn conditions(manifest: &K::Manifest) -> &[Condition] {
        manifest.status().map_or(&[], |it| it.conditions.as_slice())
    }

    fn holding(manifest: &K::Manifest) -> Holding {
        let status = manifest.status()?;
        Some((status.id.clone()?, status.remote_deployment_id.clone()))
    }

    fn plane(manifest: &K::Manifest) -> Option<PlaneName> {
        Some(plane_of::<K>(manifest))
    }

    fn refs(manifest: &K::Manifest) -> Vec<Ref> {
        K::refs(manifest)
    }

    fn is_suspended(manifest: &K::Manifest) -> bool {
        manifest.policy().is_suspended()
    }

    fn interval(manifest: &K::Manifest) -> Duration {
        manifest.policy().interval()
    }

    fn ledger(manifest: &K::Manifest) -> Ledger {
        K::ledger(manifest)
    }

    fn leaves(manifest: &K::Manifest) -> Leaves {
        Leaves::of(&manifest.policy())
    }

    async fn suspend(driver: &Driver<Self>, manifest: &K::Manifest) -> Result<(), ClusterError> {
        suspend::<K>(manifest, &driver.shared).await
    }

    async fn reconcile(
        driver: &Driver<Self>,
        manifest: K::Manifest,
        wake: &Wake,
    ) -> Result<Option<Done<K::Manifest>>, ClusterError> {
        let (shared, name) = (&driver.shared, plane_of::<K>(&manifest));
        let reached = match shared.planes.standing(&name) {
            Some(Standing::Usable(plane)) => Ok(plane),
            Some(Standing::Blocked(why)) => Err((None, not_ready(&name, why))),
            None => {
                if !matches!(shared.control_plane(&name).await, Ok(None)) {
                    // The control plane was not reconciled since we started; its first reconcile wakes this object.
                    if let Some((first, aside)) = apply::first_status::<K>(&manifest) {
                        write_status(&manifest, first, &aside, shared).await?;
                    }
                    return Ok(None);
                }
                Err((None, not_declared(&name)))
            }
        };
        reconcile::<K, Self>(driver, manifest, reached, wake).await.map(Some)
    }

    async fn take_back(
        driver: &Driver<Self>,
        manifest: &mut K::Manifest,
        deletion: &Deletion<'_>,
        cleanup: &mut Cleanup,
    ) -> Result<Taken, ClusterError> {
        Ok(deletion::take_back(driver, manifest, deletion, cleanup).await)
    }

    async fn report_deletion(
        driver: &Driver<Self>,
        manifest: &K::Manifest,
        waiting: &Waiting,
    ) -> Result<(), ClusterError> {
        report_deletion::<K>(manifest, waiting, Map::new(), &driver.shared).await
    }
}

/// Reconciles a manifest with the deployment of its control plane, or reports why that cannot be used.
pub(super) async fn reconcile<K: Kind, D: Driven<Manifest = K::Manifest>>(
    driver: &Driver<D>,
    manifest: K::Manifest,
    reached: Result<Arc<Plane>, (Option<Aside>, Outcome)>,
    wake: &Wake,
) -> Result<Done<K::Manifest>, ClusterError> {
    let mut object = Object::<K>::new(manifest);
    let (deployment, compared) = match reached {
        Ok(plane) => {
            let compared = Box::pin(apply::compare_and_apply(&mut object, &plane, wake, driver)).await?;
            (Some(plane.deployment()), compared)
        }
        Err((aside, outcome)) => {
            (None, Compared { aside, report: Report::of(outcome, None), ..Compared::default() })
        }
    };
    conclude(&object, deployment, compared, &driver.shared).await
}

/// Writes the status of a suspended manifest.
pub(super) async fn suspend<K: Kind>(manifest: &K::Manifest, shared: &Shared) -> Result<(), ClusterError> {
    let message = "suspended: nothing is read or changed".to_owned();
    let outcome = Outcome::Blocked(Blocked { reason: Reason::Suspended, message });
    let Aside { status: fields, facts, .. } = K::conclude(manifest, None, None, &outcome);
    let generation = manifest.meta().generation;
    let next = status::suspended(manifest.status(), generation, &facts, Timestamp::now());
    write_status(manifest, next, &fields, shared).await.map(drop)
}

/// Writes the status of a manifest whose deletion waits. `fields` are those that only the kind has.
pub(super) async fn report_deletion<K: Kind>(
    manifest: &K::Manifest,
    waiting: &Waiting,
    mut fields: Map<String, Value>,
    shared: &Shared,
) -> Result<(), ClusterError> {
    let (object, report) = (Object::<K>::new(manifest.clone()), waits(waiting.why.clone()));
    let aside = object.conclude(None, &report);
    fields.extend(aside.status.clone());
    let next = next_status(&object, None, None, (&report, &aside));
    write_status(manifest, next, &fields, shared).await.map(drop)
}

/// Announces the object of a manifest that was created, changed, adopted or deleted.
fn announce<K: Kind>(manifest: &K::Manifest, steps: &[StepView], report: &Report, shared: &Shared) {
    let known = manifest.status().and_then(|it| it.id.as_deref());
    let is_new = report.id.is_some_and(|it| known != Some(it.to_string().as_str()));
    if report.done == 0 && !is_new {
        return;
    }
    // Another manifest may take what this one has released.
    shared.index.rival_changed(&K::Manifest::kind(&()), manifest.uid().as_deref());
    let Some(name) = K::provides(manifest) else { return };
    let plane = plane_of::<K>(manifest);
    let renames =
        |it: &StepView| it.action == Action::Update && it.changes.iter().any(|it| it.field == K::NAME_FIELD);
    if steps.iter().any(renames) {
        // Those who refer to the name that it had are concerned, too.
        shared.index.changed(&Target::remote(&plane, &name));
    } else {
        shared.index.remote_changed(&plane, &name);
    }
}

fn plane_of<K: Kind>(manifest: &K::Manifest) -> PlaneName {
    (manifest.namespace().unwrap_or_default(), manifest.control_plane().to_owned())
}

/// What became of an object.
pub(super) struct Compared {
    /// `None` where the object was not compared.
    pub(super) assessment: Option<Assessment>,
    /// What the kind tells of itself, where the object was not compared.
    aside: Option<Aside>,
    pub(super) report: Report,
    /// The steps that were done, where they are reported one by one.
    steps: Vec<StepView>,
    /// Whether steps, or the intents before them, were written into the status.
    has_written: bool,
}

impl Compared {
    fn of(assessment: Assessment) -> Self {
        Self { assessment: Some(assessment), ..Self::default() }
    }
}

impl Compared {
    /// The same, with what was done before in the same reconcile.
    fn after(mut self, before: Self) -> Self {
        let Self { report: earlier, mut steps, has_written, .. } = before;
        steps.append(&mut self.steps);
        let Report { done, recorded, refused, retry, .. } = earlier;
        let report = &mut self.report;
        report.done += done;
        report.retry = report.retry.take().or(retry);
        report.recorded = recorded.into_iter().chain(std::mem::take(&mut report.recorded)).collect();
        report.refused.extend(refused);
        Self { steps, has_written: has_written || self.has_written, ..self }
    }
}

impl Default for Compared {
    fn default() -> Self {
        let report = Report::of(Outcome::Equal, None);
        Self { assessment: None, aside: None, report, steps: Vec::new(), has_written: false }
    }
}

/// Reports what became of an object.
async fn conclude<K: Kind>(
    object: &Object<K>,
    deployment: Option<Uuid>,
    compared: Compared,
    shared: &Shared,
) -> Result<Done<K::Manifest>, ClusterError> {
    let Compared { assessment, aside, report, steps, .. } = compared;
    let manifest = &object.manifest;
    let aside = object.conclude(assessment.as_ref().map(|it| it.aside.clone()).or(aside), &report);
    let mut fields = aside.status.clone();
    fields.extend(report.recorded.clone());
    if let Outcome::Failed(Trouble::Cluster(error)) = &report.outcome {
        // What is known of the keys is written, whatever is wrong with the cluster.
        if let Some(known) = manifest.status().cloned().filter(|_| report.done > 0) {
            write_status(manifest, known, &fields, shared).await.ok();
        }
        return Err(error.clone());
    }
    if let Some(retry) = report.retry.clone().filter(|_| !K::OWNS_OBJECTS) {
        let Blocked { reason, message } = retry.into_blocked();
        tracing::warn!(%reason, "a step of upkeep failed and is tried again: {message}");
    }
    let next = next_status(object, deployment, assessment.as_ref(), (&report, &aside));
    let drifts = manifest.status().is_none_or(|it| it.drift != next.drift);
    let Aside { along, again_at, within, .. } = aside;
    if !fields.is_empty() || manifest.status() != Some(&next) {
        fields.extend(along);
    }
    // First of all: what was made is ours once that is written.
    let written = write_status(manifest, next, &fields, shared).await;
    announce::<K>(manifest, &steps, &report, shared);
    if let Some(assessment) = assessment.as_ref().filter(|it| it.is_to_apply() && report.done > 0 || drifts) {
        tell_drift(manifest, assessment, shared).await;
    }
    if !K::OWNS_OBJECTS {
        // Objects of the cluster are reported step by step.
        tell(object, &steps, shared).await;
    }
    let empty = engine::PlanView::empty();
    let plan = assessment.as_ref().map_or(&empty, |it| &it.plan);
    let message = status::message(&report.outcome, plan);
    let interval = manifest.policy().interval();
    let next = match &report.outcome {
        Outcome::Failed(Trouble::Remote(error)) => Next::Retry { wanted: error.retry_after(), at_most: None },
        Outcome::Failed(_) => Next::Retry { wanted: None, at_most: None },
        _ if report.retry.is_some() => Next::Retry { wanted: retry_after(&report), at_most: Some(interval) },
        // No watch shows daemons that connect, or that a Secret can be read or written again.
        Outcome::Blocked(waiting)
            if is_unread(&report.outcome) || K::OWNS_OBJECTS && is_soon(waiting, &report) =>
        {
            Next::Retry { wanted: None, at_most: Some(interval) }
        }
        _ if within.is_some() => Next::Periodic { within, at: again_at },
        // The next round.
        outcome if outcome.goes_on(report.done) => {
            Next::Periodic { within: Some(Duration::ZERO), at: again_at }
        }
        // Only its author can help: the interval is soon enough.
        Outcome::Blocked(blocked) if blocked.reason == Reason::Invalid => {
            Next::Periodic { within: None, at: again_at }
        }
        Outcome::Unsupported(_) => Next::Periodic { within: Some(SAFETY_NET), at: again_at },
        Outcome::Blocked(waiting) => {
            let within = waiting.reason.polled_every().unwrap_or(SAFETY_NET);
            Next::Periodic { within: Some(within), at: again_at }
        }
        _ => Next::Periodic { within: None, at: again_at },
    };
    Ok(Done {
        manifest: written?,
        ending: ending::<K>(&report.outcome, message),
        next,
        is_answered: assessment.is_some()
            && report.retry.is_none()
            && !is_unread(&report.outcome)
            && !matches!(report.outcome, Outcome::Failed(_)),
    })
}

/// How a reconcile ended, for those who count and those who read.
fn ending<K: Kind>(outcome: &Outcome, message: String) -> Ending {
    let is_trouble = matches!(outcome, Outcome::Failed(_) | Outcome::Refused(_) | Outcome::Invalid(_))
        || stalls::<K>(outcome);
    Ending { reason: outcome.reason(), message, is_ready: outcome.is_ready(), is_trouble }
}

/// Whether only a person can bring an object of the cluster forward.
fn stalls<K: Kind>(outcome: &Outcome) -> bool {
    K::OWNS_OBJECTS
        && matches!(outcome, Outcome::Blocked(_) | Outcome::Failed(_))
        && outcome.reason().stalls()
}

/// Whether a Secret could not be read this time.
fn is_unread(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Blocked(it) if it.reason == Reason::SecretUnreadable)
}

/// Whether what an object of the cluster waits for comes soon.
fn is_soon(waiting: &Blocked, report: &Report) -> bool {
    let has_failed = report.condition.is_some() && !waiting.reason.stalls();
    has_failed && waiting.reason != Reason::NotApplied
        || [Reason::DaemonsNotSeen, Reason::Progressing].contains(&waiting.reason)
}

/// When coderd wants to be asked again.
fn retry_after(report: &Report) -> Option<Duration> {
    if let Some(Trouble::Remote(error)) = &report.retry { error.retry_after() } else { None }
}

fn not_declared((_, name): &PlaneName) -> Outcome {
    let message = format!("there is no control plane {name} in this namespace: create it");
    Outcome::Blocked(Blocked { reason: Reason::ControlPlaneNotFound, message })
}

fn not_ready((_, name): &PlaneName, why: Reason) -> Outcome {
    let message = format!("control plane {name} cannot be used: {why}; see its status");
    Outcome::Blocked(Blocked { reason: Reason::ControlPlaneNotReady, message })
}

fn waits(waiting: Blocked) -> Report {
    Report::of(Outcome::Blocked(waiting), None)
}

fn next_status<K: Kind>(
    object: &Object<K>,
    deployment: Option<Uuid>,
    assessment: Option<&Assessment>,
    (report, aside): (&Report, &Aside),
) -> Status {
    let empty = engine::PlanView::empty();
    let (target, asked) = (K::target(&object.manifest), requested(&object.manifest));
    let input = StatusInput {
        generation: object.manifest.meta().generation,
        contact: assessment.and_then(|it| it.contact),
        plan: assessment.map_or(&empty, |it| &it.plan),
        target: &target,
        outcome: &report.outcome,
        unsupported: assessment.and_then(|it| it.unsupported.as_ref()),
        attributions: assessment.map_or(&[], |it| &it.attributions),
        own_changes: aside.own_changes,
        facts: &aside.facts,
        stalls: stalls::<K>(&report.outcome),
        ready: aside.ready.as_deref(),
        id: report.id.as_ref().map(Uuid::to_string),
        deployment,
        changed: report.done > 0,
        requested: asked.as_deref(),
        now: Timestamp::now(),
    };
    status::next(object.manifest.status(), &input)
}

/// An Event for drift: who changed which field in Coder, and when.
async fn tell_drift<M: AppState>(manifest: &M, assessment: &Assessment, shared: &Shared) {
    let lines = status::drift_lines(&assessment.plan, &assessment.attributions);
    if !lines.is_empty() {
        publish(manifest, false, (Reason::DriftFound, "Compare"), &lines.join(", "), shared).await;
    }
}

/// Events for what was changed, field by field; none when nothing was.
async fn tell<K: Kind>(object: &Object<K>, steps: &[StepView], shared: &Shared) {
    for step in steps {
        let fields: Vec<String> = step.changes.iter().map(status::line).collect();
        let fields = if fields.is_empty() { K::target(&object.manifest) } else { fields.join(", ") };
        let note = format!("{}: {fields}", step.reason);
        publish(&object.manifest, false, words_of(step.action), &note, shared).await;
    }
}
