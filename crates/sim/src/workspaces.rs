//! Workspaces in virtual time: their builds, which a daemon has to take, and their agents.

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, not_found},
    body::{self, Validations},
    builds,
    call::Call,
    names,
    rights::Right,
    state::{Start, State, Version, Workspace, WorkspaceBuild},
};

/// What becomes of the workspaces of a source.
pub(crate) fn start_of(source: &str) -> Start {
    let has = |word: &str| source.contains(word);
    match () {
        () if has("start-fails") => Start::BuildFails,
        () if has("never-connects") => Start::Silent,
        () if has("script-fails") => Start::ScriptFails,
        () if has("coder_agent") => Start::Ready,
        () => Start::NoAgent,
    }
}

/// The workspaces that are not deleted.
pub(crate) fn of<'a>(call: &'a Call<'_>) -> impl Iterator<Item = &'a Workspace> {
    live(call.state, call.now).map(|(_, it)| it)
}

/// Whether a workspace was last built with a version, and not to delete it.
pub(crate) fn uses(call: &Call<'_>, version: Uuid) -> bool {
    let is_kept = |it: &Workspace| it.builds.last().is_some_and(|it| it.transition != "delete");
    of(call).any(|it| it.version_id == version && is_kept(it))
}

fn live(state: &State, now: Timestamp) -> impl Iterator<Item = (&Uuid, &Workspace)> {
    state.workspaces.iter().filter(move |(_, it)| !is_deleted(state, it, now))
}

fn is_deleted(state: &State, workspace: &Workspace, now: Timestamp) -> bool {
    let last = workspace.builds.last().filter(|it| it.transition == "delete");
    last.is_some_and(|it| status(state, workspace, it, now) == "succeeded")
}

/// When a daemon took a build. `None` while none has.
fn taken_at(state: &State, workspace: &Workspace, build: &WorkspaceBuild) -> Option<Timestamp> {
    if build.is_canceled {
        return None;
    }
    let version = state.versions.get(&workspace.version_id)?;
    builds::first_daemon(state, version).map(|it| it.max(build.created_at))
}

/// When a build ends.
fn ended_at(state: &State, workspace: &Workspace, build: &WorkspaceBuild) -> Option<Timestamp> {
    let time = state.versions.get(&workspace.version_id)?.build_time;
    Some(taken_at(state, workspace, build)? + time)
}

/// The state of a build, in coderd's words.
fn status(state: &State, workspace: &Workspace, build: &WorkspaceBuild, now: Timestamp) -> &'static str {
    let fails = state.versions.get(&workspace.version_id).is_some_and(|it| it.start == Start::BuildFails);
    match ended_at(state, workspace, build) {
        _ if build.is_canceled => "canceled",
        // coderd ends such a build itself where no daemon can.
        None if build.is_orphan => "succeeded",
        None => "pending",
        Some(end) if now < end => "running",
        Some(_) if fails && build.transition == "start" => "failed",
        Some(_) => "succeeded",
    }
}

/// The workspaces that match `owner:NAME`, `template:NAME`, `name:PART` and `organization:ID`, the only terms that are
/// understood here.
pub(crate) fn list(call: &mut Call<'_>) -> Handled {
    let query = call.query("q").unwrap_or_default().to_owned();
    let limit = call.query("limit").and_then(|it| it.parse::<usize>().ok()).unwrap_or(usize::MAX);
    let owner = |it: &Workspace| call.state.users.get(&it.owner_id).filter(|it| !it.deleted);
    let matches = |(_, it): &(&Uuid, &Workspace)| {
        let template = call.state.templates.get(&it.template_id);
        query.split_whitespace().all(|term| match term.split_once(':') {
            Some(("owner", name)) => owner(it).is_some_and(|it| it.username.eq_ignore_ascii_case(name)),
            Some(("template", name)) => template.is_some_and(|it| it.name() == name),
            Some(("name", part)) => it.name.to_lowercase().contains(&part.to_lowercase()),
            Some(("organization", id)) => template.is_some_and(|it| it.organization_id.to_string() == id),
            _ => false,
        })
    };
    let found: Vec<Value> = live(call.state, call.now)
        .filter(|(_, it)| is_visible(call, it))
        .filter(matches)
        .map(|(id, it)| shown(call.state, *id, it, call.now))
        .collect();
    let count = found.len();
    let found: Vec<Value> = found.into_iter().take(limit).collect();
    Ok(Answer::ok(json!({"workspaces": found, "count": count})))
}

pub(crate) fn create(call: &mut Call<'_>) -> Handled {
    let home = call.organization()?;
    let (home, owner) = (home.id, call.user()?);
    let is_member = call.state.organizations.get(&home).is_some_and(|it| it.members.contains_key(&owner.id));
    let owner = owner.id;
    if !is_member {
        return Err(not_found());
    }
    let fields = call.fields("CreateWorkspaceRequest")?;
    let name = fields.plain("name")?;
    let id = fields.text("template_version_id")?.and_then(|it| body::uuid(&it).ok()).unwrap_or_default();
    let mut validations = Validations::default();
    validations.check("template_id", &Uuid::nil().to_string(), "required_without", !id.is_nil());
    validations.check("template_version_id", &Uuid::nil().to_string(), "required_without", !id.is_nil());
    validations.check("name", &name, "workspace_name", names::is_name(&name));
    validations.done()?;
    let version = usable(call, id)?;
    let is_named = |it: &Workspace| it.owner_id == owner && it.name.eq_ignore_ascii_case(&name);
    if of(call).any(is_named) {
        let message = format!("Workspace \"{name}\" already exists.");
        return Err(
            Answer::message(409, message).field("name", "This value is already in use and should be unique.")
        );
    }
    match builds::status(call.state, &version, call.now) {
        state @ ("pending" | "running") => {
            let message =
                format!("The provided template version is {state}. Wait for it to complete importing!");
            return Err(Answer::message(406, message.clone()).detail(message));
        }
        "failed" => {
            let message = format!(
                "The provided template version \"{}\" has failed to import: \"\". You cannot build workspaces with it!",
                version.name
            );
            return Err(Answer::message(400, message.clone()).detail(message));
        }
        _ => {}
    }
    let value = |it: &Value, field: &str| it[field].as_str().unwrap_or_default().to_owned();
    let parameters =
        fields.any("rich_parameter_values").and_then(Value::as_array).cloned().unwrap_or_default();
    let workspace = Workspace {
        name,
        owner_id: owner,
        template_id: version.template_id.unwrap_or_default(),
        version_id: version.id,
        created_at: call.now,
        parameters: parameters.iter().map(|it| (value(it, "name"), value(it, "value"))).collect(),
        builds: vec![new_build(call, "start", false)],
    };
    let id = call.ids().uuid();
    let answer = shown(call.state, id, &workspace, call.now);
    call.changed("workspace", (id, &workspace.name), Value::Null, json!({"name": workspace.name}));
    call.state.workspaces.insert(id, workspace);
    Ok(Answer::created(answer))
}

/// The version, where a workspace can be made of it.
fn usable(call: &Call<'_>, id: Uuid) -> Result<Version, Answer> {
    let refused = |status, message: String, detail: &str| {
        Answer::message(status, message).field("template_version_id", detail)
    };
    let Some(version) = call.state.versions.get(&id) else {
        return Err(refused(400, format!("Template version \"{id}\" doesn't exist."), "template not found"));
    };
    if version.archived {
        let message = "Archived template versions cannot be used to make a workspace.".to_owned();
        return Err(refused(500, message, "template version archived"));
    }
    let template = version.template_id.unwrap_or_default();
    let Some(template) = call.state.templates.get(&template) else {
        let message = format!("Template \"{template}\" doesn't exist.");
        return Err(Answer::message(400, message).field("template_id", "template not found"));
    };
    if template.deleted {
        return Err(Answer::message(404, format!("Template \"{}\" has been deleted!", template.name())));
    }
    if !call.may(Right::ManageWorkspaces) {
        return Err(Answer::message(403, "Unauthorized to create workspace.").detail(
            "You are unable to create a workspace in this organization. It is possible to have access to the template, \
             but not be able to create a workspace. Please contact an administrator about your permissions if you feel \
             this is an error.",
        ));
    }
    Ok(version.clone())
}

fn new_build(call: &mut Call<'_>, transition: &str, is_orphan: bool) -> WorkspaceBuild {
    WorkspaceBuild {
        id: call.ids().uuid(),
        job_id: call.ids().uuid(),
        transition: transition.to_owned(),
        created_at: call.now,
        is_canceled: false,
        is_orphan,
    }
}

/// The id in a path.
fn id(call: &Call<'_>, parameter: &str) -> Result<Uuid, Answer> {
    let wanted = call.parameter(parameter);
    let invalid = |why| Answer::message(400, format!("Invalid UUID \"{wanted}\".")).detail(why);
    body::uuid(wanted).map_err(invalid)
}

/// Whether the caller may see a workspace.
fn is_visible(call: &Call<'_>, workspace: &Workspace) -> bool {
    workspace.owner_id == call.caller || call.may(Right::ReadWorkspaces)
}

pub(crate) fn read(call: &mut Call<'_>) -> Handled {
    let id = id(call, "workspace")?;
    let workspace = call.state.workspaces.get(&id).filter(|it| is_visible(call, it)).ok_or_else(not_found)?;
    if is_deleted(call.state, workspace, call.now) {
        let message = format!(
            "Workspace \"{id}\" was deleted, you can view this workspace by specifying '?include_deleted=true' and trying \
             again."
        );
        return Err(Answer::message(410, message));
    }
    Ok(Answer::ok(shown(call.state, id, workspace, call.now)))
}

/// Deletes a workspace.
pub(crate) fn build(call: &mut Call<'_>) -> Handled {
    let id = id(call, "workspace")?;
    let workspace = live(call.state, call.now).find(|(it, _)| **it == id).map(|(_, it)| it.clone());
    let workspace = workspace.filter(|_| call.may(Right::ManageWorkspaces)).ok_or_else(not_found)?;
    let fields = call.fields("CreateWorkspaceBuildRequest")?;
    let last = workspace.builds.last().map(|it| status(call.state, &workspace, it, call.now));
    if last.is_some_and(|it| ["pending", "running"].contains(&it)) {
        let message = "A workspace build is already active.";
        return Err(Answer::message(409, message).detail(message));
    }
    let build = new_build(call, &fields.plain("transition")?, fields.flag("orphan")?);
    let shown = shown_build(call.state, &workspace, &build, call.now);
    call.changed(
        "workspace_build",
        (build.id, &workspace.name),
        Value::Null,
        json!({"transition": build.transition}),
    );
    if let Some(found) = call.state.workspaces.get_mut(&id) {
        found.builds.push(build);
    }
    Ok(Answer::created(shown))
}

/// The workspace of a build in the path, and the number of the build.
fn of_build(call: &Call<'_>) -> Result<(Uuid, usize), Answer> {
    let wanted = id(call, "workspacebuild")?;
    let found = call.state.workspaces.iter().find_map(|(id, it)| {
        let number = it.builds.iter().position(|it| it.id == wanted)?;
        Some((*id, number))
    });
    found.filter(|_| call.may(Right::ManageWorkspaces)).ok_or_else(not_found)
}

pub(crate) fn cancel(call: &mut Call<'_>) -> Handled {
    let (id, number) = of_build(call)?;
    let workspace = call.state.workspaces.get(&id).cloned().ok_or_else(not_found)?;
    let status = workspace.builds.get(number).map(|it| status(call.state, &workspace, it, call.now));
    if !status.is_some_and(|it| ["pending", "running"].contains(&it)) {
        return Err(Answer::message(400, "Job has already completed!"));
    }
    let build = call.state.workspaces.get_mut(&id).and_then(|it| it.builds.get_mut(number));
    if let Some(build) = build {
        build.is_canceled = true;
    }
    Ok(Answer::message(200, "Job has been marked as canceled..."))
}

pub(crate) fn logs(call: &mut Call<'_>) -> Handled {
    let (id, number) = of_build(call)?;
    let workspace = call.state.workspaces.get(&id).ok_or_else(not_found)?;
    let build = workspace.builds.get(number).ok_or_else(not_found)?;
    let mut lines = Vec::new();
    if status(call.state, workspace, build, call.now) == "failed" {
        lines.push(
            json!({"id": 1, "created_at": build.created_at, "log_source": "provisioner", "log_level": "error",
            "stage": "Starting workspace", "output": "Error: quota of the cloud is used up"}),
        );
    }
    Ok(Answer::ok(lines.into()))
}

fn shown(state: &State, id: Uuid, workspace: &Workspace, now: Timestamp) -> Value {
    let owner = state.users.get(&workspace.owner_id).filter(|it| !it.deleted);
    let mut shown = json!({"id": id, "name": workspace.name, "owner_name": owner.map(|it| it.username.as_str()),
        "template_id": workspace.template_id, "created_at": workspace.created_at});
    if let Some(build) = workspace.builds.last() {
        shown["latest_build"] = shown_build(state, workspace, build, now);
    }
    shown
}

fn shown_build(state: &State, workspace: &Workspace, build: &WorkspaceBuild, now: Timestamp) -> Value {
    let status = status(state, workspace, build, now);
    let mut job = json!({"id": build.job_id, "status": status, "created_at": build.created_at});
    if let Some(taken) = taken_at(state, workspace, build) {
        job["started_at"] = json!(taken);
    }
    if status == "failed" {
        job["error"] = json!("terraform apply: exit status 1");
    }
    let mut shown = json!({"id": build.id, "created_at": build.created_at, "transition": build.transition, "job": job,
        "resources": resources(state, workspace, build, now)});
    if status == "pending" {
        shown["matched_provisioners"] =
            json!({"count": 0, "available": 0, "most_recently_seen": Value::Null});
    }
    shown
}

/// The agents of a workspace that was started: connected and ready some seconds after the build.
fn resources(state: &State, workspace: &Workspace, build: &WorkspaceBuild, now: Timestamp) -> Value {
    let version = state.versions.get(&workspace.version_id);
    let start = version.map_or(Start::NoAgent, |it| it.start);
    let end = ended_at(state, workspace, build).filter(|it| now >= *it);
    let (Some(end), Some(version), true) = (end, version, build.transition == "start") else {
        return json!([]);
    };
    let is_up = now >= end + version.build_time;
    let (status, lifecycle) = match start {
        Start::NoAgent | Start::BuildFails => return json!([{"agents": []}]),
        Start::Ready if is_up => ("connected", "ready"),
        Start::ScriptFails if is_up => ("connected", "start_error"),
        Start::Ready | Start::Silent | Start::ScriptFails => ("connecting", "created"),
    };
    json!([{"agents": [{"id": build.job_id, "name": "main", "status": status, "lifecycle_state": lifecycle}]}])
}
