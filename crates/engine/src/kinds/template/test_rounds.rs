//! The steps of the test of a version, and how far they can be carried out now. Pure.

use std::sync::OnceLock;

use api::{Reason, TemplateTestState};
use client::workspaces::Workspace;
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Desired, Effect, Observed,
    archival::{archive, unarchive},
    recipe::TestResult,
    test_trace::Left,
    test_workspace::{
        Progress, Removal, Test, begun, full_name, has_failed_deletion, identified, removal, removed_at,
    },
    version::{Found, Version},
};
use crate::{
    kind::{Aside, Leftovers},
    pipeline::{
        outcome::Blocked,
        plan::{Action, Change, Impact, Plan, Step},
    },
};

const FIELD: &str = "version.test.workspace";
const AGAIN: &str =
    "could not be deleted, and is deleted again after 5 minutes: look at the log of its last build";

/// What is left of a test.
#[derive(Debug)]
pub(super) struct Testing {
    pub(super) steps: Vec<Step<Effect>>,
    /// The number of steps that can be done now.
    pub(super) now: usize,
    /// What the steps after the test wait for. `None` once the test is passed, and its workspace gone.
    pub(super) waits: Option<Blocked>,
}

/// The steps that delete the test workspaces of earlier versions and tests. `None` where none is due.
pub(super) fn clean_up(observed: &Observed) -> Option<Testing> {
    let due = |it: &&Workspace| removal(it, observed.now) == Removal::Due;
    let steps: Vec<Step<Effect>> = observed.former.iter().filter(due).map(end_former).collect();
    (!steps.is_empty()).then(|| Testing { now: steps.len(), steps, waits: awaited(observed) })
}

/// The deletion that tests and promotions wait for. `None` where no workspace of an earlier version or test is left. Only tests wait
/// for a workspace that Coder does not show.
pub(super) fn awaited(observed: &Observed) -> Option<Blocked> {
    let Some(first) = observed.former.first() else { return observed.hidden.clone() };
    let state = if has_failed_deletion(first) { AGAIN } else { "is deleted first" };
    let message = format!("test workspace {} of an earlier test {state}", full_name(first));
    Some(Blocked { reason: Reason::VersionTesting, message })
}

/// When the deletion of a workspace goes on or is over, whatever else the template waits for.
pub(super) fn again_at(observed: &Observed) -> Option<Timestamp> {
    let test = observed.version.as_ref().and_then(|it| it.test.as_ref());
    let ended = test.filter(|it| it.result.is_some()).and_then(|it| it.workspace.as_ref());
    let left = observed.former.iter().chain(ended.map(|(it, _)| it));
    left.map(|it| removed_at(it, observed.now)).min()
}

/// The steps that delete the workspace of a test on record, for a manifest that cannot be compared.
pub(super) fn leftovers(open: &TemplateTestState, left: &Left, now: Timestamp) -> Leftovers<Effect> {
    let due = left.former.iter().filter(|it| removal(it, now) == Removal::Due);
    let steps = due.map(end_former).collect();
    let again_at = left.former.iter().map(|it| removed_at(it, now)).min();
    let mut aside = Aside { again_at, ..Aside::default() };
    if left.is_empty() {
        aside.status.insert("test".to_owned(), json!(deleted(open)));
    }
    Leftovers { plan: Plan { steps }, aside, taken_back: Vec::new() }
}

/// The steps that end the test of the version, where its workspace is to be deleted now.
pub(super) fn ending(desired: &Desired, observed: &Observed) -> Option<Testing> {
    let version = observed.version.as_ref()?;
    let testing = testing(desired, observed, version)?;
    let ends = |it: &Step<Effect>| matches!(it.effect, Effect::EndTest { workspace: Some(_), .. });
    (testing.now > 0 && testing.steps.iter().all(ends)).then_some(testing)
}

fn end_former(workspace: &Workspace) -> Step<Effect> {
    let effect = Effect::EndTest { workspace: Some(Box::new(workspace.clone())), mark: None, state: None };
    let before = Value::from(full_name(workspace));
    end(before, "the test of this workspace is over".to_owned(), effect)
}

fn end(before: Value, reason: String, effect: Effect) -> Step<Effect> {
    let changes = vec![Change::new(FIELD, before, Value::Null)];
    Step { action: Action::Update, impact: Impact::Upkeep, reason, changes, effect }
}

/// What is left of the test of a version before it is promoted, or before the template is widened. `None` where the version is
/// not tested, or the test is over and passed.
pub(super) fn testing(desired: &Desired, observed: &Observed, version: &Version) -> Option<Testing> {
    let test = version.test.as_ref()?;
    let template = observed.template.as_ref();
    let is_active = template.is_some_and(|it| version.id() == Some(it.active_version_id));
    if !test.is_wanted {
        return None;
    }
    match (&test.result, &test.workspace) {
        (Some(TestResult::Passed), None) => None,
        (Some(result), Some((workspace, _))) => Some(leaving(test, version, workspace, result, observed.now)),
        (Some(TestResult::Failed(_)), None) => {
            Some(failed(desired, test, version, is_active, template.is_some()))
        }
        (None, None) => Some(start(desired, test, version, awaited(observed))),
        (None, Some((workspace, progress))) => {
            Some(under_way(test, version, workspace, progress, observed.now))
        }
    }
}

/// The workspace is made, and everything after it waits. The test itself waits for `cleaning`.
fn start(desired: &Desired, test: &Test, version: &Version, cleaning: Option<Blocked>) -> Testing {
    let mut steps = Vec::new();
    if let Found::Ours(found) = &version.found
        && found.archived
    {
        steps.push(unarchive(version, found.id));
    }
    steps.push(create(desired, test, version));
    let now = if cleaning.is_some() { 0 } else { steps.len() };
    steps.push(end_later(test, version));
    let message =
        format!("test workspace of version {} is starting for {}", version.name, test.declared.owner);
    let waits = cleaning.unwrap_or(Blocked { reason: Reason::VersionTesting, message });
    Testing { steps, now, waits: Some(waits) }
}

fn create(desired: &Desired, test: &Test, version: &Version) -> Step<Effect> {
    let owner = test.declared.owner.clone();
    let workspace = version.id().map(|id| {
        let name = test.declared.workspace_name(&desired.test_prefix, id);
        let state = begun(&name, &owner, id);
        (Box::new(test.declared.workspace(&name, id)), state)
    });
    Step {
        action: Action::Update,
        impact: Impact::Safe,
        reason: format!("a throwaway workspace of version {} has to come up first", version.name),
        changes: vec![Change::new(FIELD, Value::Null, shown(test, version))],
        effect: Effect::Test {
            organization: desired.organization.clone(),
            owner,
            workspace,
            made: OnceLock::new(),
            failure: mark(version, &TestResult::Failed(test.declared.key())),
        },
    }
}

/// The same before and after the version has an id, so that an approval holds.
fn shown(test: &Test, version: &Version) -> Value {
    format!("{} of version {}", test.declared.owner, version.name).into()
}

fn end_later(test: &Test, version: &Version) -> Step<Effect> {
    let effect = Effect::EndTest { workspace: None, mark: None, state: None };
    let reason = format!("the test of version {} is over", version.name);
    end(shown(test, version), reason, effect)
}

fn under_way(
    test: &Test,
    version: &Version,
    workspace: &Workspace,
    progress: &Progress,
    now: Timestamp,
) -> Testing {
    match progress {
        Progress::Starts(waits) => {
            Testing { steps: vec![end_later(test, version)], now: 0, waits: Some(waits.clone()) }
        }
        Progress::Passed => ended(test, version, workspace, &TestResult::Passed, None),
        Progress::Failed(why) => {
            let result = TestResult::Failed(test.declared.key());
            ended(test, version, workspace, &result, Some(why.clone()))
        }
        // Deleted by another client, before there was a result: the test begins anew.
        Progress::Leaves => {
            let steps = if removal(workspace, now) == Removal::Due {
                vec![end_former(workspace)]
            } else {
                vec![end_later(test, version)]
            };
            let waits = Some(is_deleted(workspace, "its test begins anew"));
            Testing { now: usize::from(removal(workspace, now) == Removal::Due), steps, waits }
        }
    }
}

/// The version, and its message with a result. `None` where the message has it.
fn mark(version: &Version, result: &TestResult) -> Option<(Uuid, String)> {
    let Found::Ours(found) = &version.found else { return None };
    // A version of the same content that another tool published gets a mark with its result.
    let marked = || version.material.recipe.message(Some(&found.message));
    let message = result.entered(&found.message).or_else(|| result.entered(&marked()));
    message.map(|it| (found.id, it))
}

/// The result is entered into the mark of the version, and the workspace deleted.
fn ended(
    test: &Test,
    version: &Version,
    workspace: &Workspace,
    result: &TestResult,
    why: Option<String>,
) -> Testing {
    let words = match &why {
        None => "every agent is ready".to_owned(),
        Some(why) => format!("version {} failed its test: {why}", version.name),
    };
    let waits = Some(is_deleted(workspace, &words));
    let state = version.id().map(|id| TemplateTestState {
        result: Some(result.word().to_owned()),
        message: why,
        ..identified(&begun(&workspace.name, &workspace.owner_name, id), workspace.id)
    });
    let mark = mark(version, result);
    let effect = Effect::EndTest { workspace: Some(Box::new(workspace.clone())), mark, state };
    let reason = format!("the test of version {} is over", version.name);
    Testing { steps: vec![end(shown(test, version), reason, effect)], now: 1, waits }
}

fn leaving(
    test: &Test,
    version: &Version,
    workspace: &Workspace,
    result: &TestResult,
    now: Timestamp,
) -> Testing {
    let words = match (result, &test.why) {
        (TestResult::Passed, _) => "every agent was ready".to_owned(),
        (TestResult::Failed(_), Some(why)) => format!("version {} failed its test: {why}", version.name),
        (TestResult::Failed(_), None) => format!("version {} failed its test", version.name),
    };
    let waits = Some(is_deleted(workspace, &words));
    let is_due = removal(workspace, now) == Removal::Due;
    let effect =
        Effect::EndTest { workspace: is_due.then(|| Box::new(workspace.clone())), mark: None, state: None };
    let reason = format!("the test of version {} is over", version.name);
    let step = end(shown(test, version), reason, effect);
    Testing { steps: vec![step], now: usize::from(is_due), waits }
}

fn is_deleted(workspace: &Workspace, words: &str) -> Blocked {
    let state = if has_failed_deletion(workspace) { AGAIN } else { "is deleted" };
    let message = format!("test workspace {} {state}: {words}", full_name(workspace));
    Blocked { reason: Reason::VersionTesting, message }
}

/// The version is archived, and stays untested until the manifest changes.
fn failed(desired: &Desired, test: &Test, version: &Version, is_active: bool, has_template: bool) -> Testing {
    let mut steps = Vec::new();
    if let Found::Ours(found) = &version.found
        && has_template
        && !is_active
        && !found.archived
        && !desired.is_observed
    {
        steps.push(archive(found.id, format!("version {} failed its test", version.name)));
    }
    let why = test.why.as_ref().map_or_else(String::new, |it| format!(": {it}"));
    let stays = if is_active {
        "It is the active version, because a template has no other before its first: promote another one, or correct the source"
    } else {
        "The version is not promoted: correct the source or the variables, or change spec.version.test to test it again"
    };
    let message = format!("version {} failed its test{why}. {stays}", version.name);
    let waits = Blocked { reason: Reason::VersionFailed, message };
    Testing { now: steps.len(), steps, waits: Some(waits) }
}

/// The record of the test that the status should have. `None` where it has it, or where a workspace is about to be made.
pub(super) fn record(observed: &Observed) -> Option<TemplateTestState> {
    let recorded = observed.recorded_test.as_ref();
    let next = match next_record(observed) {
        Some(next) => next,
        None => known_by_id(recorded?, observed)?,
    };
    (recorded != Some(&next)).then_some(next)
}

/// The record with the id of its workspace, where Coder shows that.
fn known_by_id(recorded: &TemplateTestState, observed: &Observed) -> Option<TemplateTestState> {
    let is_it = |it: &&Workspace| {
        it.name == recorded.workspace && it.owner_name.eq_ignore_ascii_case(&recorded.owner)
    };
    let found = workspaces(observed).find(is_it)?;
    Some(identified(recorded, found.id)).filter(|_| recorded.is_open() && recorded.workspace_id.is_none())
}

/// The workspaces of all tests.
fn workspaces(observed: &Observed) -> impl Iterator<Item = &Workspace> {
    let test = observed.version.as_ref().and_then(|it| it.test.as_ref());
    let own = test.and_then(|it| it.workspace.as_ref()).map(|(it, _)| it);
    observed.former.iter().chain(own)
}

/// The record that replaces the one of the status. `None` where that stays.
fn next_record(observed: &Observed) -> Option<TemplateTestState> {
    let open = observed.recorded_test.as_ref().filter(|it| it.is_open());
    let is_gone = observed.hidden.is_none() && workspaces(observed).next().is_none();
    let of_version = observed.version.as_ref().and_then(|it| Some((it.id()?, it, it.test.as_ref()?)));
    let Some((id, version, test)) = of_version else {
        return open.filter(|_| is_gone).map(deleted);
    };
    let name = test.declared.workspace_name(&observed.test_prefix, id);
    let own = test.workspace.as_ref().map(|(it, _)| it);
    // The record of another workspace stays until that is gone: it alone has its id.
    let is_other = |it: &&TemplateTestState| it.workspace != name;
    if open.filter(is_other).is_some_and(|it| observed.hidden.is_some() || is_left(it, observed)) {
        return None;
    }
    let same = observed.recorded_test.as_ref().filter(|it| it.workspace == name);
    let begun = begun(&name, &test.declared.owner, id);
    if test.result.is_some() && !test.is_recorded {
        let made = own.map(|it| it.id.to_string());
        return Some(TemplateTestState {
            workspace_id: made.or_else(|| same.and_then(|it| it.workspace_id.clone())),
            result: test.result.as_ref().map(|it| it.word().to_owned()),
            message: same.and_then(|it| it.message.clone()).or_else(|| test.why.clone()),
            deleted: is_gone.then_some(true),
            ..begun
        });
    }
    let goes_on = test.result.is_none()
        && version.is_built()
        && test.is_wanted
        && test.owner.is_none()
        && observed.may_write;
    match own {
        // The intent of a creation stays until there is a result.
        None if goes_on => None,
        Some(own) if goes_on => Some(identified(same.filter(|it| it.is_open()).unwrap_or(&begun), own.id)),
        _ => open.filter(|_| is_gone).map(deleted),
    }
}

/// Whether Coder shows the workspace of a test on record.
fn is_left(open: &TemplateTestState, observed: &Observed) -> bool {
    let is_it = |it: &Workspace| match &open.workspace_id {
        Some(id) => it.id.to_string() == *id,
        None => it.name == open.workspace,
    };
    workspaces(observed).any(is_it)
}

fn deleted(open: &TemplateTestState) -> TemplateTestState {
    TemplateTestState { deleted: Some(true), ..open.clone() }
}
