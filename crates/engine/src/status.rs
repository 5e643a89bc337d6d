//! The status that a pass leaves behind. Pure: the time is an argument, and the same pass twice is the same status.

use api::{Difference, Status, condition, reason};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::Value;

use crate::{
    decide::{Contact, Decision, Refusal},
    outcome::{Outcome, Trouble},
    plan::{Change, PlanView, StepView},
};

/// How many steps and differences a status shows.
const SHOWN: usize = 20;

/// One pass over one object, as far as its status is concerned.
#[derive(Debug)]
pub struct Pass<'a> {
    pub generation: Option<i64>,
    pub contact: Option<Contact>,
    pub plan: &'a PlanView,
    pub target: &'a str,
    pub outcome: &'a Outcome,
    /// The id to record, where there is one.
    pub id: Option<String>,
    /// Whether something was written.
    pub changed: bool,
    /// The value of the annotation that asked for this pass.
    pub requested: Option<&'a str>,
    pub now: Timestamp,
}

/// The status after a pass. It equals the one before when nothing is different.
pub fn next(before: Option<&Status>, pass: &Pass<'_>) -> Status {
    let Pass { generation, contact, plan, target, outcome, id, changed, requested, now } = pass;
    let before = before.cloned().unwrap_or_default();
    let pending = !outcome.is_ready() && !plan.is_empty();
    let differs = pending && *contact == Some(Contact::Held);
    Status {
        observed_generation: *generation,
        conditions: conditions(&before.conditions, pass, differs),
        id: id.clone().or(before.id),
        plan: pending.then(|| shown(plan, target)),
        drift: if differs { plan.changes().take(SHOWN).map(difference).collect() } else { Vec::new() },
        last_applied_time: if *changed { Some(Time(*now)) } else { before.last_applied_time },
        last_handled_reconcile_at: requested.map(str::to_owned).or(before.last_handled_reconcile_at),
    }
}

fn conditions(before: &[Condition], pass: &Pass<'_>, differs: bool) -> Vec<Condition> {
    let Pass { outcome, plan, .. } = pass;
    let message = message(outcome, plan);
    let make = |kind: &str, status: bool, reason: &str, message: &str| {
        let status = if status { "True" } else { "False" };
        let since = before.iter().find(|it| it.type_ == kind && it.status == status);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: pass.generation,
            last_transition_time: since.map_or(Time(pass.now), |it| it.last_transition_time.clone()),
        }
    };
    let mut conditions = vec![make(condition::READY, outcome.is_ready(), outcome.reason(), &message)];
    let (drift, words) =
        if differs { (reason::DRIFT_FOUND, plan.summary.as_str()) } else { (reason::NO_DRIFT, "") };
    conditions.push(make(condition::DRIFTED, differs, drift, words));
    // These two are there only while they are true: that is how tools tell progress from its lack.
    if outcome.is_stalled() {
        conditions.push(make(condition::STALLED, true, outcome.reason(), &message));
    } else if !outcome.is_ready() && !matches!(outcome, Outcome::Observed) {
        conditions.push(make(condition::RECONCILING, true, outcome.reason(), &message));
    }
    conditions
}

/// An outcome in words that say what to do.
pub fn message(outcome: &Outcome, plan: &PlanView) -> String {
    let approve = || format!("annotate the object with {}: {}", api::annotation::APPROVED_PLAN, plan.hash);
    match outcome {
        Outcome::Equal | Outcome::Applied => "as declared".to_owned(),
        Outcome::Observed => format!("differs ({}), and is only observed", plan.summary),
        Outcome::Waiting(waiting) | Outcome::Failed(Trouble::Waiting(waiting)) => waiting.message.clone(),
        Outcome::Refused(Refusal::NotEqual) => {
            "it exists and differs: make the manifest equal to it, or set adoptionPolicy to Adopt to take it over".to_owned()
        }
        Outcome::Refused(Refusal::NotOurs) => "it exists, and adoptionPolicy is Never".to_owned(),
        Outcome::Refused(Refusal::NotApproved) => format!("approval is Manual: {}", approve()),
        Outcome::Refused(Refusal::Destructive) => {
            format!("people's data would go: set allowDestructive, or {}", approve())
        }
        Outcome::Invalid(invalid) => format!("{}: {}", invalid.field, invalid.message),
        Outcome::Failed(Trouble::Remote(error)) => error.words(),
    }
}

/// What a decision that writes nothing comes to.
pub fn outcome_of(decision: Decision) -> Option<Outcome> {
    match decision {
        Decision::Nothing => Some(Outcome::Equal),
        Decision::Observe => Some(Outcome::Observed),
        Decision::Refuse(refusal) => Some(Outcome::Refused(refusal)),
        Decision::Apply => None,
    }
}

fn shown(plan: &PlanView, target: &str) -> api::Plan {
    let omitted = plan.steps.len().saturating_sub(SHOWN);
    api::Plan {
        hash: plan.hash.clone(),
        summary: plan.summary.clone(),
        steps: plan.steps.iter().flat_map(|step| lines(step, target)).take(SHOWN).collect(),
        omitted: i64::try_from(omitted).ok().filter(|it| *it > 0),
    }
}

/// A step in a status: a line for each field that it changes.
fn lines(step: &StepView, target: &str) -> Vec<api::Step> {
    let line = |change: Option<&Change>| api::Step {
        action: format!("{:?}", step.action),
        target: target.to_owned(),
        field: change.map(|it| it.field.clone()),
        before: change.and_then(|it| text(&it.before)),
        after: change.and_then(|it| text(&it.after)),
        impact: format!("{:?}", step.impact),
        reason: step.reason.clone(),
    };
    if step.changes.is_empty() {
        vec![line(None)]
    } else {
        step.changes.iter().map(|it| line(Some(it))).collect()
    }
}

fn difference(change: &Change) -> Difference {
    Difference { field: change.field.clone(), expected: text(&change.after), found: text(&change.before) }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
