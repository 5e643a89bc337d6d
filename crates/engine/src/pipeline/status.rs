//! The status that a pass leaves behind. Pure: the time is an argument, and the same pass twice is the same status.

use api::{
    Difference, Reason, Status,
    condition::{DRIFTED, READY, RECONCILING, STALLED},
};
use client::Class;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::Value;
use uuid::Uuid;

use crate::pipeline::{
    attribution::{self, Attribution},
    conditions::{Conditions, Fact, Truth},
    decide::{Contact, Refusal},
    outcome::{Blocked, Outcome, STALE, Trouble},
    plan::{Change, PlanView, StepView},
    short::shortened,
};

/// How many steps and differences a status shows.
const SHOWN: usize = 20;
/// The longest value of a field that a status or an Event shows, in bytes. A plan's hash is over the whole value.
const LONGEST_VALUE: usize = 1024;

/// What the status of one object follows from.
#[derive(Debug)]
pub struct StatusInput<'a> {
    pub generation: Option<i64>,
    pub contact: Option<Contact>,
    pub plan: &'a PlanView,
    pub target: &'a str,
    pub outcome: &'a Outcome,
    /// The declared fields that the deployment does not support.
    pub unsupported: Option<&'a Blocked>,
    /// Who made the object differ.
    pub attributions: &'a [Attribution],
    /// Fields that differ because something that the manifest refers to has changed.
    pub own_changes: &'a [&'a str],
    /// The conditions that only this kind has.
    pub facts: &'a [Fact],
    /// Whether only a person can bring the object forward, by what the kind knows of the reason.
    pub stalls: bool,
    /// What `Ready` says of an object that is as declared, where the kind has its own words.
    pub ready: Option<&'a str>,
    /// The id to record, where there is one.
    pub id: Option<String>,
    /// The deployment that was reconciled with.
    pub deployment: Option<Uuid>,
    /// Whether something was written.
    pub changed: bool,
    /// The value of the annotation that asked for this pass.
    pub requested: Option<&'a str>,
    pub now: Timestamp,
}

/// The status after a pass. It equals the one before when nothing is different.
pub fn next(before: Option<&Status>, pass: &StatusInput<'_>) -> Status {
    let StatusInput {
        generation,
        contact,
        plan,
        target,
        outcome,
        attributions,
        own_changes,
        id,
        deployment,
        changed,
        requested,
        now,
        ..
    } = pass;
    let before = before.cloned().unwrap_or_default();
    let pending = !outcome.is_settled() && !plan.is_empty();
    let is_drift = |it: &Change| !own_changes.contains(&it.field.as_str());
    let has_drift = |it: &StepView| it.changes.is_empty() || it.changes.iter().any(is_drift);
    let differs = pending && *contact == Some(Contact::Held) && plan.steps.iter().any(has_drift);
    Status {
        observed_generation: *generation,
        conditions: conditions(&before.conditions, pass, differs),
        remote_deployment_id: if id.is_some() {
            deployment.map(|it| it.to_string())
        } else {
            before.remote_deployment_id
        },
        id: id.clone().or(before.id),
        // Only a pass that has looked knows that nothing came of it.
        creating: before
            .creating
            .filter(|_| id.is_none() && (contact.is_none() || may_have_happened(outcome))),
        plan: pending.then(|| shown(plan, target)),
        approved: before.approved.filter(|it| !outcome.is_settled() && it.generation == *generation),
        drift: if differs { drift(plan, attributions, own_changes) } else { Vec::new() },
        last_applied_time: if *changed { Some(Time(*now)) } else { before.last_applied_time },
        last_handled_reconcile_at: requested.map(str::to_owned).or(before.last_handled_reconcile_at),
    }
}

fn conditions(before: &[Condition], pass: &StatusInput<'_>, differs: bool) -> Vec<Condition> {
    let StatusInput {
        generation,
        contact,
        outcome,
        plan,
        now,
        unsupported,
        attributions,
        facts,
        stalls,
        ready: words,
        ..
    } = pass;
    let mut message = match words {
        Some(words) if outcome.is_ready() => (*words).to_owned(),
        _ => message(outcome, plan),
    };
    if let Some(fields) = unsupported.filter(|_| !outcome.is_settled()) {
        message = format!("{message}. Also: {}", fields.message);
    }
    let ready = outcome.is_ready().into();
    let reason = reason(outcome, facts);
    let made = Conditions::new(before, *generation, *now).with(READY, ready, reason, &message);
    let made = made.with_all(facts);
    let made = match contact {
        None => made.with(DRIFTED, Truth::Unknown, Reason::NotObserved, ""),
        Some(_) if differs => {
            made.with(DRIFTED, Truth::True, Reason::DriftFound, &drifted(plan, attributions))
        }
        Some(_) => made.with(DRIFTED, Truth::False, Reason::NoDrift, ""),
    };
    // These two are there only while they are true: that is how tools tell progress from its lack.
    let made = if outcome.is_stalled() || *stalls {
        made.with(STALLED, Truth::True, reason, &message)
    } else if !outcome.is_ready() && !matches!(outcome, Outcome::Observed) {
        made.with(RECONCILING, Truth::True, reason, &message)
    } else {
        made
    };
    made.made()
}

/// The reason of `Ready`. For an answer of Coder without a reason of its own it is that of the condition which failed.
fn reason(outcome: &Outcome, facts: &[Fact]) -> Reason {
    let failed = facts.iter().find(|it| it.truth == Truth::False);
    match (outcome.reason(), failed) {
        (Reason::RemoteError, Some(failed)) => failed.reason,
        (reason, _) => reason,
    }
}

/// The status of an object that nobody has looked at yet, so that it does not seem healthy by being empty. Nothing when
/// there is one already.
pub fn begun(
    before: Option<&Status>,
    generation: Option<i64>,
    facts: &[Fact],
    now: Timestamp,
) -> Option<Status> {
    if before.is_some_and(|it| it.conditions.iter().any(|it| it.type_ == READY)) {
        return None;
    }
    let words = "not compared with the deployment yet";
    let conditions = Conditions::new(&[], generation, now)
        .with(READY, Truth::Unknown, Reason::Progressing, words)
        .with_all(facts)
        .with(RECONCILING, Truth::True, Reason::Progressing, words)
        .made();
    Some(Status { observed_generation: generation, conditions, ..before.cloned().unwrap_or_default() })
}

/// The status of an object that is suspended: what was last found out is left standing, and nothing is claimed.
pub fn suspended(before: Option<&Status>, generation: Option<i64>, facts: &[Fact], now: Timestamp) -> Status {
    let before = before.cloned().unwrap_or_default();
    let words = "suspended: nothing is read or changed";
    let conditions = Conditions::new(&before.conditions, generation, now)
        .with(READY, Truth::Unknown, Reason::Suspended, words)
        .with_all(facts)
        .with(DRIFTED, Truth::Unknown, Reason::Suspended, "")
        .made();
    Status { observed_generation: generation, conditions, ..before }
}

/// An outcome in words that say what to do.
pub fn message(outcome: &Outcome, plan: &PlanView) -> String {
    let approve = || format!("annotate the object with {}: {}", api::annotation::APPROVED_PLAN, plan.hash);
    match outcome {
        Outcome::Equal | Outcome::Applied => "as declared".to_owned(),
        Outcome::Observed => format!("differs ({}); not changed because mode is Observe", plan.summary),
        Outcome::Unsupported(waiting)
        | Outcome::Blocked(waiting)
        | Outcome::Failed(Trouble::Blocked(waiting)) => waiting.message.clone(),
        Outcome::Refused(Refusal::NotEqual) => {
            "it exists and differs: make the manifest equal to it, or set adoptionPolicy to Adopt to take it over".to_owned()
        }
        Outcome::Refused(Refusal::NotOurs) => "it exists, and adoptionPolicy is Never".to_owned(),
        Outcome::Refused(Refusal::NotApproved) => format!("approval is Manual: {}", approve()),
        Outcome::Refused(Refusal::Destructive) => {
            format!("the plan deletes users' data: set allowDestructive, or {}", approve())
        }
        Outcome::Invalid(invalid) => format!("{}: {}", invalid.field, invalid.message),
        Outcome::Failed(Trouble::Remote(error)) => error.words(),
        Outcome::Failed(Trouble::Cluster(error)) => {
            let advice = match error.code() {
                Some(403) => ": bind the Role of deploy/rbac/cli.yaml to your account",
                _ => "",
            };
            format!("objects of the cluster cannot be read: {error}{advice}")
        }
        Outcome::Failed(Trouble::Stale) => STALE.to_owned(),
    }
}

/// Whether a write that failed may have had its effect all the same.
fn may_have_happened(outcome: &Outcome) -> bool {
    let Outcome::Failed(Trouble::Remote(error)) = outcome else { return false };
    matches!(error.class(), Class::Transient | Class::Unexpected)
}

/// A plan as a status shows it.
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

/// The differences of a plan as a status shows them.
fn drift(plan: &PlanView, attributions: &[Attribution], own_changes: &[&str]) -> Vec<Difference> {
    let changes = plan.changes().filter(|it| !own_changes.contains(&it.field.as_str()));
    changes.take(SHOWN).map(|it| difference(it, of(it, attributions))).collect()
}

/// A change as a difference, with who made it.
fn difference(change: &Change, attribution: Option<&Attribution>) -> Difference {
    Difference {
        field: change.field.clone(),
        expected: text(&change.after),
        found: text(&change.before),
        changed_by: attribution.map(|it| it.by.clone()),
        changed_at: attribution.and_then(|it| it.at).map(Time),
    }
}

/// The time by which an object was equal, as far as its status tells.
pub(crate) fn equal_since(status: &Status) -> Option<Timestamp> {
    let is_equal = |it: &&Condition| it.type_ == DRIFTED && it.status == "False";
    let equal = status.conditions.iter().find(is_equal).map(|it| it.last_transition_time.0);
    equal.max(status.last_applied_time.as_ref().map(|it| it.0))
}

/// What a status says already of who made these differences. A difference whose author was not known is looked up again.
pub(crate) fn known(plan: &PlanView, drift: &[Difference]) -> Vec<Attribution> {
    let found = |change: &Change| {
        let shown = difference(change, None);
        let is_it = |it: &&Difference| {
            it.field == shown.field && it.expected == shown.expected && it.found == shown.found
        };
        let known = drift.iter().find(is_it)?;
        let by = known.changed_by.clone().filter(|it| it != attribution::UNKNOWN)?;
        Some(Attribution { field: known.field.clone(), by, at: known.changed_at.as_ref().map(|it| it.0) })
    };
    attribution::differences(plan).filter_map(found).collect()
}

fn of<'a>(change: &Change, attributions: &'a [Attribution]) -> Option<&'a Attribution> {
    attributions.iter().find(|it| it.field == change.field)
}

/// The plan in one line, with who made it necessary: `1 to update; quotaAllowance 20 -> 3 by alice at 2026-11-17T12:04:33Z`.
fn drifted(plan: &PlanView, attributions: &[Attribution]) -> String {
    [plan.summary.clone()].into_iter().chain(drift_lines(plan, attributions)).collect::<Vec<_>>().join("; ")
}

/// Who changed which field from what is declared, a line each.
pub fn drift_lines(plan: &PlanView, attributions: &[Attribution]) -> Vec<String> {
    plan.changes().filter_map(|it| Some(made(it, of(it, attributions)?))).take(SHOWN).collect()
}

/// Who changed a field from what is declared: `quotaAllowance 20 -> 3 by alice at 2026-11-17T12:04:33Z`.
fn made(change: &Change, attribution: &Attribution) -> String {
    let [declared, found] = values([&change.after, &change.before]);
    format!("{} {declared} -> {found} {}", change.field, attribution.words())
}

fn values<const N: usize>(values: [&Value; N]) -> [String; N] {
    values.map(|it| shortened(&it.to_string(), LONGEST_VALUE))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(shortened(text, LONGEST_VALUE)),
        other => Some(shortened(&other.to_string(), LONGEST_VALUE)),
    }
}

/// A change as a line, for an Event and for the log: `quotaAllowance: 3 -> 20`.
pub fn line(change: &Change) -> String {
    let [before, after] = [&change.before, &change.after].map(|it| shortened(&it.to_string(), LONGEST_VALUE));
    format!("{}: {before} -> {after}", change.field)
}

#[cfg(test)]
mod tests;
