//! The writes of the test of a version.

use api::Reason;
use client::{
    Class,
    workspaces::{CreateWorkspace, Workspace},
};
use uuid::Uuid;

use super::{
    Effect,
    test_workspace::{full_name, is_unprovisioned},
};
use crate::{
    coder::Coder,
    pipeline::outcome::{Blocked, Trouble},
};

/// Does a step of a test.
pub(super) async fn apply(effect: &Effect, coder: &Coder) -> Result<(), Trouble> {
    match effect {
        Effect::Test { organization, owner, workspace, made, failure } => {
            let wanted = workspace.as_ref().map(|(it, _)| &**it);
            let id = begin(organization, owner, wanted, failure.as_ref(), coder).await?;
            made.set(id).ok();
            Ok(())
        }
        Effect::EndTest { workspace, mark, state } => {
            end(workspace.as_deref(), mark.as_ref(), coder).await?;
            let why = state.as_ref().and_then(|it| Some((&it.workspace, it.message.as_ref()?)));
            if let Some((name, why)) = why {
                coder.note_failed_test(name, why);
            }
            Ok(())
        }
        Effect::DeleteWorkspace { workspace, is_due } => delete_first(workspace, *is_due, coder).await,
        _ => Ok(()),
    }
}

fn not_built() -> Blocked {
    Blocked { reason: Reason::VersionBuilding, message: "the version is not built yet".to_owned() }
}

/// Makes the workspace, and returns its id. The version fails its test where Coder refuses the request, as for a parameter without a value.
async fn begin(
    organization: &str,
    owner: &str,
    wanted: Option<&CreateWorkspace>,
    failure: Option<&(Uuid, String)>,
    coder: &Coder,
) -> Result<Uuid, Trouble> {
    let home = coder.organization_id(organization).await?;
    let wanted = wanted.ok_or_else(not_built)?;
    match coder.client().create_workspace(home, owner, wanted).await {
        // A workspace of an earlier attempt: the next assessment finds it.
        Err(error) if error.class() == Class::Conflict => Err(Trouble::Stale),
        // Not every refusal on the way to Coder is one of the request: Coder names the fields.
        Err(error) if error.class() == Class::Invalid && !error.validations().is_empty() => {
            let Some((version, message)) = failure else { return Err(error.into()) };
            coder.client().set_version_message(*version, message).await?;
            let why = format!("Coder refuses to make a workspace of it: {}", error.words());
            coder.note_failed_test(&wanted.name, &why);
            let message = format!("test workspace {owner}/{} is not made: {why}", wanted.name);
            Err(Blocked { reason: Reason::VersionTesting, message }.into())
        }
        Err(error) => Err(error.into()),
        Ok(made) => Ok(made.id),
    }
}

/// Enters the result into the mark of the version, and begins to delete the workspace.
async fn end(
    workspace: Option<&Workspace>,
    mark: Option<&(Uuid, String)>,
    coder: &Coder,
) -> Result<(), Trouble> {
    let workspace = workspace.ok_or_else(not_built)?;
    if let Some((version, message)) = mark {
        coder.client().set_version_message(*version, message).await?;
    }
    remove(workspace, coder).await
}

/// Begins to delete a workspace. A build that is under way is canceled first; the deletion follows once that has ended.
async fn remove(workspace: &Workspace, coder: &Coder) -> Result<(), Trouble> {
    let client = coder.client();
    let mut orphan = false;
    if let Some(build) = &workspace.latest_build {
        orphan = is_unprovisioned(build);
        let is_under_way = ["pending", "running"].contains(&build.job.status.as_str());
        if is_under_way {
            // A build that has ended meanwhile is refused.
            let has_ended = [Class::Conflict, Class::Invalid, Class::Missing];
            match client.cancel_workspace_build(build.id).await {
                Err(error) if !has_ended.contains(&error.class()) => return Err(error.into()),
                _ => {}
            }
        }
    }
    match client.delete_workspace(workspace.id, orphan).await {
        Err(error) if error.class() == Class::Conflict => Ok(()),
        // It is gone.
        Err(error) if error.class() == Class::Missing => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

/// Deletes a workspace before its template, and waits until it is gone.
async fn delete_first(workspace: &Workspace, is_due: bool, coder: &Coder) -> Result<(), Trouble> {
    if is_due {
        remove(workspace, coder).await?;
    }
    let message = format!("test workspace {} is deleted first", full_name(workspace));
    Err(Blocked { reason: Reason::VersionTesting, message }.into())
}
