//! Whether the plan of a kind with objects of its own is carried out, and what people are told when it is not. Pure.

use api::ChangePolicy;

use crate::pipeline::{
    approval::Approvals,
    decide::{Contact, Decision, Door, Situation, decide},
    outcome::{Blocked, Outcome},
    plan::PlanView,
    status::message,
};

/// What stands for the value of a field that may hold a secret.
pub const MASKED: &str = "(not shown)";
/// Parts of the fields of pods that people put secrets into.
const MAY_BE_SECRET: [&str; 3] = [".env", ".args", ".command"];

/// A plan that is not carried out.
#[derive(Debug, Clone)]
pub struct HeldBack {
    pub plan: PlanView,
    /// [`Outcome::Observed`], or why the plan is refused.
    pub outcome: Outcome,
}

impl HeldBack {
    /// What a condition says.
    pub fn blocked(&self) -> Blocked {
        Blocked { reason: self.outcome.reason(), message: message(&self.outcome, &self.plan) }
    }
}

/// What became of the plans of one reconcile.
#[derive(Debug, Default)]
pub struct Changes {
    /// The first plan that is not carried out.
    pub held_back: Option<HeldBack>,
    /// Whether something was changed.
    pub changed: bool,
}

/// Whether a plan for `target` is carried out.
pub fn check(
    policy: &ChangePolicy,
    plan: &PlanView,
    target: &str,
    approvals: &Approvals<'_>,
) -> Result<(), HeldBack> {
    let is_approved = approvals.cover(plan, target);
    let decision = decide(&Situation {
        policy: &policy.policy(),
        door: Door::Controller,
        contact: Contact::Held,
        impact: plan.impact(),
        hash: &plan.hash,
        approved: is_approved.then_some(plan.hash.as_str()),
    });
    let outcome = match decision {
        Decision::Nothing | Decision::Apply => return Ok(()),
        Decision::Observe => Outcome::Observed,
        Decision::Refuse(refusal) => Outcome::Refused(refusal),
    };
    Err(HeldBack { plan: masked(plan.clone()), outcome })
}

/// A plan without the values that may be secret. Its hash is that of the whole plan.
pub fn masked(mut plan: PlanView) -> PlanView {
    for change in plan.steps.iter_mut().flat_map(|it| &mut it.changes) {
        if MAY_BE_SECRET.iter().any(|it| change.field.contains(it)) {
            for value in [&mut change.before, &mut change.after] {
                if !value.is_null() {
                    *value = MASKED.into();
                }
            }
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use api::{Approval, CoderProvisioner, Mode, annotation};
    use serde_json::json;

    use super::*;
    use crate::pipeline::plan::{Action, Change, Impact, Plan, Step};

    fn plan(impact: Impact, field: &str) -> PlanView {
        let changes = vec![Change::new(field, "hunter2", "hunter3")];
        let reason = "it differs".to_owned();
        Plan::of(Step { action: Action::Update, impact, reason, changes, effect: () })
            .view("provisioner alpha")
    }

    fn manual() -> ChangePolicy {
        ChangePolicy { approval: Some(Approval::Manual), ..ChangePolicy::default() }
    }

    const TARGET: &str = "provisioner alpha";

    /// A manifest that approves the plan with this hash.
    fn approving(hash: &str) -> CoderProvisioner {
        serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
            "metadata": {"name": "alpha", "annotations": {annotation::APPROVED_PLAN: hash}},
            "spec": {"controlPlaneRef": {"name": "main"}}}))
        .unwrap()
    }

    fn unapproved(policy: &ChangePolicy, plan: &PlanView) -> Result<(), HeldBack> {
        check(policy, plan, TARGET, &Approvals::default())
    }

    #[test]
    fn upkeep_needs_no_approval_and_goes_on_while_observed() {
        let upkeep = plan(Impact::Upkeep, "keys.alpha");
        let observed = ChangePolicy { mode: Some(Mode::Observe), ..ChangePolicy::default() };
        for policy in [ChangePolicy::default(), manual(), observed.clone()] {
            assert!(unapproved(&policy, &upkeep).is_ok(), "{policy:?}");
        }
        let change = plan(Impact::Safe, "replicas");
        assert!(unapproved(&ChangePolicy::default(), &change).is_ok());
        assert!(matches!(unapproved(&observed, &change).unwrap_err().outcome, Outcome::Observed));
    }

    #[test]
    fn plan_is_approved_by_its_hash() {
        let change = plan(Impact::Disruptive, "replicas");
        let checked = |hash: &str| check(&manual(), &change, TARGET, &Approvals::of(&approving(hash), None));
        let held = checked("other").unwrap_err();
        assert!(held.blocked().message.contains(&change.hash), "{:?}", held.blocked());
        assert!(checked(&change.hash).is_ok());
        assert!(unapproved(&manual(), &change).is_err());
    }

    #[test]
    fn values_of_variables_and_arguments_are_not_shown() {
        let change = plan(Impact::Disruptive, "Deployment a: spec.template.spec.containers[a].env[b].value");
        let held = unapproved(&manual(), &change).unwrap_err();
        assert!(!format!("{:?}", held.plan).contains("hunter"), "{:?}", held.plan);
        assert_eq!(held.plan.hash, change.hash);
    }
}
