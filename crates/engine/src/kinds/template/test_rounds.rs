//! The steps of the test of a version, and how far they can be carried out now. Pure.

use api::{Reason, TemplateTestState};
use client::workspaces::Workspace;
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Desired, Effect, Observed,
    archival::{archive, unarchive},
    recipe::TestResult,
    test_workspace::{Progress, Removal, Test, begun, full_name, removal},
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

/// What is left of a test.
#[derive(Debug)]
pub(super) struct Testing {
    pub(super) steps: Vec<Step<Effect>>,
    /// The number of steps that can be done now.
    pub(super) now: usize,
    /// What the steps after the test wait for. `None` once the test is passed, and its workspace gone.
    pub(super) waits: Option<Blocked>,
}

/// The steps that delete the test workspaces of earlier versions and tests. `None` where there are none.
pub(super) fn clean_up(observed: &Observed) -> Option<Testing> {
    let first = observed.former.first()?;
    let due = |it: &&Workspace| removal(it, observed.now) == Removal::Due;
    let steps: Vec<Step<Effect>> = observed.former.iter().filter(due).map(end_former).collect();
    let message = format!("test workspace {} of an earlier test is deleted first", full_name(first));
    let waits = Blocked { reason: Reason::VersionTesting, message };
    Some(Testing { now: steps.len(), steps, waits: Some(waits) })
}

/// The steps that delete the workspace of a test on record, for a manifest that cannot be compared.
pub(super) fn leftovers(open: &TemplateTestState, left: &[Workspace], now: Timestamp) -> Leftovers<Effect> {
    let due = left.iter().filter(|it| removal(it, now) == Removal::Due);
    let steps = due.map(end_former).collect();
    let mut aside = Aside::default();
    if left.is_empty() {
        let gone = TemplateTestState { deleted: Some(true), ..open.clone() };
        aside.status.insert("test".to_owned(), json!(gone));
    }
    Leftovers { plan: Plan { steps }, aside }
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
    let changes = vec![Change { field: FIELD.to_owned(), before, after: Value::Null }];
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
        (None, None) => Some(start(desired, test, version)),
        (None, Some((workspace, progress))) => {
            Some(under_way(test, version, workspace, progress, observed.now))
        }
    }
}

/// The workspace is made, and everything after it waits.
fn start(desired: &Desired, test: &Test, version: &Version) -> Testing {
    let mut steps = Vec::new();
    if let Found::Ours(found) = &version.found
        && found.archived
    {
        steps.push(unarchive(version, found.id));
    }
    steps.push(create(desired, test, version));
    let now = steps.len();
    steps.push(end_later(test, version));
    let message =
        format!("test workspace of version {} is starting for {}", version.name, test.declared.owner);
    let waits = Blocked { reason: Reason::VersionTesting, message };
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
        changes: vec![Change { field: FIELD.to_owned(), before: Value::Null, after: shown(test, version) }],
        effect: Effect::Test {
            organization: desired.organization.clone(),
            owner,
            workspace,
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
        ..begun(&workspace.name, &workspace.owner_name, id)
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
    let build = workspace.latest_build.as_ref().filter(|it| it.transition == "delete");
    let state = match build.map(|it| it.job.status.as_str()) {
        Some("failed" | "canceled") => {
            "could not be deleted, and is deleted again after 5 minutes: look at the log of its last build"
        }
        _ => "is deleted",
    };
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
    let test = observed.version.as_ref().and_then(|it| it.test.as_ref());
    let is_gone = observed.former.is_empty() && test.is_none_or(|it| it.workspace.is_none());
    let next = match (&observed.version, test) {
        (Some(version), Some(test)) if test.result.is_some() && !test.is_recorded => {
            let id = version.id()?;
            let name = test.declared.workspace_name(&observed.test_prefix, id);
            let why = recorded.filter(|it| it.workspace == name).and_then(|it| it.message.clone());
            TemplateTestState {
                result: test.result.as_ref().map(|it| it.word().to_owned()),
                message: why.or_else(|| test.why.clone()),
                deleted: is_gone.then_some(true),
                ..begun(&name, &test.declared.owner, id)
            }
        }
        // The intent of a creation stays until there is a result.
        (Some(version), Some(test))
            if test.result.is_none()
                && version.is_built()
                && test.is_wanted
                && test.owner.is_none()
                && observed.may_write =>
        {
            return None;
        }
        _ => {
            let open = recorded.filter(|it| it.is_open() && is_gone)?;
            TemplateTestState { deleted: Some(true), ..open.clone() }
        }
    };
    (recorded != Some(&next)).then_some(next)
}
