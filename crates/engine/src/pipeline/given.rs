//! The steps of a plan that are being carried out, and what may be done in their place. Pure.

use api::{AppState, ApprovedPlan, annotation};
use kube::ResourceExt as _;

use crate::pipeline::{
    approval::Approvals,
    decide::{Contact, Decision, Door, Situation, decide},
    plan::{Impact, PlanView, Step},
};

/// Steps that are being carried out. An object may have changed since it was read: then this decides whether another step may
/// replace the planned one.
#[derive(Debug)]
pub(crate) struct Given<'a, M> {
    manifest: &'a M,
    target: String,
    steps: ApprovedPlan,
}

impl<'a, M: AppState> Given<'a, M> {
    pub(crate) fn new<E>(manifest: &'a M, target: String, steps: &[&Step<E>]) -> Self {
        let hash = manifest.annotations().get(annotation::APPROVED_PLAN).cloned();
        let steps = steps.iter().filter(|it| it.impact != Impact::Upkeep).map(|it| it.id(&target));
        let steps = ApprovedPlan {
            hash: hash.unwrap_or_default(),
            generation: manifest.meta().generation,
            steps: steps.collect(),
        };
        Self { manifest, target, steps }
    }

    /// Whether a plan for the same target may be carried out: the policy says so, or its steps are among those that are given.
    pub(crate) fn may(&self, plan: &PlanView) -> bool {
        let is_approved = Approvals::of(self.manifest, Some(&self.steps)).cover(plan, &self.target);
        let decision = decide(&Situation {
            policy: &self.manifest.policy(),
            door: Door::Controller,
            contact: Contact::Held,
            impact: plan.impact(),
            hash: &plan.hash,
            approved: is_approved.then_some(plan.hash.as_str()),
        });
        matches!(decision, Decision::Nothing | Decision::Apply)
    }

    pub(crate) fn target(&self) -> &str {
        &self.target
    }
}

#[cfg(test)]
mod tests {
    use api::CoderProvisioner;
    use serde_json::{Value, json};

    use super::*;
    use crate::pipeline::plan::{Action, Change, Plan};

    const TARGET: &str = "provisioner alpha";

    fn step(impact: Impact, field: &str) -> Step<()> {
        let (changes, reason) = (vec![Change::new(field, 1, 2)], "it differs".to_owned());
        Step { action: Action::Update, impact, reason, changes, effect: () }
    }

    fn plan(impact: Impact, field: &str) -> PlanView {
        Plan::of(step(impact, field)).view(TARGET)
    }

    fn manifest(policy: &Value, approved: &str) -> CoderProvisioner {
        let mut spec = json!({"controlPlaneRef": {"name": "main"}});
        for (field, value) in policy.as_object().unwrap() {
            spec[field] = value.clone();
        }
        serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
            "metadata": {"name": "alpha", "annotations": {annotation::APPROVED_PLAN: approved}}, "spec": spec}))
        .unwrap()
    }

    fn may(policy: &Value, plan: &PlanView) -> bool {
        Given::new::<()>(&manifest(policy, "other"), TARGET.to_owned(), &[]).may(plan)
    }

    #[test]
    fn upkeep_needs_no_approval_and_goes_on_while_observed() {
        let (automatic, manual, observed) =
            (json!({}), json!({"approval": "Manual"}), json!({"mode": "Observe"}));
        for policy in [&automatic, &manual, &observed] {
            assert!(may(policy, &plan(Impact::Upkeep, "keys.alpha")), "{policy}");
        }
        let change = plan(Impact::Safe, "replicas");
        assert_eq!([&automatic, &manual, &observed].map(|it| may(it, &change)), [true, false, false]);
    }

    #[test]
    fn plan_is_carried_out_where_its_hash_is_approved_or_its_steps_are_given() {
        let (manual, change) = (json!({"approval": "Manual"}), plan(Impact::Disruptive, "replicas"));
        let approved = manifest(&manual, &change.hash);
        assert!(Given::new::<()>(&approved, TARGET.to_owned(), &[]).may(&change));
        let (whole, other) = (manifest(&manual, "whole"), plan(Impact::Disruptive, "image"));
        let given = step(Impact::Disruptive, "replicas");
        let given = Given::new(&whole, TARGET.to_owned(), &[&given]);
        assert!(given.may(&change), "a part of what was approved");
        assert!(!given.may(&other));
    }
}
