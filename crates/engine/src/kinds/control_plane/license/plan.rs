//! From what is declared and what is there to the steps between: new licences first, then those that they replace.

use client::licenses::License;
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    claims::{Claims, is_about_telemetry},
    declared::Declared,
    record::{LicenseRecord, Uploaded},
    term::Phase,
};
use crate::pipeline::plan::{Action, Change, Impact, Plan, Step};

/// What is known of the deployment.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    pub deployment: Uuid,
    pub live: &'a [License],
    /// As [`LicenseRecord::settled`] gave it.
    pub record: &'a LicenseRecord,
    /// What the deployment complains about. Nothing is retired meanwhile but what alone it complains of.
    pub errors: &'a [String],
    pub now: Timestamp,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LicenseEffect {
    /// Upload the licence that is declared there.
    Upload { slot: String, identity: String },
    /// Delete one that we uploaded.
    Delete { id: i32, identity: String },
}

/// Decides. `deletes_undeclared` is the policy for licences that are no longer declared.
pub fn plan(declared: &[Declared], observed: &Observed<'_>, deletes_undeclared: bool) -> Plan<LicenseEffect> {
    let mut plan = Plan { steps: uploads(declared, observed) };
    let is_declared = |entry: &Uploaded| {
        declared.iter().any(|it| it.identity().as_deref() == Some(entry.identity.as_str()))
    };
    for (entry, live) in held(observed).filter(|(entry, _)| !is_declared(entry)) {
        let mut renewals = declared.iter().filter(|it| it.slot == entry.slot).peekable();
        let is_renewed = renewals.peek().is_some();
        let reason = if is_renewed {
            // Also what came with another licence of ours is taken away only when everything declared works.
            let works = observed.errors.is_empty() || is_to_blame(live, declared, observed.errors);
            if !plan.is_empty() || !works || !renewals.all(|it| it.is_in_force(observed.live, observed.now)) {
                continue;
            }
            "another licence that is in force has taken its place"
        } else if deletes_undeclared {
            "the licence is no longer declared, and licenseDeletionPolicy is Delete"
        } else {
            continue;
        };
        plan.steps.push(delete(entry, live, reason));
    }
    plan
}

/// Whether the deployment complains of nothing but this licence, which nobody declares: while it stays, no other one counts.
fn is_to_blame(live: &License, declared: &[Declared], errors: &[String]) -> bool {
    let needs_telemetry = |it: &Declared| it.claims().is_some_and(Claims::requires_telemetry);
    Claims::of(live).requires_telemetry()
        && !declared.iter().any(needs_telemetry)
        && errors.iter().all(|it| is_about_telemetry(it))
}

/// Decides what goes with the manifest: with the policy Delete everything that we uploaded, otherwise nothing.
pub fn plan_cleanup(observed: &Observed<'_>, deletes: bool) -> Plan<LicenseEffect> {
    let reason = "the manifest is deleted, and licenseDeletionPolicy is Delete";
    let held = held(observed).filter(|_| deletes);
    Plan { steps: held.map(|(entry, live)| delete(entry, live, reason)).collect() }
}

fn uploads(declared: &[Declared], observed: &Observed<'_>) -> Vec<Step<LicenseEffect>> {
    let mut steps: Vec<Step<LicenseEffect>> = Vec::new();
    for one in declared {
        let (Some(claims), Some(hash)) = (one.claims(), one.hash()) else { continue };
        let is_over = Phase::of(claims, observed.now) == Phase::Expired;
        let is_refused = observed.record.refusal(hash).is_some();
        if is_over || is_refused || one.find(observed.live).is_some() {
            continue;
        }
        let effect = LicenseEffect::Upload { slot: one.slot.clone(), identity: claims.identity() };
        let is_same = |it: &Step<LicenseEffect>| {
            matches!(&it.effect,
            LicenseEffect::Upload { identity, .. } if *identity == claims.identity())
        };
        if steps.iter().any(is_same) {
            continue;
        }
        steps.push(Step {
            action: Action::Create,
            impact: Impact::Safe,
            reason: "the deployment does not have the licence".to_owned(),
            changes: vec![Change::new(&one.slot, Value::Null, summary(claims))],
            effect,
        });
    }
    steps
}

/// What we uploaded and is still there: the same id with the same claims, so that a number that was given anew after a
/// database was restored is not taken for it.
fn held<'a>(observed: &Observed<'a>) -> impl Iterator<Item = (&'a Uploaded, &'a License)> {
    let Observed { deployment, live, record, .. } = *observed;
    let is_here = record.deployment_id == Some(deployment);
    record.uploaded.iter().filter(move |_| is_here).filter_map(move |entry| {
        let is_it = |it: &&License| Some(it.id) == entry.id && Claims::of(it).identity() == entry.identity;
        Some((entry, live.iter().find(is_it)?))
    })
}

fn delete(entry: &Uploaded, live: &License, reason: &str) -> Step<LicenseEffect> {
    Step {
        action: Action::Delete,
        impact: Impact::Disruptive,
        reason: reason.to_owned(),
        changes: vec![Change::new(&entry.slot, summary(&Claims::of(live)), Value::Null)],
        effect: LicenseEffect::Delete { id: live.id, identity: entry.identity.clone() },
    }
}

/// What people see of a licence in a plan: nothing that says whose it is.
fn summary(claims: &Claims) -> Value {
    json!({
        "id": claims.id(),
        "featureSet": claims.feature_set(),
        "addons": claims.addons(),
        "expires": claims.expires().map(|it| it.to_string()),
    })
}

#[cfg(test)]
mod tests;
