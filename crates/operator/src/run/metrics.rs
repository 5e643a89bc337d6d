//! What the operator counts of itself. A registry is a value: each run has its own.
//!
//! Labels are kinds, reasons, actions and names of objects; never words of a server, and never a secret.

use std::{borrow::Cow, time::Duration};

use engine::{Action, PlanView};
use jiff::Timestamp;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::planes::PlaneName;

/// The reason of a pass that has none of a condition's.
const CLUSTER_ERROR: &str = "ClusterError";
/// Upper bounds of durations, in seconds. The last is a pass's deadline.
const BOUNDS: [f64; 9] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

/// A kind's name.
pub(super) type KindName = Cow<'static, str>;

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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPlane {
    namespace: String,
    name: String,
}

/// The counts, and the registry that shows them.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    reconciles: Family<OfReason, Counter>,
    duration: Family<OfKind, Histogram>,
    drifted: Family<OfKind, Counter>,
    steps: Family<OfAction, Counter>,
    plane_up: Family<OfPlane, Gauge>,
    plane_success: Family<OfPlane, Gauge>,
    leader: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut it = Self {
            registry: Registry::with_prefix("coder_operator"),
            reconciles: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BOUNDS)),
            drifted: Family::default(),
            steps: Family::default(),
            plane_up: Family::default(),
            plane_success: Family::default(),
            leader: Gauge::default(),
        };
        it.register();
        it
    }
}

impl Metrics {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("reconciles", "Passes over objects, by how they ended", self.reconciles.clone());
        let duration = self.duration.clone();
        registry.register_with_unit("reconcile_duration", "How long passes took", Unit::Seconds, duration);
        let drifted = self.drifted.clone();
        registry.register("drifted_passes", "Passes that found a difference", drifted);
        registry.register("plan_steps", "Steps of plans that were carried out", self.steps.clone());
        let up = self.plane_up.clone();
        registry.register("control_plane_up", "Whether it answers and takes the credentials", up);
        let success = self.plane_success.clone();
        let help = "When it last did";
        registry.register_with_unit("control_plane_last_success_timestamp", help, Unit::Seconds, success);
        registry.register("leader", "Whether this process acts", self.leader.clone());
    }

    /// A pass over an object came to an end, for a reason that a condition would give.
    pub(super) fn reconciled(&self, kind: KindName, reason: &'static str, took: Duration) {
        self.duration.get_or_create(&OfKind { kind: kind.clone() }).observe(took.as_secs_f64());
        self.reconciles.get_or_create(&OfReason { kind, reason }).inc();
    }

    /// A pass over an object was cut short by the cluster: a conflict, or an API server that does not answer.
    pub(super) fn cut_short(&self, kind: KindName) {
        self.reconciles.get_or_create(&OfReason { kind, reason: CLUSTER_ERROR }).inc();
    }

    /// A pass over an object had a plan, and carried out that many of its steps.
    pub(super) fn planned(&self, kind: &KindName, plan: &PlanView, done: usize) {
        if !plan.is_empty() {
            self.drifted.get_or_create(&OfKind { kind: kind.clone() }).inc();
        }
        self.steps(kind, plan, done);
    }

    /// That many steps of a plan were carried out.
    pub(super) fn steps(&self, kind: &KindName, plan: &PlanView, done: usize) {
        for step in plan.steps.iter().take(done) {
            let action = match step.action {
                Action::Create => "Create",
                Action::Update => "Update",
                Action::Delete => "Delete",
            };
            self.steps.get_or_create(&OfAction { kind: kind.clone(), action }).inc();
        }
    }

    /// A control plane was tried.
    pub(super) fn tried(&self, plane: &PlaneName, works: bool) {
        let labels = of_plane(plane);
        self.plane_up.get_or_create(&labels).set(works.into());
        if works {
            self.plane_success.get_or_create(&labels).set(Timestamp::now().as_second());
        }
    }

    /// A control plane is not declared any more.
    pub(super) fn forget(&self, plane: &PlaneName) {
        let labels = of_plane(plane);
        self.plane_up.remove(&labels);
        self.plane_success.remove(&labels);
    }

    pub(super) fn lead(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// All of it, as Prometheus reads it.
    pub(super) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn of_plane((namespace, name): &PlaneName) -> OfPlane {
    OfPlane { namespace: namespace.clone(), name: name.clone() }
}

#[cfg(test)]
mod tests {
    use engine::{Change, Plan, Step};

    use super::*;

    fn plan() -> PlanView {
        let changes = vec![Change::new("secret", "hunter1", "hunter2")];
        let (action, impact) = (Action::Update, engine::Impact::Safe);
        Plan::of(Step { action, impact, reason: "the group differs".to_owned(), changes, effect: () })
            .view("group a")
    }

    #[test]
    fn a_pass_is_counted_with_its_steps_and_none_of_its_words() {
        let metrics = Metrics::default();
        let kind = KindName::Borrowed("CoderGroup");
        metrics.planned(&kind, &plan(), 1);
        metrics.planned(&kind, &Plan::<()>::empty().view(""), 0);
        metrics.reconciled(kind.clone(), "UpToDate", Duration::from_millis(20));
        metrics.cut_short(kind);
        let text = metrics.text().unwrap();
        for line in [
            "coder_operator_plan_steps_total{kind=\"CoderGroup\",action=\"Update\"} 1",
            "coder_operator_drifted_passes_total{kind=\"CoderGroup\"} 1",
            "coder_operator_reconciles_total{kind=\"CoderGroup\",reason=\"UpToDate\"} 1",
            "coder_operator_reconciles_total{kind=\"CoderGroup\",reason=\"ClusterError\"} 1",
            "coder_operator_reconcile_duration_seconds_bucket{le=\"0.05\",kind=\"CoderGroup\"} 1",
            "coder_operator_leader 0",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
        assert!(!text.contains("hunter") && !text.contains("differs"), "{text}");
    }

    #[test]
    fn steps_that_were_not_reached_are_not_counted() {
        let metrics = Metrics::default();
        metrics.planned(&KindName::Borrowed("CoderGroup"), &plan(), 0);
        assert!(!metrics.text().unwrap().contains("plan_steps_total{"));
    }

    #[test]
    fn a_control_plane_that_fails_keeps_its_last_success_and_one_that_is_gone_is_forgotten() {
        let metrics = Metrics::default();
        let plane = ("platform".to_owned(), "main".to_owned());
        metrics.tried(&plane, true);
        metrics.tried(&plane, false);
        let text = metrics.text().unwrap();
        assert!(text.contains("control_plane_up{namespace=\"platform\",name=\"main\"} 0"), "{text}");
        assert!(text.contains("control_plane_last_success_timestamp_seconds{namespace"), "{text}");
        metrics.forget(&plane);
        assert!(!metrics.text().unwrap().contains("platform"));
    }
}
