//! The plan of a provisioner: what is done about its key, and what about its objects. Pure.

use api::annotation::PROVISIONER_KEY_CHECKSUM;

use crate::{
    objects::ChildEffect,
    pipeline::plan::{Action, Change, Impact, Plan, PlanView},
    secrets::{Act, Held, KeyNeed, KeyPreview, Wanted, describe},
};

/// What a plan is about.
pub fn target(name: &str) -> String {
    format!("provisioner {name}")
}

/// What is done about the key.
pub fn of_key(preview: &KeyPreview, wanted: &Wanted) -> Plan<()> {
    Plan { steps: preview.acts.iter().map(|act| describe::step(act, wanted, ())).collect() }
}

/// Whether the first key is created, and its objects with it.
pub fn is_first(preview: &KeyPreview) -> bool {
    preview.acts.iter().any(|it| matches!(it, Act::Mint { before: None, .. }))
}

/// What is done about the objects. Pods that only get the key which was created before are upkeep.
pub fn of_objects(plan: &Plan<ChildEffect>) -> Plan<()> {
    let is_key = |it: &Change| it.field.contains(PROVISIONER_KEY_CHECKSUM);
    let mut plan = plan.clone().map(|_| ());
    for step in &mut plan.steps {
        if step.action == Action::Update && !step.changes.is_empty() && step.changes.iter().all(is_key) {
            step.impact = Impact::Upkeep;
        }
    }
    plan
}

/// Both together.
pub fn whole(key: Plan<()>, objects: Plan<()>, target: &str) -> PlanView {
    let steps = key.steps.into_iter().chain(objects.steps).collect();
    Plan { steps }.view(target)
}

/// The hash of the plan that these objects were a part of before the first key was created.
pub fn known_as(held: &Held, wanted: &Wanted, objects: &Plan<()>, target: &str) -> String {
    let act = Act::Mint { need: KeyNeed::First, before: None, name: held.name.clone() };
    let key = Plan::of(describe::step(&act, wanted, ()));
    whole(key, objects.clone(), target).hash
}
