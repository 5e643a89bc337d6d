//! What the operator counts of itself. A registry is a value: each run has its own.
//!
//! Labels are kinds, reasons, actions, names of objects, routes as templates and statuses; never words of a server, and never
//! a secret.

mod licences;
mod objects;
mod planes;
#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use api::Reason;
use api::{CoderControlPlane, CoderProvisioner};
use client::Observer;
use engine::{
    Action,
    kinds::{self, control_plane::license::Licensing},
    pipeline::plan::StepView,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource as _, runtime::reflector::Store};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use self::{
    objects::{Objects, Seen},
    planes::PlaneCounts,
};
use crate::{index::KindName, planes::PlaneName};

/// Upper bounds of durations, in seconds. The last is a reconcile's deadline.
const BOUNDS: [f64; 9] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

/// The same for waiting, which may take as long as there are objects before one.
const WAIT_BOUNDS: [f64; 8] = [0.01, 0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: KindName,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReason {
    kind: KindName,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAction {
    kind: KindName,
    action: &'static str,
}

/// The counts, and the registry that shows them.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    reconciles: Family<OfReason, Counter>,
    duration: Family<OfKind, Histogram>,
    waiting: Family<OfKind, Gauge>,
    waited: Family<OfKind, Histogram>,
    under_way: Family<OfKind, Gauge>,
    watch_errors: Family<OfKind, Counter>,
    steps: Family<OfAction, Counter>,
    left_behind: Family<OfKind, Counter>,
    undecodable: Family<OfKind, Counter>,
    objects: Objects,
    planes: PlaneCounts,
    leader: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut it = Self {
            registry: Registry::with_prefix("coder_operator"),
            reconciles: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BOUNDS)),
            waiting: Family::default(),
            waited: Family::new_with_constructor(|| Histogram::new(WAIT_BOUNDS)),
            under_way: Family::default(),
            watch_errors: Family::default(),
            steps: Family::default(),
            left_behind: Family::default(),
            undecodable: Family::default(),
            objects: Objects::default(),
            planes: PlaneCounts::default(),
            leader: Gauge::default(),
        };
        it.register();
        it.create_series();
        it
    }
}

impl Metrics {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("reconciles", "Reconciles of objects, by reason", self.reconciles.clone());
        let duration = self.duration.clone();
        registry.register_with_unit(
            "reconcile_duration",
            "How long reconciles took",
            Unit::Seconds,
            duration,
        );
        let waiting = self.waiting.clone();
        registry.register("reconciles_waiting", "Reconciles that are queued", waiting);
        let (waited, help) = (self.waited.clone(), "How long reconciles were queued");
        registry.register_with_unit("reconcile_wait", help, Unit::Seconds, waited);
        let under_way = self.under_way.clone();
        registry.register("reconciles_under_way", "Reconciles in progress", under_way);
        let watch_errors = self.watch_errors.clone();
        registry.register("watch_errors", "Lists and watches of Kubernetes that failed", watch_errors);
        registry.register("plan_steps", "Steps of plans that were carried out", self.steps.clone());
        let left_behind = self.left_behind.clone();
        registry.register("left_behind", "Deletions that left something behind", left_behind);
        let undecodable = self.undecodable.clone();
        registry.register(
            "undecodable_objects",
            "Versions of objects that could not be decoded",
            undecodable,
        );
        registry.register("leader", "Whether this process reconciles", self.leader.clone());
        registry.register_collector(Box::new(self.objects.clone()));
        registry.register_collector(Box::new(self.planes.clone()));
    }

    /// Creates the series of every kind: `increase()` does not count the first value of a series that was absent before.
    fn create_series(&self) {
        let registered = kinds::names().into_iter().map(KindName::from);
        for kind in registered.chain([CoderControlPlane::kind(&()), CoderProvisioner::kind(&())]) {
            let of_kind = OfKind { kind };
            for family in [&self.left_behind, &self.undecodable, &self.watch_errors] {
                drop(family.get_or_create(&of_kind));
            }
        }
    }

    /// A reconcile over an object came to an end, for a reason that a condition would give or for one of [`crate::controller::reconcile`].
    pub(crate) fn reconciled(&self, kind: KindName, reason: Reason, took: Duration) {
        self.duration.get_or_create(&OfKind { kind: kind.clone() }).observe(took.as_secs_f64());
        self.reconciles.get_or_create(&OfReason { kind, reason: reason.as_str() }).inc();
    }

    /// A reconcile is due, and waits for its turn as long as the result is kept.
    pub(crate) fn waits(&self, kind: KindName) -> Waits {
        let of_kind = OfKind { kind };
        let gauge = self.waiting.get_or_create_owned(&of_kind);
        gauge.inc();
        let waited = self.waited.get_or_create_owned(&of_kind);
        Waits { _gauge: UnderWay(gauge), waited, since: Instant::now() }
    }

    /// A reconcile begins, and lasts as long as the result is kept.
    pub(crate) fn begins(&self, kind: KindName) -> UnderWay {
        let gauge = self.under_way.get_or_create_owned(&OfKind { kind });
        gauge.inc();
        UnderWay(gauge)
    }

    /// A list or a watch of a kind, or of what belongs to it, failed.
    pub(crate) fn watch_failed(&self, kind: KindName) {
        self.watch_errors.get_or_create(&OfKind { kind }).inc();
    }

    /// Steps of a plan were carried out.
    pub(crate) fn steps(&self, kind: &KindName, done: &[StepView]) {
        for step in done {
            let action = match step.action {
                Action::Create => "Create",
                Action::Update => "Update",
                Action::Delete => "Delete",
            };
            self.steps.get_or_create(&OfAction { kind: kind.clone(), action }).inc();
        }
    }

    /// An object was let go, and what it made could not be taken away.
    pub(crate) fn left_behind(&self, kind: KindName) {
        self.left_behind.get_or_create(&OfKind { kind }).inc();
    }

    /// A version of an object could not be decoded.
    pub(crate) fn undecodable(&self, kind: KindName) {
        self.undecodable.get_or_create(&OfKind { kind }).inc();
    }

    /// Shows the objects of a kind, as a controller has them.
    pub(crate) fn show<K>(&self, objects: Store<K>, conditions: fn(&K) -> &[Condition])
    where
        K: kube::Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
    {
        let look = move || objects.state().iter().map(|it| Seen::from(conditions(it))).collect();
        self.objects.show(K::kind(&()), look);
    }

    /// Who counts the requests to a control plane.
    pub(crate) fn observer(&self, plane: &PlaneName) -> Arc<dyn Observer> {
        self.planes.of(plane)
    }

    /// A control plane was tried.
    pub(crate) fn tried(&self, plane: &PlaneName, works: bool) {
        self.planes.of(plane).tried(works, Timestamp::now());
    }

    /// How it stands with a control plane's licences.
    pub(crate) fn licensed(&self, plane: &PlaneName, licensing: &Licensing) {
        // What could not be read is shown as it was.
        if licensing.licenses.is_some() {
            self.planes.of(plane).licensed(licensing.into());
        }
    }

    /// When the token ends that we were given for a control plane; nothing where it does not, or is one of our own.
    pub(crate) fn token_ends(&self, plane: &PlaneName, ends: Option<Timestamp>) {
        self.planes.of(plane).token_ends(ends);
    }

    /// A control plane is not declared any more.
    pub(crate) fn forget(&self, plane: &PlaneName) {
        self.planes.forget(plane);
    }

    pub(crate) fn lead(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// All of it, as Prometheus reads it.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// A reconcile that waits.
#[derive(Debug)]
pub(crate) struct Waits {
    _gauge: UnderWay,
    waited: Histogram,
    since: Instant,
}

impl Waits {
    /// Its turn has come.
    pub(crate) fn ended(self) {
        self.waited.observe(self.since.elapsed().as_secs_f64());
    }
}

/// A reconcile under way.
#[derive(Debug)]
pub(crate) struct UnderWay(Gauge);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.dec();
    }
}
