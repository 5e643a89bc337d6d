//! The plan of a template, all rounds of it, and how far it can be carried out now. Pure.

use std::sync::{Arc, OnceLock};

use api::Reason;
use client::templates::Template as Remote;
use serde_json::{Value, json};

use super::{
    Desired, Effect, Observed,
    archival::{archive, unarchive},
    drift::{ACTIVE, is_promoted_by_hand},
    recipe::TestResult,
    settings,
    test_rounds::{self, Testing},
    version::{Found, Version},
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
    let alone = test_rounds::clean_up(observed).or_else(|| test_rounds::ending(desired, observed));
    let Some(Testing { steps, now, waits }) = alone else { return all(desired, observed) };
    // Test workspaces are deleted by a plan of their own, so that no approval, refusal or dependency of other steps delays it.
    (Plan { steps }, Round { steps: Some(now), waits })
}

/// The plan where no deletion of a test workspace is due. Tests and promotions wait for those that are under way.
fn all(desired: &Desired, observed: &Observed) -> (Plan<Effect>, Round) {
    let settings = Settings::of(desired, observed);
    let mut steps = settings.before;
    let cleaning = test_rounds::awaited(observed);
    let Some(version) = &observed.version else {
        steps.extend(settings.after);
        return (Plan { steps }, Round { steps: None, waits: cleaning });
    };
    if let Found::Failed(failed, _) = &version.found
        && observed.template.is_some()
        && !failed.archived
        && !desired.is_observed
    {
        steps.push(archive(failed.id, format!("the build of version {} failed", version.name)));
    }
    let testing = test_rounds::testing(desired, observed, version);
    if let Some(refused) = version.test.as_ref().filter(|_| testing.is_some()).and_then(|it| it.owner.clone())
    {
        // A version that cannot be tested is not published.
        let now = steps.len();
        let all = Rest { testing, settings: settings.after, cleaning }.with(desired, observed, version);
        steps.extend(all.0);
        return (Plan { steps }, Round { steps: Some(now), waits: Some(refused) });
    }
    let waits = waits(version);
    if waits.as_ref().is_some_and(|it| it.reason.ends_waiting()) {
        let now = steps.len();
        steps.extend(instead_of_failed(observed, version));
        return (Plan { steps }, Round { steps: Some(now), waits });
    }
    if matches!(version.found, Found::Nothing) {
        steps.push(publish(version));
    }
    let now = steps.len();
    let rest = Rest { testing, settings: settings.after, cleaning };
    let (rest, round) = rest.with(desired, observed, version);
    steps.extend(rest);
    if version.is_built() {
        return (Plan { steps }, Round { steps: round.steps.map(|it| now + it), waits: round.waits });
    }
    (Plan { steps }, Round { steps: Some(now), waits })
}

/// The changes of a template that exists.
#[derive(Default)]
struct Settings {
    before: Vec<Step<Effect>>,
    /// What comes after the test of a version that is active already.
    after: Vec<Step<Effect>>,
}

impl Settings {
    fn of(desired: &Desired, observed: &Observed) -> Self {
        let Some(template) = &observed.template else { return Self::default() };
        let (update, grant) = (update(desired, observed), grant(desired, observed));
        let is_untested = |it: &Version| {
            let test = it.test.as_ref().map(|it| &it.result);
            it.id() == Some(template.active_version_id)
                && test.is_some_and(|it| *it != Some(TestResult::Passed))
        };
        if !observed.version.as_ref().is_some_and(is_untested) {
            return Self { before: update.into_iter().chain(grant).collect(), after: Vec::new() };
        }
        // Who may use the template is widened once its version passed, and of a deprecated one no workspace can be made.
        let is_last = desired.settings.deprecation_message.as_ref().is_some_and(|it| !it.is_empty());
        let (before, after) = if is_last { (None, update) } else { (update, None) };
        Self { before: before.into_iter().collect(), after: after.into_iter().chain(grant).collect() }
    }
}

/// The steps after the build.
struct Rest {
    testing: Option<Testing>,
    settings: Vec<Step<Effect>>,
    /// The deletion of a test workspace that these steps wait for.
    cleaning: Option<Blocked>,
}

impl Rest {
    /// The steps, and how far they can be carried out once the version is built.
    fn with(self, desired: &Desired, observed: &Observed, version: &Version) -> (Vec<Step<Effect>>, Round) {
        let mut steps = Vec::new();
        let mut later = activate(desired, observed, version);
        if observed.template.is_none() {
            // Coder makes a workspace of a version only once that belongs to a template.
            steps.extend(later.drain(..1));
        }
        let Some(Testing { steps: test, now, waits }) = self.testing else {
            steps.extend(later);
            steps.extend(self.settings);
            let now = (!observed.former.is_empty()).then_some(0);
            return (steps, Round { steps: now, waits: self.cleaning });
        };
        // The id of a new template is on record before a workspace of it is made.
        let created = steps.len();
        let has_failed = waits.as_ref().is_some_and(|it| it.reason.ends_waiting());
        let unarchives = test.iter().any(|it| matches!(it.effect, Effect::Unarchive(_)));
        steps.extend(test);
        if has_failed {
            steps.extend(instead_of_failed(observed, version));
        } else {
            later.retain(|it| !(unarchives && matches!(it.effect, Effect::Unarchive(_))));
            steps.extend(later);
            steps.extend(self.settings);
        }
        let round = match (created, self.cleaning) {
            (0, _) => Round { steps: Some(now), waits },
            (_, waits @ Some(_)) if !observed.former.is_empty() => Round { steps: Some(0), waits },
            (created, _) => {
                let message =
                    format!("the template is made, and then its version {} is tested", version.name);
                let waits = Some(Blocked { reason: Reason::VersionTesting, message });
                Round { steps: Some(created), waits }
            }
        };
        (steps, round)
    }
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

/// The steps after the build: the template is created from the version, or the version is promoted.
fn activate(desired: &Desired, observed: &Observed, version: &Version) -> Vec<Step<Effect>> {
    let Some(template) = &observed.template else { return create(desired, observed, version) };
    let is_active = version.id() == Some(template.active_version_id);
    if is_active || !version.activates {
        return Vec::new();
    }
    let archived = match &version.found {
        Found::Ours(found) if found.archived => Some(unarchive(version, found.id)),
        _ => None,
    };
    let promote = promote(template, version);
    archived.into_iter().chain([promote]).collect()
}

fn promote(template: &Remote, version: &Version) -> Step<Effect> {
    let before = version.active.as_deref().map_or(Value::Null, Value::from);
    Step {
        action: Action::Update,
        impact: Impact::Safe,
        reason: "another version is active".to_owned(),
        changes: vec![Change::new(ACTIVE, before, version.name.clone())],
        effect: Effect::Promote { template: Box::new(template.clone()), version: version.id() },
    }
}

/// Shows the version that a person promoted instead of one that failed. The step is never carried out, so that it needs no approval.
fn instead_of_failed(observed: &Observed, version: &Version) -> Option<Step<Effect>> {
    let template = observed.template.as_ref().filter(|_| is_promoted_by_hand(observed, version))?;
    Some(Step { impact: Impact::Upkeep, ..promote(template, version) })
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
