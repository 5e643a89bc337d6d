//! The test of a version: a throwaway workspace that has to come up before the version is promoted.
//!
//! The name of the workspace follows from the manifest, the version and the declared test, so that a workspace of an earlier
//! attempt is found again without a record. The result of a test is kept in the mark of the version.

use std::collections::BTreeMap;

use api::{Reason, TemplateTestState, TemplateVersionTest, parse_duration};
use client::{
    members::MemberRef,
    users::User,
    workspaces::{CreateWorkspace, Workspace, WorkspaceAgent, WorkspaceBuild, WorkspaceParameter},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::recipe::TestResult;
use crate::{
    coder::missing,
    pipeline::outcome::{Blocked, Invalid},
};

const TIMEOUT: SignedDuration = SignedDuration::from_mins(15);
const SHORTEST: SignedDuration = SignedDuration::from_secs(10);
/// How long after a failed deletion the next one begins.
const DELETE_AGAIN: SignedDuration = SignedDuration::from_mins(5);
/// The roles of every member of an organization.
const PLAIN: [&str; 4] =
    ["member", "organization-member", "organization-service-account", "organization-workspace-access"];
/// The states of an agent from which it does not become ready any more.
const LOST: [&str; 6] =
    ["start_error", "start_timeout", "shutting_down", "shutdown_timeout", "shutdown_error", "off"];

/// A test that the manifest declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DesiredTest {
    pub(crate) owner: String,
    parameters: BTreeMap<String, String>,
    timeout: SignedDuration,
}

/// A test, and what Coder has of it.
#[derive(Debug)]
pub(crate) struct Test {
    pub(crate) declared: DesiredTest,
    /// The result in the mark of the version. `None` until there is one, and where it is that of another test.
    pub(crate) result: Option<TestResult>,
    /// Whether the version is to be tested: it is active, or is to be promoted.
    pub(crate) is_wanted: bool,
    /// Whether the status says that the version passed its test, and that the workspace is gone.
    pub(crate) is_recorded: bool,
    /// Why the version failed, as far as it is known.
    pub(crate) why: Option<String>,
    /// The workspace, with its progress.
    pub(crate) workspace: Option<(Workspace, Progress)>,
    /// Why the owner cannot own the workspace. `None` also where the owner was not read, because the test is over.
    pub(crate) owner: Option<Blocked>,
}

/// How far a workspace has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The workspace is starting.
    Starts(Blocked),
    Passed,
    /// The workspace does not come up; why.
    Failed(String),
    /// Coder deletes the workspace, or could not.
    Leaves,
}

/// What is to be done about a workspace that has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// A build of the workspace has to be canceled, or a deletion to be started.
    Due,
    /// A build is under way.
    Awaited,
}

impl DesiredTest {
    pub(crate) fn declared(spec: &TemplateVersionTest) -> Result<Self, Invalid> {
        let field = "spec.version.test.timeout";
        let timeout = match &spec.timeout {
            None => TIMEOUT,
            Some(text) => parse_duration(text)
                .and_then(|it| SignedDuration::try_from(it).ok())
                .filter(|it| *it >= SHORTEST)
                .ok_or_else(|| Invalid::new(field, "must be a duration of at least 10s, as 15m"))?,
        };
        if spec.owner.is_empty() {
            return Err(Invalid::new("spec.version.test.owner", "must name a user"));
        }
        let parameters = spec.parameters.clone().unwrap_or_default();
        Ok(Self { owner: spec.owner.clone(), parameters, timeout })
    }

    /// Identifies the test among those of a version.
    pub(crate) fn key(&self) -> String {
        short(&json!([self.owner, self.parameters, self.timeout.as_secs()]).to_string())
    }

    /// The name of the workspace in which a version is tested.
    pub(crate) fn workspace_name(&self, prefix: &str, version: Uuid) -> String {
        format!("{prefix}{}", short(&format!("{version} {}", self.key())))
    }

    /// The workspace in which a version is tested.
    pub(crate) fn workspace(&self, name: &str, version: Uuid) -> CreateWorkspace {
        let parameter = |(name, value): (&String, &String)| WorkspaceParameter {
            name: name.clone(),
            value: value.clone(),
        };
        CreateWorkspace {
            name: name.to_owned(),
            template_version_id: version,
            rich_parameter_values: self.parameters.iter().map(parameter).collect(),
        }
    }

    /// How far a workspace has come. The reason of a failed build is not known here.
    pub(crate) fn progress(
        &self,
        workspace: &Workspace,
        version: &str,
        tags: &BTreeMap<String, String>,
        now: Timestamp,
    ) -> Progress {
        let name = full_name(workspace);
        let waits = |reason, what: &str| {
            let message = format!("test workspace {name} of version {version} is starting: {what}");
            Progress::Starts(Blocked { reason, message })
        };
        let Some(build) = &workspace.latest_build else {
            return waits(Reason::VersionTesting, "it has no build yet");
        };
        match build.transition.as_str() {
            "delete" => return Progress::Leaves,
            "start" => {}
            // A workspace that does not run has no agents that could be missed.
            other => {
                return Progress::Failed(format!("another client began a {other} build of the workspace"));
            }
        }
        let is_late = workspace.created_at.is_some_and(|it| now.duration_since(it) >= self.timeout);
        let late = |what: &str| {
            let limit = self.timeout;
            Progress::Failed(format!("the workspace did not come up within {limit:#}: {what}"))
        };
        match build.job.status.as_str() {
            "failed" | "canceled" => return Progress::Failed(build.job.error.clone()),
            "succeeded" => {}
            status => {
                let is_unmatched = build.matched_provisioners.is_some_and(|it| it.count == 0);
                if status == "pending" && is_unmatched {
                    let what = format!(
                        "no provisioner daemon of the organization with the tags {} is connected",
                        json!(tags)
                    );
                    if is_late {
                        return late(&what);
                    }
                    return waits(
                        Reason::NoProvisioner,
                        &format!("{what}: start one. The test goes on waiting"),
                    );
                }
                let what = format!("its build is {status}");
                return if is_late { late(&what) } else { waits(Reason::VersionTesting, &what) };
            }
        }
        let agents: Vec<&WorkspaceAgent> = build.resources.iter().flat_map(|it| &it.agents).collect();
        if let Some(lost) = agents.iter().find(|it| LOST.contains(&it.lifecycle_state.as_str())) {
            let what = if lost.lifecycle_state.starts_with("start_") {
                "its startup script failed"
            } else {
                "it stops"
            };
            return Progress::Failed(format!("agent {} is {}: {what}", lost.name, lost.lifecycle_state));
        }
        let open: Vec<String> = agents
            .iter()
            .filter(|it| it.status != "connected" || it.lifecycle_state != "ready")
            .map(|it| format!("agent {} is {} and {}", it.name, it.status, it.lifecycle_state))
            .collect();
        match (open.is_empty(), is_late) {
            (true, _) => Progress::Passed,
            (false, true) => late(&open.join(", ")),
            (false, false) => waits(Reason::VersionTesting, &open.join(", ")),
        }
    }
}

impl Test {
    pub(crate) fn new(declared: DesiredTest, is_recorded: bool) -> Self {
        let result = is_recorded.then_some(TestResult::Passed);
        Self { declared, result, is_wanted: true, is_recorded, why: None, workspace: None, owner: None }
    }
}

/// What the names of all test workspaces of a manifest begin with.
pub(crate) fn prefix(target: &str) -> String {
    format!("test-{}-", short(target))
}

/// A workspace as people name it.
pub(crate) fn full_name(workspace: &Workspace) -> String {
    format!("{}/{}", workspace.owner_name, workspace.name)
}

fn short(text: &str) -> String {
    base16ct::lower::encode_string(&Sha256::digest(text)[..4])
}

/// What is to be done about a workspace that has to go.
pub(crate) fn removal(workspace: &Workspace, now: Timestamp) -> Removal {
    let Some(build) = &workspace.latest_build else { return Removal::Due };
    let is_under_way = ["pending", "running", "canceling"].contains(&build.job.status.as_str());
    let is_recent = build.created_at.is_some_and(|it| now.duration_since(it) < DELETE_AGAIN);
    match build.transition.as_str() {
        // A failed deletion is repeated, but not at once.
        "delete" if is_under_way || is_recent => Removal::Awaited,
        "delete" => Removal::Due,
        _ if build.job.status == "canceling" => Removal::Awaited,
        _ => Removal::Due,
    }
}

/// Whether the last build of a workspace should have deleted it, and did not.
pub(crate) fn has_failed_deletion(workspace: &Workspace) -> bool {
    let build = workspace.latest_build.as_ref().filter(|it| it.transition == "delete");
    build.is_some_and(|it| ["failed", "canceled"].contains(&it.job.status.as_str()))
}

/// When there is something to do about a workspace that has to go, or to see.
pub(crate) fn removed_at(workspace: &Workspace, now: Timestamp) -> Timestamp {
    let build = workspace.latest_build.as_ref().filter(|_| has_failed_deletion(workspace));
    let failed = build.and_then(|it| it.created_at?.checked_add(DELETE_AGAIN).ok());
    let soon = Reason::VersionTesting.polled_every().unwrap_or_default();
    failed.filter(|it| *it > now).unwrap_or_else(|| now.saturating_add(soon).unwrap_or(now))
}

/// Whether nothing was ever provisioned for a workspace: no daemon has taken its first build.
pub(crate) fn is_unprovisioned(build: &WorkspaceBuild) -> bool {
    let never_ran =
        build.job.started_at.is_none() && ["pending", "canceled"].contains(&build.job.status.as_str());
    build.transition == "start" && never_ran
}

/// The record of a test in the status, before its result is known.
pub(crate) fn begun(workspace: &str, owner: &str, version: Uuid) -> TemplateTestState {
    TemplateTestState {
        workspace: workspace.to_owned(),
        owner: owner.to_owned(),
        version: version.to_string(),
        ..TemplateTestState::default()
    }
}

/// The record of a test with the id of its workspace.
pub(crate) fn identified(test: &TemplateTestState, workspace: Uuid) -> TemplateTestState {
    TemplateTestState { workspace_id: Some(workspace.to_string()), ..test.clone() }
}

/// Why an account cannot own a test workspace: Terraform gets a token with all rights of the owner. `memberships` are those in
/// every organization, with the name of the organization, and `None` where Coder does not show one. `grant` is how the account
/// administers the template.
pub(crate) fn refusal(
    user: &User,
    memberships: &[(String, Option<MemberRef>)],
    grant: Option<&str>,
) -> Option<Blocked> {
    let User { username, status, login_type, .. } = user;
    let too_much = |role: &str, place: &str| {
        format!(
            "{username} has the role {role}{place}, and Terraform gets a token of the owner: take the role away, or set a \
             service account without roles"
        )
    };
    let site = user.roles.iter().map(|it| it.name.as_str()).find(|it| !PLAIN.contains(it));
    let local = memberships.iter().find_map(|(organization, member)| {
        let role = member.as_ref()?.roles.iter().find(|it| !PLAIN.contains(&it.name.as_str()))?;
        Some((organization, role.name.as_str()))
    });
    let hidden = memberships.iter().find(|(_, member)| member.is_none());
    let why = if let Some(role) = site {
        too_much(role, "")
    } else if let Some((organization, role)) = local {
        too_much(role, &format!(" in organization {organization}"))
    } else if let Some((organization, _)) = hidden {
        format!(
            "{username} is a member of organization {organization}, and Coder does not show with which roles: let the account of \
             the control plane read the members of that organization, or set another service account"
        )
    } else if let Some(grant) = grant {
        format!(
            "{username} administers the template: {grant}, and Terraform gets a token of the owner: take the role away, or set \
             another service account"
        )
    } else if login_type != "none" {
        format!(
            "{username} signs in with {login_type}, so it is the account of a person, and Terraform gets a token of the \
             owner: set a service account"
        )
    } else if status != "active" {
        format!("{username} is {status}: activate the account, or set an active service account")
    } else {
        return None;
    };
    let message = format!("spec.version.test.owner: {why}");
    Some(Blocked { reason: Reason::TestOwnerRefused, message })
}

/// The owner is not a member of the organization.
pub(crate) fn no_member(owner: &str, organization: &str) -> Blocked {
    missing(format!(
        "spec.version.test.owner: {owner} is not a member of organization {organization}: declare a CoderUser with it"
    ))
}

#[cfg(test)]
mod tests;
