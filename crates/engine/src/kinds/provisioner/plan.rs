//! The plan of a provisioner: what is done about its key, and then about its objects. Pure.
//!
//! The controllers decide about this plan, and the command line shows it.

use api::annotation::PROVISIONER_KEY_CHECKSUM;

use super::observed::Observed;
use crate::{
    objects::{ChildEffect, leave_out},
    pipeline::plan::{Action, Change, Impact, Plan, PlanView, StepView},
    secrets::describe,
};

/// The steps from what was observed to what is declared. Those about the key come first.
pub(super) fn plan(observed: &Observed) -> Plan<()> {
    let acts = observed.key.acts.iter();
    let key = acts.map(|act| describe::step(act, &observed.wanted, ()));
    let objects = observed.objects.as_ref().ok().and_then(Option::as_ref);
    let objects = objects.into_iter().flat_map(|it| of_objects(&it.compared.planned.plan).steps);
    Plan { steps: key.chain(objects).collect() }
}

/// Whether rounds of a plan that need an approval follow on the one about the key.
pub(super) fn has_more_rounds(observed: &Observed, plan: &PlanView) -> bool {
    let (key, objects) = plan.steps.split_at(observed.key.acts.len());
    key.iter().any(StepView::needs_approval) && objects.iter().any(StepView::needs_approval)
}

/// What is done about the objects. That pods get a key which was created before is upkeep: an approval of other changes does not
/// depend on it.
pub(super) fn of_objects(plan: &Plan<ChildEffect>) -> Plan<()> {
    let is_key = |it: &Change| it.field.contains(PROVISIONER_KEY_CHECKSUM);
    let mut plan = plan.clone();
    for step in plan.steps.iter_mut().filter(|it| it.action == Action::Update) {
        let keys = step.changes.iter().filter(|it| is_key(it)).count();
        if keys == 0 {
            continue;
        }
        if keys == step.changes.len() {
            step.impact = Impact::Upkeep;
        } else {
            leave_out(step, is_key);
        }
    }
    plan.map(|_| ())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{pipeline::plan::Step, ports::object::Key};

    fn update(changes: &[(&str, Value, Value)], impact: Impact) -> Step<ChildEffect> {
        let key = Key::new("apps/v1", "Deployment", "platform", "provisioner-alpha");
        let change = |(field, before, after): &(&str, Value, Value)| {
            Change::new(&format!("{key}: {field}"), before.clone(), after.clone())
        };
        Step {
            action: Action::Update,
            impact,
            reason: "it differs".to_owned(),
            changes: changes.iter().map(change).collect(),
            effect: ChildEffect::Apply { key: key.clone(), object: Value::Null },
        }
    }

    #[test]
    fn key_that_pods_get_does_not_change_what_was_approved() {
        let checksum = format!("spec.template.metadata.annotations[{PROVISIONER_KEY_CHECKSUM}]");
        let checksum = (checksum.as_str(), json!("a"), json!("b"));
        let replicas = ("spec.replicas", json!(1), json!(2));
        let shown = |step| of_objects(&Plan::of(step)).view("alpha");
        let alone = shown(update(std::slice::from_ref(&checksum), Impact::Disruptive));
        assert_eq!((alone.steps[0].impact, alone.impact()), (Impact::Upkeep, None));
        let before = shown(update(std::slice::from_ref(&replicas), Impact::Safe));
        let after = shown(update(&[replicas, checksum], Impact::Disruptive));
        assert_eq!(before.hash, after.hash);
    }
}
