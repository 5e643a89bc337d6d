//! What a person has approved: a plan by its hash, and what is left of it while its rounds are carried out. Pure.

use api::{ApprovedPlan, annotation};
use kube::ResourceExt;

use crate::pipeline::plan::PlanView;

/// The approvals of a manifest.
#[derive(Debug, Clone, Copy, Default)]
pub struct Approvals<'a> {
    /// The hash in the annotation of the manifest.
    hash: Option<&'a str>,
    /// The approved plan whose rounds are being carried out. `None` while there is none.
    recorded: Option<&'a ApprovedPlan>,
    generation: Option<i64>,
}

impl<'a> Approvals<'a> {
    /// The approvals of a manifest whose status records `recorded`.
    pub fn of(manifest: &'a impl ResourceExt, recorded: Option<&'a ApprovedPlan>) -> Self {
        Self {
            hash: manifest.annotations().get(annotation::APPROVED_PLAN).map(String::as_str),
            recorded,
            generation: manifest.meta().generation,
        }
    }

    /// Whether this very plan was approved.
    pub fn names(&self, plan: &PlanView) -> bool {
        self.hash == Some(plan.hash.as_str())
    }

    /// Whether this plan was approved, or is what is left of one that was approved for this generation of the manifest.
    pub fn cover(&self, plan: &PlanView, target: &str) -> bool {
        let continues = |it: &ApprovedPlan| {
            it.generation == self.generation
                && Some(it.hash.as_str()) == self.hash
                && plan.is_part_of(&it.steps, target)
        };
        self.names(plan) || self.recorded.is_some_and(continues)
    }

    /// The approval of a plan, as it is recorded before the first of several rounds. `None` where this very plan was not approved.
    pub fn record(&self, plan: &PlanView, target: &str) -> Option<ApprovedPlan> {
        self.names(plan).then(|| ApprovedPlan {
            hash: plan.hash.clone(),
            generation: self.generation,
            steps: plan.step_ids(target),
        })
    }
}

#[cfg(test)]
mod tests {
    use api::CoderProvisioner;
    use serde_json::json;

    use super::*;
    use crate::pipeline::plan::{Action, Change, Impact, Plan, Step};

    fn plan(fields: &[&str]) -> PlanView {
        let step = |field: &&str| Step {
            action: Action::Update,
            impact: Impact::Disruptive,
            reason: "it differs".to_owned(),
            changes: vec![Change::new(field, 1, 2)],
            effect: (),
        };
        Plan { steps: fields.iter().map(step).collect() }.view("alpha")
    }

    fn manifest(hash: &str, generation: i64) -> CoderProvisioner {
        serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
            "metadata": {"name": "a", "generation": generation, "annotations": {annotation::APPROVED_PLAN: hash}},
            "spec": {"controlPlaneRef": {"name": "main"}}}))
        .unwrap()
    }

    #[test]
    fn recorded_approval_covers_the_rounds_that_are_left_and_no_other_plan() {
        let whole = plan(&["key", "replicas"]);
        let approved = manifest(&whole.hash, 1);
        let recorded = Approvals::of(&approved, None).record(&whole, "alpha").unwrap();
        let rest = plan(&["replicas"]);
        assert!(!Approvals::of(&approved, None).cover(&rest, "alpha"), "it is not recorded");
        assert!(Approvals::of(&approved, Some(&recorded)).cover(&rest, "alpha"));
        assert!(!Approvals::of(&approved, Some(&recorded)).cover(&plan(&["image"]), "alpha"));
        assert!(Approvals::of(&approved, Some(&recorded)).record(&rest, "alpha").is_none());
        for other in [manifest(&whole.hash, 2), manifest("another", 1)] {
            assert!(!Approvals::of(&other, Some(&recorded)).cover(&rest, "alpha"));
        }
    }
}
