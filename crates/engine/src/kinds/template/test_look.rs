//! What Coder has of the test of a version: its workspace, those of earlier tests, and the owner.

use api::TemplateTestState;
use client::{organizations::Organization, templates::Template as Remote, workspaces::Workspace};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::{
    Desired,
    recipe::TestResult,
    test_owner,
    test_trace::{self, Left},
    test_workspace::{Progress, Test},
    version::{Found, Version, failure},
};
use crate::{coder::Coder, pipeline::outcome::Trouble};

/// Adds the test to a version, and returns what is left of earlier versions and tests.
pub(super) async fn observe(
    desired: &Desired,
    version: Option<&mut Version>,
    template: Option<&Remote>,
    home: &Organization,
    coder: &Coder,
) -> Result<Left, Trouble> {
    let recorded = desired.recorded_test.as_ref();
    let test = version.as_ref().and_then(|it| it.test.as_ref());
    let may_have_some =
        desired.is_leaving || recorded.is_some_and(TemplateTestState::is_open) || test.is_some_and(is_open);
    if !may_have_some {
        return Ok(Left::default());
    }
    let is_ours = |it: &Workspace| {
        let number = it.name.strip_prefix(&desired.test_prefix);
        number.is_some_and(|it| it.len() == 8 && it.bytes().all(|it| it.is_ascii_hexdigit()))
    };
    let mut found = named(&desired.test_prefix, home, coder).await?;
    found.retain(is_ours);
    // The template had another name when its last test began.
    if let Some(before) =
        recorded.filter(|it| it.is_open() && !it.workspace.starts_with(&desired.test_prefix))
    {
        let former = named(&before.workspace, home, coder).await?;
        found.extend(former.into_iter().filter(|it| it.name == before.workspace));
    }
    // A workspace of another template is never a test of this one, even with a matching name.
    found.retain(|it| template.is_none_or(|template| it.template_id == template.id));
    let mut left = Left { former: found, hidden: None };
    if let Some(open) = recorded.filter(|it| it.is_open()) {
        left.trace(open, Some(home.id), coder).await?;
    }
    let Some(version) = version else { return Ok(left) };
    let Some(mut test) = version.test.take() else { return Ok(left) };
    let name = version.id().map(|it| test.declared.workspace_name(&desired.test_prefix, it));
    let is_active = template.is_none_or(|it| version.id() == Some(it.active_version_id));
    test.is_wanted = version.activates || is_active;
    if test.result.is_none() {
        test.owner = test_owner::refused(&test.declared.owner, desired, template, home, coder).await?;
    }
    let owner = test.declared.owner.as_str();
    let is_it = |it: &Workspace| Some(&it.name) == name.as_ref() && it.owner_name.eq_ignore_ascii_case(owner);
    // A test that does not go on leaves no workspace.
    let goes_on = test.is_wanted && test.owner.is_none() && !desired.is_observed;
    if let Some(index) = left.former.iter().position(is_it).filter(|_| goes_on) {
        let workspace = left.former.swap_remove(index);
        let progress = progress(&workspace, &test, version, coder).await?;
        test.workspace = Some((workspace, progress));
    }
    if let Some(name) = name.filter(|_| test.result.is_some()) {
        let known = recorded.filter(|it| it.workspace == name).and_then(|it| it.message.clone());
        test.why = known.or_else(|| coder.failed_test(&name));
    }
    version.test = Some(test);
    Ok(left)
}

/// The workspace on record, where Coder has it. `held` is the template on record: no other has a test workspace of the manifest.
/// `home` is `None` where Coder does not show the organization.
pub(super) async fn recorded(
    open: &TemplateTestState,
    held: Option<Uuid>,
    home: Option<&Organization>,
    coder: &Coder,
) -> Result<Left, Trouble> {
    let mut left = Left::default();
    if test_trace::id(open).is_some() {
        left.trace(open, home.map(|it| it.id), coder).await?;
        return Ok(left);
    }
    let Some(home) = home else { return Ok(left) };
    left.former = named(&open.workspace, home, coder).await?;
    left.former.retain(|it| {
        it.name == open.workspace
            && it.owner_name.eq_ignore_ascii_case(&open.owner)
            && held.is_none_or(|held| it.template_id == held)
    });
    Ok(left)
}

/// Whether something may be left to do for a test.
fn is_open(test: &Test) -> bool {
    // The mark does not tell whether the workspace is gone.
    !test.is_recorded
}

/// The workspaces of an organization whose names begin with this.
async fn named(start: &str, home: &Organization, coder: &Coder) -> Result<Vec<Workspace>, Trouble> {
    let mut found = coder.client().workspaces_named(home.id, start.trim_end_matches('-')).await?;
    found.retain(|it| it.name.starts_with(start));
    Ok(found)
}

async fn progress(
    workspace: &Workspace,
    test: &Test,
    version: &Version,
    coder: &Coder,
) -> Result<Progress, Trouble> {
    let built = workspace.latest_build.as_ref().and_then(|it| it.template_version_id);
    if built.is_some() && version.id().is_some() && built != version.id() {
        let message = "another client has moved the workspace to another version".to_owned();
        return Ok(Progress::Failed(message));
    }
    let material = &version.material;
    let progress = test.declared.progress(workspace, &version.name, &material.tags, coder.now());
    let (Progress::Failed(_), Some(build)) = (&progress, &workspace.latest_build) else {
        return Ok(progress);
    };
    if !["failed", "canceled"].contains(&build.job.status.as_str()) {
        return Ok(progress);
    }
    let secrets: Vec<&str> = material.secrets().map(SecretString::expose_secret).collect();
    // A log may show the values that the version was built with: what is not known cannot be taken out of it.
    let is_known = match &version.found {
        Found::Ours(found) => !material.has_secrets() || material.recipe.has_values_of(&found.message),
        _ => !material.has_secrets(),
    };
    let logs = if is_known { coder.client().workspace_build_logs(build.id).await? } else { Vec::new() };
    Ok(Progress::Failed(without_ids(&failure(&logs, &build.job.error, &secrets))))
}

/// Takes ids out: the tokens of agents look like them.
fn without_ids(text: &str) -> String {
    let is_part = |it: char| it.is_ascii_hexdigit() || it == '-';
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_part) {
        let (before, run) = rest.split_at(at);
        let end = run.find(|it| !is_part(it)).unwrap_or(run.len());
        let (run, after) = run.split_at(end);
        cleaned.push_str(before);
        cleaned.push_str(if run.parse::<Uuid>().is_ok() { client::scrub::REDACTED } else { run });
        rest = after;
    }
    cleaned.push_str(rest);
    cleaned
}

/// The result of the declared test in the mark of a version. That of another test does not count, unless it was passed.
pub(super) fn result(message: &str, key: &str) -> Option<TestResult> {
    TestResult::of(message).filter(|it| !matches!(it, TestResult::Failed(other) if other != key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_out_of_the_words_of_a_failed_build() {
        let token = "9d3c8a2e-7d1f-4c1c-9a65-2f6f0d5f7a11";
        let text = format!("Error: \"{token}\" is bad, deed-beef {token}");
        assert_eq!(without_ids(&text), "Error: \"[redacted]\" is bad, deed-beef [redacted]");
        assert_eq!(without_ids("added \u{2502} fade"), "added \u{2502} fade");
    }
}
