//! A plan as a value: what would be done to one object, in which order, why, and what it would change.
//!
//! A plan is printed, stored in status, hashed for approval and counted. Everything but [`Step::effect`] is made for
//! those who look; the effect is what `apply` carries out, and nothing else is.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Steps in the order in which they are done.
#[derive(Debug, Clone)]
pub struct Plan<E> {
    pub steps: Vec<Step<E>>,
}

/// One write.
#[derive(Debug, Clone)]
pub struct Step<E> {
    pub action: Action,
    pub impact: Impact,
    /// Why, in words for a person.
    pub reason: String,
    pub changes: Vec<Change>,
    pub effect: E,
}

/// What a step does to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Action {
    Create,
    Update,
    Delete,
}

/// What a step does to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Impact {
    /// What follows from an earlier change, as the revocation of a key that another one has replaced. It needs no approval.
    Upkeep,
    /// Nobody is interrupted and nothing is lost.
    Safe,
    /// Somebody may notice: a rename, a member who leaves.
    Disruptive,
    /// People's data goes.
    Destructive,
}

/// One field, before and after. `Null` is absence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The field's path in the manifest's spec.
    pub field: String,
    pub before: Value,
    pub after: Value,
    /// A digest of values that are not shown and differ. It is a part of the plan's hash, so that the approval of one value is none of
    /// another.
    #[serde(skip)]
    pub(crate) hidden: Option<String>,
}

/// A plan without its effects: what people and programs see of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanView {
    pub hash: String,
    pub summary: String,
    pub steps: Vec<StepView>,
}

/// A step without its effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepView {
    pub action: Action,
    pub impact: Impact,
    pub reason: String,
    pub changes: Vec<Change>,
}

impl<E> Plan<E> {
    pub fn empty() -> Self {
        Self { steps: Vec::new() }
    }

    pub fn of(step: Step<E>) -> Self {
        Self { steps: vec![step] }
    }

    /// What becomes of the remote object of a manifest that is deleted, where that is its policy.
    pub fn deletion(impact: Impact, effect: E) -> Self {
        Self::of(Step {
            action: Action::Delete,
            impact,
            reason: "the manifest is deleted, and its deletionPolicy is Delete".to_owned(),
            changes: Vec::new(),
            effect,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The gravest of the steps' impacts. `None` when there are no steps.
    pub fn impact(&self) -> Option<Impact> {
        self.steps.iter().map(|step| step.impact).max()
    }

    /// The same steps with other effects.
    pub fn map<F>(self, effect: impl Fn(E) -> F) -> Plan<F> {
        let map = |it: Step<E>| Step {
            action: it.action,
            impact: it.impact,
            reason: it.reason,
            changes: it.changes,
            effect: effect(it.effect),
        };
        Plan { steps: self.steps.into_iter().map(map).collect() }
    }

    /// The hash of what is left once the first step has made the object; nothing for a plan that makes none.
    pub(crate) fn after_creation(&self, target: &str) -> Option<String> {
        let (first, rest) = self.steps.split_first()?;
        (first.action == Action::Create)
            .then(|| hash(target, &rest.iter().map(Step::view).collect::<Vec<_>>()))
    }

    /// The plan as it is shown. `target` names the remote object, so that an approval of this plan does not fit another
    /// object with the same changes.
    pub fn view(&self, target: &str) -> PlanView {
        let steps: Vec<StepView> = self.steps.iter().map(Step::view).collect();
        PlanView { hash: hash(target, &steps), summary: summary(&steps), steps }
    }
}

impl<E> Step<E> {
    /// Identifies the step on an object.
    pub(crate) fn id(&self, target: &str) -> String {
        step_id(target, &self.view())
    }

    /// The same for those who look.
    pub(crate) fn without_effect(&self) -> Step<()> {
        let StepView { action, impact, reason, changes } = self.view();
        Step { action, impact, reason, changes, effect: () }
    }

    fn view(&self) -> StepView {
        let Self { action, impact, reason, changes, effect: _ } = self;
        StepView { action: *action, impact: *impact, reason: reason.clone(), changes: changes.clone() }
    }
}

impl StepView {
    /// Whether a person may have to approve the step.
    pub fn needs_approval(&self) -> bool {
        self.impact != Impact::Upkeep
    }
}

impl PlanView {
    /// A plan without steps, where no target is known.
    pub fn empty() -> Self {
        Plan::<()>::empty().view("")
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The gravest impact of the steps that need an approval. `None` where none does.
    pub fn impact(&self) -> Option<Impact> {
        self.steps.iter().filter(|it| it.needs_approval()).map(|it| it.impact).max()
    }

    /// Identifies each step that needs an approval, by its action and its changes. The id of a step stays the same while the steps
    /// before it are done.
    pub fn step_ids(&self, target: &str) -> Vec<String> {
        self.steps.iter().filter(|it| it.needs_approval()).map(|it| step_id(target, it)).collect()
    }

    /// Whether every step that needs an approval is among these.
    pub fn is_part_of(&self, ids: &[String], target: &str) -> bool {
        self.step_ids(target).iter().all(|it| ids.contains(it))
    }

    /// Every change, step by step.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.steps.iter().flat_map(|step| &step.changes)
    }
}

impl Change {
    pub fn new(field: &str, before: impl Into<Value>, after: impl Into<Value>) -> Self {
        Self { field: field.to_owned(), before: before.into(), after: after.into(), hidden: None }
    }

    /// The same, with values that are not shown.
    #[must_use]
    pub(crate) fn hiding(self, values: &Value) -> Self {
        let digest = Sha256::digest(serde_json::to_vec(values).unwrap_or_default());
        Self { hidden: Some(base16ct::lower::encode_string(&digest[..16])), ..self }
    }

    /// Whether another value takes the place of the one before, and not only another owner.
    pub(crate) fn has_other_value(&self) -> bool {
        self.before != self.after || self.hidden.is_some()
    }
}

/// What an approval names: the same for the same steps on the same object, whoever computes it. Reasons are left out,
/// because a better sentence is no other plan. Upkeep is left out, because it needs no approval and comes and goes with time: an
/// approval would not fit the plan any more.
fn hash(target: &str, steps: &[StepView]) -> String {
    let approved = steps.iter().filter(|it| it.needs_approval());
    let seen: Vec<_> = approved.map(|step| (step.action, step.impact, &step.changes)).collect();
    let mut hash = Sha256::new();
    hash.update(target);
    hash.update([0]);
    // Maps of `serde_json` are sorted by key, which is what makes this stable.
    hash.update(serde_json::to_vec(&seen).unwrap_or_default());
    steps.iter().filter(|it| it.needs_approval()).for_each(|it| add_hidden(it, &mut hash));
    base16ct::lower::encode_string(&hash.finalize()[..8])
}

/// Identifies a step on an object. What is before it counts: the same list with another member before is another removal.
fn step_id(target: &str, step: &StepView) -> String {
    let mut hash = Sha256::new();
    hash.update(target);
    hash.update([0]);
    hash.update(serde_json::to_vec(&(step.action, step.impact, &step.changes)).unwrap_or_default());
    add_hidden(step, &mut hash);
    base16ct::lower::encode_string(&hash.finalize()[..8])
}

fn add_hidden(step: &StepView, hash: &mut Sha256) {
    for digest in step.changes.iter().filter_map(|it| it.hidden.as_ref()) {
        hash.update(digest);
    }
}

/// The plan in half a line: `1 to create, 2 to update`.
fn summary(steps: &[StepView]) -> String {
    let count = |action: Action| steps.iter().filter(|step| step.action == action).count();
    let words = [(Action::Create, "create"), (Action::Update, "update"), (Action::Delete, "delete")];
    let parts: Vec<String> = words
        .into_iter()
        .map(|(action, word)| (count(action), word))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} to {word}"))
        .collect();
    if parts.is_empty() { "no changes".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(after: &str) -> Plan<()> {
        Plan::of(Step {
            action: Action::Update,
            impact: Impact::Safe,
            reason: "because".to_owned(),
            changes: vec![Change::new("displayName", "a", after)],
            effect: (),
        })
    }

    #[test]
    fn a_hash_fits_one_plan_of_one_object() {
        assert_eq!(plan("b").view("alpha").hash, plan("b").view("alpha").hash);
        assert_ne!(plan("b").view("alpha").hash, plan("c").view("alpha").hash);
        assert_ne!(plan("b").view("alpha").hash, plan("b").view("bravo").hash);
    }

    #[test]
    fn a_better_sentence_is_no_other_plan() {
        let mut reworded = plan("b");
        reworded.steps[0].reason = "since".to_owned();
        assert_eq!(reworded.view("alpha").hash, plan("b").view("alpha").hash);
    }

    #[test]
    fn value_that_is_not_shown_is_a_part_of_the_hash() {
        let hiding = |value: &str| {
            let mut plan = plan("b");
            let change = Change::new("env[TOKEN].value", "(hidden)", "(hidden)");
            plan.steps[0].changes = vec![change.hiding(&json!(["a", value]))];
            plan.view("alpha")
        };
        assert_eq!(hiding("hunter2"), hiding("hunter2"));
        assert_ne!(hiding("hunter2").hash, hiding("hunter3").hash);
        assert!(!hiding("hunter3").is_part_of(&hiding("hunter2").step_ids("alpha"), "alpha"));
        assert!(!serde_json::to_string(&hiding("hunter2")).unwrap().contains("hunter"));
    }

    #[test]
    fn upkeep_that_comes_or_goes_does_not_change_the_hash() {
        let mut due = plan("b");
        let upkeep = Step { action: Action::Delete, impact: Impact::Upkeep, ..plan("c").steps.remove(0) };
        due.steps.insert(0, upkeep.clone());
        assert_eq!(due.view("alpha").hash, plan("b").view("alpha").hash);
        assert_eq!(due.view("alpha").summary, "1 to update, 1 to delete");
        due.steps[0].impact = Impact::Safe;
        assert_ne!(due.view("alpha").hash, plan("b").view("alpha").hash);
        assert_eq!(Plan::of(upkeep).view("alpha").hash, Plan::<()>::empty().view("alpha").hash);
    }

    #[test]
    fn id_of_a_step_outlives_the_steps_before_it() {
        let mut both = plan("b");
        both.steps.extend(plan("c").steps);
        let ids = both.view("alpha").step_ids("alpha");
        let mut rest = plan("c");
        assert!(rest.view("alpha").is_part_of(&ids, "alpha"));
        assert!(!rest.view("bravo").is_part_of(&ids, "bravo"));
        rest.steps[0].changes[0].before = json!("z");
        assert!(!rest.view("alpha").is_part_of(&ids, "alpha"), "somebody has changed the field since");
        assert!(!plan("d").view("alpha").is_part_of(&ids, "alpha"));
    }

    #[test]
    fn maps_are_sorted_whatever_the_order_they_were_written_in() {
        // Hashes of plans would change with the order of insertion if anything switched that off.
        assert_eq!(json!({"b": 1, "a": 2}).to_string(), r#"{"a":2,"b":1}"#);
    }

    #[test]
    fn a_summary_counts_and_an_empty_plan_says_so() {
        assert_eq!(plan("b").view("alpha").summary, "1 to update");
        assert_eq!(Plan::<()>::empty().view("alpha").summary, "no changes");
    }
}
