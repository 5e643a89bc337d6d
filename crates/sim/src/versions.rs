//! Versions of templates, with the jobs that build them.

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, internal_unauthorized, not_found},
    body::{self, Validations},
    builds::{status, taken_at},
    call::Call,
    names,
    rights::Right,
    state::{State, Version},
    templates, variables, workspaces,
};

pub(crate) fn create(call: &mut Call<'_>) -> Handled {
    let home = call.organization()?.id;
    let fields = call.fields("CreateTemplateVersionRequest")?;
    let name = fields.plain("name")?;
    let (storage, provisioner) = (fields.plain("storage_method")?, fields.plain("provisioner")?);
    let mut validations = Validations::default();
    check_name(&mut validations, &name);
    validations.check("storage_method", &storage, "oneof", storage == "file");
    let (file, example) = (fields.plain("file_id")?, fields.plain("example_id")?);
    let has_neither = file.is_empty() && example.is_empty();
    validations.check("file_id", &Uuid::nil().to_string(), "required_without", !has_neither);
    validations.check("example_id", "", "required_without", !has_neither);
    validations.check(
        "provisioner",
        &provisioner,
        "oneof",
        ["terraform", "echo"].contains(&provisioner.as_str()),
    );
    validations.done()?;
    let template_id = fields.text("template_id")?.and_then(|it| body::uuid(&it).ok());
    let is_there = |id: &Uuid| call.state.templates.get(id).is_some_and(|it| !it.deleted);
    if template_id.is_some_and(|id| !is_there(&id)) {
        return Err(Answer::message(404, "Template does not exist."));
    }
    let file_id = body::uuid(&file).unwrap_or_default();
    let file = call.state.files.get(&file_id).filter(|it| it.owner == call.caller).cloned();
    let file = file.ok_or_else(|| Answer::message(404, "File not found."))?;
    if !call.may(Right::ManageTemplates) {
        return Err(internal_unauthorized());
    }
    let is_same = |it: &Version| template_id.is_some() && it.template_id == template_id && it.name == name;
    if call.state.versions.values().any(is_same) {
        let message = format!("A template version with name \"{name}\" already exists for this template.");
        return Err(
            Answer::message(409, message).field("name", "This value is already in use and should be unique.")
        );
    }
    let mut tags = fields.text_map("tags")?;
    tags.retain(|_, value| !value.is_empty());
    tags.insert("scope".to_owned(), "organization".to_owned());
    tags.insert("owner".to_owned(), String::new());
    let sent = fields.objects("user_variable_values", "codersdk.VariableValue")?;
    let text = |it: &serde_json::Map<String, Value>, field: &str| it.get(field)?.as_str().map(str::to_owned);
    let values = sent.iter().filter_map(|it| Some((text(it, "name")?, text(it, "value")?))).collect();
    let version = Version {
        id: call.ids().uuid(),
        job_id: call.ids().uuid(),
        organization_id: home,
        template_id,
        name,
        message: fields.plain("message")?,
        file_id,
        is_broken: file.is_broken,
        start: file.start,
        is_built: false,
        build_time: call.settings.build_time,
        tags,
        variables: variables::declared(&file.source(), &values),
        archived: false,
        created_by: call.caller,
        created_at: call.now,
        updated_at: call.now,
    };
    let shown = shown(call, &version);
    call.changed("template_version", (version.id, &version.name), Value::Null, shown.clone());
    call.state.versions.insert(version.id, version);
    Ok(Answer::created(shown))
}

fn found(call: &Call<'_>) -> Result<Version, Answer> {
    let wanted = call.parameter("templateversion");
    let invalid = |why| Answer::message(400, format!("Invalid UUID \"{wanted}\".")).detail(why);
    let id = body::uuid(wanted).map_err(invalid)?;
    let version = call.state.versions.get(&id).ok_or_else(not_found)?;
    if call.may(Right::ManageTemplates) { Ok(version.clone()) } else { Err(not_found()) }
}

fn check_name(validations: &mut Validations, name: &str) {
    let is_valid = name.is_empty() || names::is_version_name(name);
    validations.check("name", name, "template_version_name", is_valid);
}

pub(crate) fn version(call: &mut Call<'_>) -> Handled {
    let version = found(call)?;
    Ok(Answer::ok(shown(call, &version)))
}

pub(crate) fn update(call: &mut Call<'_>) -> Handled {
    let version = found(call)?;
    let fields = call.fields("PatchTemplateVersionRequest")?;
    let (name, message) = (fields.plain("name")?, fields.text("message")?);
    let mut validations = Validations::default();
    check_name(&mut validations, &name);
    validations.done()?;
    let now = call.now;
    let Some(found) = call.state.versions.get_mut(&version.id) else { return Err(not_found()) };
    found.message = message.unwrap_or(version.message);
    found.updated_at = now;
    let version = found.clone();
    // coderd does not log this.
    Ok(Answer::ok(shown(call, &version)))
}

pub(crate) fn by_name(call: &mut Call<'_>) -> Handled {
    let template = templates::found(call)?.id;
    let name = call.parameter("templateversionname");
    let version = call.state.versions.values().find(|it| it.template_id == Some(template) && it.name == name);
    let missing = || Answer::message(404, format!("No template version found by name \"{name}\"."));
    let version = version.cloned().ok_or_else(missing)?;
    Ok(Answer::ok(shown(call, &version)))
}

pub(crate) fn logs(call: &mut Call<'_>) -> Handled {
    let version = found(call)?;
    let status = status(call.state, &version, call.now);
    let line = |id: i64, level: &str, stage: &str, output: &str| {
        json!({"id": id, "created_at": version.created_at, "log_source": "provisioner", "log_level": level,
            "stage": stage, "output": output})
    };
    let mut lines = Vec::new();
    if status == "failed" || status == "succeeded" {
        lines.push(line(1, "info", "Planning infrastructure", "Initializing the backend..."));
    }
    if status == "failed" {
        lines.push(line(2, "error", "Planning infrastructure", "Error: Unclosed configuration block"));
    }
    Ok(Answer::ok(lines.into()))
}

pub(crate) fn variables(call: &mut Call<'_>) -> Handled {
    let version = found(call)?;
    if !["succeeded", "failed"].contains(&status(call.state, &version, call.now)) {
        return Err(Answer::message(403, "Template version job has not finished"));
    }
    Ok(Answer::ok(version.variables.into()))
}

/// The answer to a change between archived and not.
fn now(version: &Version, verb: &str) -> Handled {
    Ok(Answer::ok(json!(format!("template version \"{}\" {verb}", version.id))))
}

pub(crate) fn archive(call: &mut Call<'_>) -> Handled {
    let version = found(call)?;
    if version.archived {
        return Err(Answer::message(400, "Template version already archived"));
    }
    let Some(template) = version.template_id else {
        return Err(Answer::message(400, "Cannot archive template versions not associate with a template."));
    };
    let is_active = call.state.templates.get(&template).is_some_and(|it| it.active_version == version.id);
    let is_in_progress = ["pending", "running"].contains(&status(call.state, &version, call.now));
    if is_active || is_in_progress || workspaces::uses(call, version.id) {
        let why = "Unable to archive specified version, the version is likely in use by a workspace or currently set to \
            the active version";
        return Err(Answer::message(500, "Internal error fetching template version.").detail(why));
    }
    if let Some(found) = call.state.versions.get_mut(&version.id) {
        found.archived = true;
    }
    now(&version, "archived")
}

pub(crate) fn unarchive(call: &mut Call<'_>) -> Handled {
    let version = found(call)?;
    if !version.archived {
        return Err(Answer::message(400, "Template version already unarchived"));
    }
    if let Some(found) = call.state.versions.get_mut(&version.id) {
        found.archived = false;
    }
    now(&version, "unarchived")
}

pub(crate) fn jobs(call: &mut Call<'_>) -> Handled {
    let home = call.organization()?.id;
    if !call.may(Right::ReadJobs) {
        return Err(not_found());
    }
    let mut versions: Vec<Version> =
        call.state.versions.values().filter(|it| it.organization_id == home).cloned().collect();
    versions.sort_by_key(|it| std::cmp::Reverse(it.created_at));
    let is_pending = |it: &&Version| status(call.state, it, call.now) == "pending";
    let waiting = call.state.versions.values().filter(is_pending);
    let queue: Vec<Timestamp> = waiting.map(|it| it.created_at).collect();
    let shown = versions.iter().map(|it| {
        let mut job = job(call.state, it, call.now);
        if is_pending(&it) {
            job["queue_position"] = json!(queue.iter().filter(|at| **at <= it.created_at).count());
            job["queue_size"] = json!(queue.len());
        }
        let template = it.template_id.and_then(|id| call.state.templates.get(&id));
        job["metadata"]["template_version_name"] = json!(it.name);
        job["metadata"]["template_id"] = json!(it.template_id.unwrap_or_default());
        job["metadata"]["template_name"] = json!(template.map_or("", |it| it.name()));
        job["metadata"]["template_display_name"] = json!(template.map_or("", |it| it.text("display_name")));
        job["metadata"]["template_icon"] = json!(template.map_or("", |it| it.text("icon")));
        job
    });
    Ok(Answer::ok(shown.collect()))
}

fn job(state: &State, version: &Version, now: Timestamp) -> Value {
    let status = status(state, version, now);
    let mut job = json!({
        "id": version.job_id,
        "created_at": version.created_at,
        "status": status,
        "file_id": version.file_id,
        "tags": version.tags,
        // Only the list of jobs has places in the queue.
        "queue_position": 0,
        "queue_size": 0,
        "organization_id": version.organization_id,
        "initiator_id": version.created_by,
        "input": {"template_version_id": version.id},
        "type": "template_version_import",
        "metadata": {"template_version_name": "", "template_id": Uuid::nil(), "template_name": "",
            "template_display_name": "", "template_icon": ""},
        "logs_overflowed": false,
    });
    if let Some(taken) = taken_at(state, version) {
        job["started_at"] = json!(taken);
        if status != "running" {
            job["completed_at"] = json!(taken + version.build_time);
        }
    }
    if status == "failed" {
        job["error"] = json!("template import init error: initialize terraform: exit status 1");
    }
    job
}

fn shown(call: &Call<'_>, version: &Version) -> Value {
    let job = job(call.state, version, call.now);
    let creator = call.state.users.get(&version.created_by);
    let mut shown = json!({
        "id": version.id,
        "template_id": version.template_id.unwrap_or_default(),
        "organization_id": version.organization_id,
        "created_at": version.created_at,
        "updated_at": version.updated_at,
        "name": version.name,
        "message": version.message,
        "job": job,
        "readme": "",
        "created_by": {"id": version.created_by, "username": creator.map(|it| &it.username)},
        "archived": version.archived,
        "has_external_agent": false,
    });
    if shown["job"]["status"] == "pending" {
        shown["matched_provisioners"] =
            json!({"count": 0, "available": 0, "most_recently_seen": Value::Null});
    }
    shown
}
