//! The plan of a template, all rounds of it, and how far it can be carried out now. Pure.

use std::sync::{Arc, OnceLock};

use api::Reason;
use serde_json::{Value, json};

use super::{
    Desired, Effect, Observed,
    look::{Found, Version},
    settings,
};
use crate::{
    kind::Round,
    pipeline::{
        diff::Diff,
        outcome::Blocked,
        plan::{Action, Change, Impact, Plan, Step},
    },
};

pub(super) fn plan(desired: &Desired, observed: &Observed) -> (Plan<Effect>, Round) {
    let mut steps = Vec::new();
    if observed.template.is_some() {
        steps.extend(update(desired, observed));
        steps.extend(grant(desired, observed));
    }
    let Some(version) = &observed.version else { return (Plan { steps }, Round::default()) };
    if let Found::Failed(failed, _) = &version.found
        && observed.template.is_some()
        && !failed.archived
        && !desired.is_observed
    {
        steps.push(archive(version, failed.id));
    }
    let waits = waits(version);
    if waits.as_ref().is_some_and(|it| it.reason.ends_waiting()) {
        return (Plan { steps }, Round { steps: None, waits });
    }
    if matches!(version.found, Found::Nothing) {
        steps.push(publish(version));
    }
    let now = steps.len();
    steps.extend(activate(desired, observed, version));
    if version.is_built() {
        return (Plan { steps }, Round::default());
    }
    (Plan { steps }, Round { steps: Some(now), waits })
}

/// Why a version is not promoted yet. `None` once it was built.
fn waits(version: &Version) -> Option<Blocked> {
    let Version { name, material, .. } = version;
    let (reason, message) = match &version.found {
        Found::Recorded(_) => return None,
        Found::Ours(_) if version.is_built() => return None,
        Found::Nothing => (Reason::VersionBuilding, format!("version {name} is published, and then built")),
        Found::Ours(found) => {
            let is_unmatched = found.matched_provisioners.is_some_and(|it| it.count == 0);
            if found.job.status == "pending" && is_unmatched {
                let tags = json!(material.tags);
                let message = format!(
                    "no provisioner daemon of the organization with the tags {tags} is connected: start one. \
                     The build of version {name} goes on waiting"
                );
                (Reason::NoProvisioner, message)
            } else {
                (Reason::VersionBuilding, format!("the build of version {name} is {}", found.job.status))
            }
        }
        Found::Failed(found, why) => {
            let message = format!(
                "the build of version {name} {}: {why}. The version is not promoted: correct the source or the \
                 variables, or set another version.name to build the same source again",
                found.job.status
            );
            (Reason::VersionFailed, message)
        }
        Found::Taken(why) => {
            let message = format!(
                "version {name} of the template {why}, and no version is ever changed: set another version.name, or \
                 remove it to have the name derived from the content"
            );
            (Reason::VersionNameTaken, message)
        }
    };
    Some(Blocked { reason, message })
}

fn update(desired: &Desired, observed: &Observed) -> Option<Step<Effect>> {
    let template = observed.template.as_ref()?;
    let mut diff = Diff::default();
    let change = settings::difference(&desired.settings, template, &mut diff);
    if diff.is_empty() {
        return None;
    }
    Some(Step {
        action: Action::Update,
        impact: settings::impact(&change, template),
        reason: "the template differs".to_owned(),
        changes: diff.changes,
        effect: Effect::Update { template: Box::new(template.clone()), change: Box::new(change) },
    })
}

fn grant(desired: &Desired, observed: &Observed) -> Option<Step<Effect>> {
    let (declared, found) = observed.access.as_ref()?;
    let mut diff = Diff::default();
    let loses = declared.difference(found, &mut diff);
    if diff.is_empty() {
        return None;
    }
    // Found by the name that it has: a rename is a step of its own, and comes first.
    Some(Step {
        action: Action::Update,
        impact: if loses { Impact::Disruptive } else { Impact::Safe },
        reason: "others may use the template than declared".to_owned(),
        changes: diff.changes,
        effect: Effect::Grant {
            organization: desired.organization.clone(),
            name: desired.name.clone(),
            access: declared.clone(),
        },
    })
}

fn archive(version: &Version, id: uuid::Uuid) -> Step<Effect> {
    Step {
        action: Action::Update,
        impact: Impact::Upkeep,
        reason: format!("the build of version {} failed", version.name),
        changes: vec![Change::new("version.archived", false, true)],
        effect: Effect::Archive(id),
    }
}

fn publish(version: &Version) -> Step<Effect> {
    let digest = format!("sha256:{}", version.material.digest);
    Step {
        action: Action::Update,
        impact: Impact::Safe,
        reason: "no version has this content".to_owned(),
        changes: vec![
            Change::new("source", Value::Null, digest),
            Change::new("version", Value::Null, version.name.as_str()),
        ],
        effect: Effect::Publish { material: Arc::clone(&version.material), published: OnceLock::new() },
    }
}

/// Coder promotes no archived version.
fn unarchive(version: &Version, id: uuid::Uuid) -> Step<Effect> {
    Step {
        action: Action::Update,
        impact: Impact::Safe,
        reason: format!("version {} is archived", version.name),
        changes: vec![Change::new("version.archived", true, false)],
        effect: Effect::Unarchive(id),
    }
}

/// The steps after the build: the template is created from the version, or the version is promoted.
fn activate(desired: &Desired, observed: &Observed, version: &Version) -> Vec<Step<Effect>> {
    let Some(template) = &observed.template else { return create(desired, observed, version) };
    let is_active = version.id() == Some(template.active_version_id);
    if is_active || !version.activates {
        return Vec::new();
    }
    let before = version.active.as_deref().map_or(Value::Null, Value::from);
    let archived = match &version.found {
        Found::Ours(found) if found.archived => Some(unarchive(version, found.id)),
        _ => None,
    };
    let promote = Step {
        action: Action::Update,
        impact: Impact::Safe,
        reason: "another version is active".to_owned(),
        changes: vec![Change { field: "activeVersion".to_owned(), before, after: json!(version.name) }],
        effect: Effect::Promote { template: Box::new(template.clone()), version: version.id() },
    };
    archived.into_iter().chain([promote]).collect()
}

fn create(desired: &Desired, observed: &Observed, version: &Version) -> Vec<Step<Effect>> {
    let (organization, name) = (desired.organization.clone(), desired.name.clone());
    let (wanted, later) = settings::creation(&desired.settings, desired.access.hides_from_everyone());
    let mut diff = Diff::default();
    settings::announce(&desired.settings, &mut diff);
    diff.declare("activeVersion", Some(&version.name));
    let mut steps = vec![Step {
        action: Action::Create,
        impact: Impact::Safe,
        reason: "the template does not exist".to_owned(),
        changes: diff.changes,
        effect: Effect::Create {
            organization: organization.clone(),
            wanted: Box::new(wanted),
            version: version.id(),
        },
    }];
    if let Some(message) = &later.deprecation_message {
        steps.push(Step {
            action: Action::Update,
            impact: Impact::Safe,
            reason: "a new template is not deprecated".to_owned(),
            changes: vec![Change::new("deprecated", "", message.as_str())],
            effect: Effect::UpdateNew { organization, name, change: Box::new(later) },
        });
    }
    steps.extend(grant_new(desired, observed));
    steps
}

fn grant_new(desired: &Desired, observed: &Observed) -> Option<Step<Effect>> {
    if desired.access.is_absent() {
        return None;
    }
    // An organization that an earlier step of the plan creates has no members to look up yet.
    let declared = observed.access.as_ref().map_or(&desired.access, |(declared, _)| declared);
    let mut diff = Diff::default();
    declared.difference(&declared.of_new_template(), &mut diff);
    (!diff.is_empty()).then(|| Step {
        action: Action::Update,
        impact: Impact::Safe,
        reason: "others may use a new template than declared".to_owned(),
        changes: diff.changes,
        effect: Effect::Grant {
            organization: desired.organization.clone(),
            name: desired.name.clone(),
            access: declared.clone(),
        },
    })
}
