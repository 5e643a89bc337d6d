//! The plan of a provisioner: what is done about its key, and then about its objects. Pure.

use std::sync::Arc;

use api::annotation::PROVISIONER_KEY_CHECKSUM;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;

use super::{
    observed::{Known, Observed},
    work::{Effect, What},
};
use crate::{
    objects::{ChildEffect, leave_out},
    pipeline::plan::{Action, Change, Impact, Plan, Step},
    secrets::{Act, describe},
};

pub(super) const LICENCE_LOST: &str = "the licence for external provisioner daemons is gone";

/// The steps from what was observed to what is declared. Those about the key come first.
pub(super) fn plan(observed: &Observed) -> Plan<Effect> {
    let manifest = &observed.manifest;
    let effect = |what| Effect { manifest: Arc::clone(manifest), what };
    if let Some(deployment) = &observed.unlicensed {
        return Plan::of(scaling_to_zero(deployment, effect(What::ScaleToZero(deployment.clone()))));
    }
    let Some(known) = &observed.known else { return Plan::empty() };
    let work = || Arc::clone(&known.work);
    let mut steps: Vec<Step<Effect>> = Vec::new();
    // While a key waits for an approval, others may have to go that stay otherwise until its daemons have come.
    let waits = !manifest.spec.changes.is_automatic();
    let meanwhile = known.held_back.acts.iter().filter(|it| waits && !known.key.acts.contains(it));
    let meanwhile = meanwhile.filter(|it| matches!(it, Act::Revoke(_) | Act::Note));
    for act in known.key.acts.iter().chain(meanwhile) {
        let needs_approval = matches!(act, Act::Mint { .. } | Act::Move { .. });
        let is_independent = known.held_back.acts.contains(act);
        steps.push(describe::step(
            act,
            &known.work.wanted,
            effect(What::Key { work: work(), needs_approval, is_independent }),
        ));
    }
    if observed.is_reported && has_records_to_write(known) {
        steps.push(records(effect(What::Key { work: work(), needs_approval: false, is_independent: true })));
    }
    let objects = known.work.planned();
    steps.extend(of_objects(&objects).map(|()| effect(What::Object { work: work() })).steps);
    Plan { steps }
}

/// Whether records or Secrets of earlier keys are to be written or removed, and nothing that people read of in a plan.
fn has_records_to_write(known: &Known) -> bool {
    let now = known.now();
    now.acts.is_empty() && !now.is_settled
}

fn records(effect: Effect) -> Step<Effect> {
    Step {
        action: Action::Update,
        impact: Impact::Upkeep,
        reason: "the records of earlier keys are brought up to date".to_owned(),
        changes: Vec::new(),
        effect,
    }
}

/// The step that scales the daemons to zero.
fn scaling_to_zero(deployment: &Deployment, effect: Effect) -> Step<Effect> {
    let field = format!("Deployment {}: spec.replicas", deployment.name_any());
    let replicas = deployment.spec.as_ref().and_then(|it| it.replicas);
    Step {
        action: Action::Update,
        impact: Impact::Disruptive,
        reason: LICENCE_LOST.to_owned(),
        changes: vec![Change::new(&field, replicas, 0)],
        effect,
    }
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
    use crate::ports::object::Key;

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
