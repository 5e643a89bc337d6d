//! The controller of app-state kinds: the engine's stages around a manifest in a cluster.

mod apply;
mod claims;
mod deletion;
mod record_status;

use std::{marker::PhantomData, sync::Arc, time::Duration};

use api::{AppState, Reason, Status, finalizer};
use engine::{
    Aside, Assessment, Blocked, Kind, Object, Outcome, RemoteName, Report, Trouble,
    pipeline::{
        cleanup::Cleanup,
        ledger::{Leaves, Ledger},
        status::{self, StatusInput},
    },
    ports::ClusterError,
};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource as _, ResourceExt as _, runtime::controller::Controller};
use serde_json::Map;
use uuid::Uuid;

use self::record_status::write_status;
use super::{
    Shared,
    about::About,
    driver::{Done, Driven, Driver, Next, SAFETY_NET},
    reconcile::Ending,
    record::{publish, words_of},
    wake::{Wake, requested},
};
use crate::{
    controller::driver::deletion::{Deletion, Taken, Waiting},
    planes::{PlaneName, Standing},
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
    const OWNS_OBJECTS: bool = false;
    const HAS_SECRETS: bool = K::HAS_SECRETS || K::REFERS_TO_SECRETS;

    fn conditions(manifest: &K::Manifest) -> &[Condition] {
        manifest.status().map_or(&[], |it| it.conditions.as_slice())
    }

    fn plane(manifest: &K::Manifest) -> Option<PlaneName> {
        Some(plane_of::<K>(manifest))
    }

    fn refs(manifest: &K::Manifest) -> Vec<RemoteName> {
        K::refs(manifest)
    }

    fn refers_to_secret(manifest: &K::Manifest, secret: &str) -> bool {
        K::refers_to_secret(manifest, secret)
    }

    fn is_suspended(manifest: &K::Manifest) -> bool {
        manifest.policy().is_suspended()
    }

    fn watch(driver: &Arc<Driver<Self>>, controller: Controller<K::Manifest>) -> Controller<K::Manifest> {
        if !K::REFERS_TO_CONFIG_MAPS {
            return controller;
        }
        let driver = Arc::clone(driver);
        controller.reconcile_on(driver.shared.config_maps.changes().flat_map(move |changed| {
            let is_concerned = |it: &K::Manifest| {
                changed.as_ref().is_none_or(|(namespace, name)| {
                    it.namespace().as_ref() == Some(namespace) && K::refers_to_config_map(it, name)
                })
            };
            futures::stream::iter(driver.those(is_concerned))
        }))
    }

    fn interval(manifest: &K::Manifest) -> Duration {
        manifest.policy().interval()
    }

    fn ledger(manifest: &K::Manifest) -> Ledger {
        K::ledger(manifest)
    }

    fn leaves(manifest: &K::Manifest) -> Leaves {
        Leaves::of(manifest.policy())
    }

    async fn suspend(driver: &Driver<Self>, manifest: &K::Manifest) -> Result<(), ClusterError> {
        let next = status::suspended(manifest.status(), manifest.meta().generation, Timestamp::now());
        write_status(manifest, next, &Map::new(), &driver.shared).await.map(drop)
    }

    async fn reconcile(
        driver: &Driver<Self>,
        manifest: K::Manifest,
        wake: &Wake,
    ) -> Result<Option<Done<K::Manifest>>, ClusterError> {
        let shared = &driver.shared;
        let mut object = Object::<K>::new(manifest);
        let name = plane_of::<K>(&object.manifest);
        let mut deployment = None;
        let (assessment, report) = match shared.planes.standing(&name) {
            Some(Standing::Usable(plane)) => {
                deployment = Some(plane.deployment());
                Box::pin(apply::compare_and_apply(&mut object, &plane, wake, driver)).await?
            }
            Some(Standing::Blocked(why)) => (None, not_ready(&name, why)),
            None => {
                if !matches!(shared.control_plane(&name).await, Ok(None)) {
                    // The control plane was not reconciled since we started; its first reconcile wakes this object.
                    if let Some(first) = apply::first_status(&object.manifest) {
                        write_status(&object.manifest, first, &Map::new(), shared).await?;
                    }
                    return Ok(None);
                }
                (None, not_declared(&name))
            }
        };
        conclude(&object, deployment, (assessment, report), shared).await.map(Some)
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
        let next = next_status(&Object::<K>::new(manifest.clone()), None, None, &waits(waiting.why.clone()));
        write_status(manifest, next, &Map::new(), &driver.shared).await.map(drop)
    }
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

/// Reports what became of an object.
async fn conclude<K: Kind>(
    object: &Object<K>,
    deployment: Option<Uuid>,
    (assessment, report): (Option<Assessment>, Report),
    shared: &Shared,
) -> Result<Done<K::Manifest>, ClusterError> {
    let (manifest, about) = (&object.manifest, About::of(&object.manifest));
    let next = next_status(object, deployment, assessment.as_ref(), &report);
    let drifts = manifest.status().is_none_or(|it| it.drift != next.drift);
    // First of all: what was made is ours once that is written.
    let Aside { status: mut aside, again_at, .. } =
        assessment.as_ref().map(|it| it.aside.clone()).unwrap_or_default();
    aside.extend(report.recorded.clone());
    let written = write_status(manifest, next, &aside, shared).await;
    announce::<K>(manifest, &report, shared);
    if let Some(assessment) = assessment.as_ref().filter(|_| report.done > 0 || drifts) {
        tell_drift(manifest, assessment, shared).await;
    }
    tell(object, assessment.as_ref(), &report, shared).await;
    if let Some(assessment) = &assessment {
        shared.metrics.steps(&about.kind, &assessment.plan, report.done);
    }
    let empty = engine::Plan::<()>::empty().view("");
    let plan = assessment.as_ref().map_or(&empty, |it| &it.plan);
    let message = status::message(&report.outcome, plan);
    let next = match &report.outcome {
        Outcome::Failed(Trouble::Remote(error)) => Next::Retry { wanted: error.retry_after(), at_most: None },
        Outcome::Failed(_) => Next::Retry { wanted: None, at_most: None },
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
        ending: ending(&report.outcome, message),
        next,
        is_answered: assessment.is_some() && !matches!(report.outcome, Outcome::Failed(_)),
    })
}

/// How a reconcile ended, for those who count and those who read.
fn ending(outcome: &Outcome, message: String) -> Ending {
    let is_trouble = matches!(outcome, Outcome::Failed(_) | Outcome::Refused(_) | Outcome::Invalid(_));
    Ending { reason: outcome.reason(), message, is_ready: outcome.is_ready(), is_trouble }
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
    Report::of(Outcome::Blocked(waiting), None)
}

fn next_status<K: Kind>(
    object: &Object<K>,
    deployment: Option<Uuid>,
    assessment: Option<&Assessment>,
    report: &Report,
) -> Status {
    let empty = engine::Plan::<()>::empty().view("");
    let (target, asked) = (K::target(&object.manifest), requested(&object.manifest));
    let input = StatusInput {
        generation: object.manifest.meta().generation,
        contact: assessment.and_then(|it| it.contact),
        plan: assessment.map_or(&empty, |it| &it.plan),
        target: &target,
        outcome: &report.outcome,
        unsupported: assessment.and_then(|it| it.unsupported.as_ref()),
        attributions: assessment.map_or(&[], |it| &it.attributions),
        own_changes: assessment.map_or(&[], |it| it.aside.own_changes),
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
        publish(&object.manifest, false, words_of(step.action), &note, shared).await;
    }
}
