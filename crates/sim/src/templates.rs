//! Templates: their settings, who may use them, and which version is active.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, forbidden, internal_unauthorized, not_found, unauthorized},
    body::{self, Fields, Validations},
    builds,
    call::Call,
    features, names,
    rights::Right,
    state::Template,
    users, workspaces,
};

const WEEK: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
const MINUTE: i64 = 60_000;
const SCHEDULING: &str = "advanced_template_scheduling";
const ACCESS_CONTROL: &str = "access_control";
const SHARED_PORTS: &str = "control_shared_ports";
/// Settings that are ignored without a licence for schedules.
const SCHEDULED: [&str; 7] = [
    "autostop_requirement",
    "autostart_requirement",
    "allow_user_autostart",
    "allow_user_autostop",
    "failure_ttl_ms",
    "time_til_dormant_ms",
    "time_til_dormant_autodelete_ms",
];

fn defaults() -> Map<String, Value> {
    let settings = json!({
        "name": "", "display_name": "", "description": "", "icon": "", "default_ttl_ms": 0,
        "activity_bump_ms": 3_600_000, "time_til_autostop_notify_ms": 0,
        "autostop_requirement": {"days_of_week": [], "weeks": 1},
        "autostart_requirement": {"days_of_week": WEEK},
        "allow_user_autostart": true, "allow_user_autostop": true, "allow_user_cancel_workspace_jobs": false,
        "failure_ttl_ms": 0, "time_til_dormant_ms": 0, "time_til_dormant_autodelete_ms": 0,
        "require_active_version": false, "deprecation_message": "", "max_port_share_level": "owner",
        "cors_behavior": "simple", "use_classic_parameter_flow": false, "disable_module_cache": false,
    });
    settings.as_object().cloned().unwrap_or_default()
}

/// Whether the licences cover a feature.
fn is_licensed(call: &mut Call<'_>, feature: &str) -> bool {
    features::keep_fresh(call.state, call.now);
    call.state.entitlements.features.get(feature).is_some_and(|it| it.enabled)
}

/// A template of the path that is not deleted, if the caller may see it.
pub(crate) fn found<'a>(call: &'a Call<'_>) -> Result<&'a Template, Answer> {
    let wanted = call.parameter("template");
    let invalid = |why| Answer::message(400, format!("Invalid UUID \"{wanted}\".")).detail(why);
    let id = body::uuid(wanted).map_err(invalid)?;
    let template = call.state.templates.get(&id).filter(|it| !it.deleted).ok_or_else(not_found)?;
    if sees(call, template) { Ok(template) } else { Err(not_found()) }
}

fn sees(call: &Call<'_>, template: &Template) -> bool {
    let home = template.organization_id;
    let is_member =
        call.state.organizations.get(&home).is_some_and(|it| it.members.contains_key(&call.caller));
    let in_group = |id: &Uuid| {
        call.state
            .groups
            .get(id)
            .is_some_and(|it| it.members.contains(&call.caller) || (it.id == home && is_member))
    };
    call.may(Right::ManageTemplates)
        || template.user_roles.contains_key(&call.caller)
        || template.group_roles.keys().any(in_group)
}

pub(crate) fn list(call: &mut Call<'_>) -> Handled {
    let home = call.organization()?.id;
    let wants_deprecated = match call.query("q") {
        None | Some("") => false,
        Some("deprecated:true") => true,
        Some(other) => {
            let detail = format!("Query param \"{other}\" is not understood here");
            return Err(Answer::message(400, "Invalid template search query.").detail(detail));
        }
    };
    let is_licensed = is_licensed(call, ACCESS_CONTROL);
    let deprecated = |it: &Template| is_licensed && !it.text("deprecation_message").is_empty();
    let mut listed: Vec<Template> = call
        .state
        .templates
        .values()
        .filter(|it| it.organization_id == home && !it.deleted && deprecated(it) == wants_deprecated)
        .filter(|it| sees(call, it))
        .cloned()
        .collect();
    listed.sort_by(|one, other| one.name().cmp(other.name()));
    let shown: Vec<Value> = listed.iter().map(|it| shown(call, it)).collect();
    Ok(Answer::ok(shown.into()))
}

pub(crate) fn template(call: &mut Call<'_>) -> Handled {
    let template = found(call)?.clone();
    Ok(Answer::ok(shown(call, &template)))
}

fn is_taken(call: &Call<'_>, home: Uuid, name: &str, but: Option<Uuid>) -> bool {
    call.state.templates.values().any(|it| {
        it.organization_id == home
            && !it.deleted
            && Some(it.id) != but
            && it.name().eq_ignore_ascii_case(name)
    })
}

pub(crate) fn create(call: &mut Call<'_>) -> Handled {
    let home = call.organization()?.id;
    let fields = call.fields("CreateTemplateRequest")?;
    let name = fields.plain("name")?;
    let mut validations = Validations::default();
    validations.check("name", &name, "template_name", names::is_name(&name));
    let version = fields.plain("template_version_id")?;
    let nil = Uuid::nil().to_string();
    validations.check("template_version_id", &nil, "required", !version.is_empty());
    validations.done()?;
    if is_taken(call, home, &name, None) {
        return Err(Answer::message(409, format!("Template with name \"{name}\" already exists."))
            .field("name", "This value is already in use and should be unique."));
    }
    let version = body::uuid(&version).unwrap_or_default();
    let Some(found) = call.state.versions.get(&version) else {
        return Err(Answer::message(404, format!("Template version \"{version}\" does not exist."))
            .field("template_version_id", "Template version does not exist"));
    };
    if found.archived {
        return Err(Answer::message(400, format!("Template version {version} is archived."))
            .field("template_version_id", "Template version is archived"));
    }
    if found.template_id.is_some() {
        return Err(Answer::message(
            400,
            format!("Template version {version} is already part of a template"),
        )
        .field("template_version_id", "Template version is already part of a template"));
    }
    if !call.may(Right::ManageTemplates) {
        return Err(internal_unauthorized());
    }
    let mut settings = defaults();
    let ports = is_licensed(call, SHARED_PORTS);
    if !ports {
        settings.insert("max_port_share_level".to_owned(), json!("public"));
    }
    take_settings(call, &fields, &mut settings, true)?;
    let hides = fields.flag("disable_everyone_group_access")?;
    let everyone = (!hides).then(|| (home, "use".to_owned()));
    let template = Template {
        id: call.ids().uuid(),
        organization_id: home,
        created_by: call.caller,
        created_at: call.now,
        updated_at: call.now,
        active_version: version,
        deleted: false,
        settings,
        group_roles: everyone.into_iter().collect(),
        user_roles: BTreeMap::new(),
    };
    if let Some(found) = call.state.versions.get_mut(&version) {
        found.template_id = Some(template.id);
        found.updated_at = call.now;
    }
    call.state.templates.insert(template.id, template.clone());
    let shown = shown(call, &template);
    call.changed("template", (template.id, template.name()), Value::Null, shown.clone());
    Ok(Answer::created(shown))
}

/// Takes the settings of a request. Those that the licences do not cover are ignored, as coderd does.
fn take_settings(
    call: &mut Call<'_>,
    fields: &Fields,
    settings: &mut Map<String, Value>,
    is_new: bool,
) -> Result<(), Answer> {
    let scheduling = is_licensed(call, SCHEDULING);
    let access = is_licensed(call, ACCESS_CONTROL);
    for (name, value) in defaults() {
        let sent = match (name.as_str(), is_new) {
            ("time_til_dormant_ms", true) => "dormant_ttl_ms",
            ("time_til_dormant_autodelete_ms", true) => "delete_ttl_ms",
            ("use_classic_parameter_flow", true) => "template_use_classic_parameter_flow",
            (name, _) => name,
        };
        let Some(wanted) = fields.any(sent) else { continue };
        let is_covered = match name.as_str() {
            "require_active_version" | "deprecation_message" => access,
            name => !SCHEDULED.contains(&name) || scheduling,
        };
        let is_same_kind = std::mem::discriminant(wanted) == std::mem::discriminant(&value);
        if is_covered && is_same_kind {
            settings.insert(name, normal(wanted));
        }
    }
    Ok(())
}

/// Days in the order of the week, and at least one week.
fn normal(value: &Value) -> Value {
    let Some(object) = value.as_object() else { return value.clone() };
    let mut object = object.clone();
    if let Some(days) = object.get("days_of_week").and_then(Value::as_array).cloned() {
        let days: Vec<&str> = WEEK.iter().copied().filter(|day| days.iter().any(|it| it == day)).collect();
        object.insert("days_of_week".to_owned(), json!(days));
    }
    if let Some(weeks) = object.get("weeks").and_then(Value::as_i64) {
        object.insert("weeks".to_owned(), json!(weeks.max(1)));
    }
    object.into()
}

pub(crate) fn update(call: &mut Call<'_>) -> Handled {
    let template = found(call)?.clone();
    let fields = call.fields("UpdateTemplateMeta")?;
    if let Some(name) = fields.text("name")? {
        let mut validations = Validations::default();
        validations.check("name", &name, "template_name", names::is_name(&name));
        validations.done()?;
        if is_taken(call, template.organization_id, &name, Some(template.id)) {
            return Err(Answer::message(409, format!("Template with name \"{name}\" already exists."))
                .field("name", "This value is already in use and should be unique."));
        }
    }
    valid(&fields)?;
    if !call.may(Right::ManageTemplates) {
        let attempt = "execute transaction: update template metadata: ";
        return Err(unauthorized(500, "An internal server error occurred.", attempt));
    }
    let before = shown(call, &template);
    let mut changed = template;
    let mut settings = std::mem::take(&mut changed.settings);
    take_settings(call, &fields, &mut settings, false)?;
    changed.settings = settings;
    changed.updated_at = call.now;
    call.state.templates.insert(changed.id, changed.clone());
    let after = shown(call, &changed);
    call.changed("template", (changed.id, changed.name()), before, after.clone());
    Ok(Answer::ok(after))
}

/// Refuses durations and weeks that coderd refuses.
fn valid(fields: &Fields) -> Result<(), Answer> {
    let number = |field: &str| fields.any(field).and_then(Value::as_i64).unwrap_or_default();
    let weeks =
        fields.object("autostop_requirement").get("weeks").and_then(Value::as_i64).unwrap_or_default();
    let mut wrong = Vec::new();
    for field in ["default_ttl_ms", "activity_bump_ms", "time_til_autostop_notify_ms"] {
        if number(field) < 0 {
            wrong.push((field, "Must be a positive integer."));
        }
    }
    let notify = "time_til_autostop_notify_ms";
    if (1..MINUTE).contains(&number(notify)) {
        wrong.push((notify, "Must be 0 (disabled) or at least one minute."));
    }
    if weeks > 16 {
        wrong.push(("autostop_requirement.weeks", "Must be less than 16."));
    }
    for field in ["failure_ttl_ms", "time_til_dormant_ms", "time_til_dormant_autodelete_ms"] {
        if number(field) < 0 || (1..MINUTE).contains(&number(field)) {
            wrong.push((field, "Value must be at least one minute."));
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let refusal = Answer::message(400, "Invalid request to update template metadata!");
    Err(wrong.into_iter().fold(refusal, |refusal, (field, why)| refusal.field(field, why)))
}

pub(crate) fn delete(call: &mut Call<'_>) -> Handled {
    let template = found(call)?.clone();
    if !call.may(Right::ManageTemplates) {
        return Err(forbidden());
    }
    if workspaces::of(call).any(|it| it.template_id == template.id) {
        return Err(Answer::message(400, "All workspaces must be deleted before a template can be removed."));
    }
    let before = shown(call, &template);
    if let Some(found) = call.state.templates.get_mut(&template.id) {
        found.deleted = true;
    }
    call.changed("template", (template.id, template.name()), before, Value::Null);
    Ok(Answer::message(200, "Template has been deleted!"))
}

pub(crate) fn promote(call: &mut Call<'_>) -> Handled {
    let template = found(call)?.clone();
    let fields = call.fields("UpdateActiveTemplateVersion")?;
    let id = body::uuid(&fields.plain("id")?).unwrap_or_default();
    let Some(version) = call.state.versions.get(&id).cloned() else {
        return Err(Answer::message(404, "Template version not found."));
    };
    if version.template_id != Some(template.id) {
        let message = "The provided template version doesn't belong to the specified template.";
        return Err(Answer::message(400, message));
    }
    let status = builds::status(call.state, &version, call.now);
    if status != "succeeded" {
        let message = "Only versions that have been built successfully can be promoted.";
        let detail = format!("Attempted to promote a version with a {status} build");
        return Err(Answer::message(403, message).detail(detail));
    }
    if version.archived {
        return Err(Answer::message(400, "The provided template version is archived."));
    }
    let before = shown(call, &template);
    if let Some(found) = call.state.templates.get_mut(&template.id) {
        found.active_version = id;
        found.updated_at = call.now;
    }
    let mut after = before.clone();
    after["active_version_id"] = json!(id);
    call.changed("template", (template.id, template.name()), before, after);
    Ok(Answer::message(200, "Updated the active template version!"))
}

pub(crate) fn access(call: &mut Call<'_>) -> Handled {
    let template = found(call)?.clone();
    if !call.may(Right::ManageTemplates) {
        return Err(internal_unauthorized());
    }
    let users = template.user_roles.iter().filter_map(|(id, role)| {
        let user = call.state.users.get(id).filter(|it| it.status != "suspended")?;
        let mut user = users::shown(call.state, user);
        user["role"] = json!(role);
        Some(user)
    });
    let users: Vec<Value> = users.collect();
    let groups = template.group_roles.iter().filter_map(|(id, role)| {
        let mut group = crate::groups::shown(call, call.state.groups.get(id)?);
        group["role"] = json!(role);
        Some(group)
    });
    let groups: Vec<Value> = groups.collect();
    Ok(Answer::ok(json!({"users": users, "group": groups})))
}

pub(crate) fn update_access(call: &mut Call<'_>) -> Handled {
    let template = found(call)?.clone();
    let fields = call.fields("UpdateTemplateACL")?;
    let mut refusal = None;
    for (field, what) in [("user_perms", "user"), ("group_perms", "group")] {
        for (id, role) in fields.text_map(field)? {
            let known = id.parse::<Uuid>().map(|id| match what {
                "user" => call.state.users.contains_key(&id),
                _ => call.state.groups.contains_key(&id),
            });
            let why = match known {
                Err(_) => format!("{id} is not a valid UUID."),
                Ok(_) if !["", "use", "admin"].contains(&role.as_str()) => {
                    format!("role \"{role}\" is not a valid template role")
                }
                Ok(false) => format!("{what} with ID {id} does not exist"),
                Ok(true) => continue,
            };
            let begun = refusal
                .take()
                .unwrap_or_else(|| Answer::message(400, "Invalid request to update template ACL"));
            refusal = Some(begun.field(field, why));
        }
    }
    if let Some(refusal) = refusal {
        return Err(refusal);
    }
    if !call.may(Right::ManageTemplates) {
        return Err(unauthorized(
            500,
            "An internal server error occurred.",
            "execute transaction: update template ACL by ID: ",
        ));
    }
    let mut changed = template.clone();
    for (field, roles) in [("user_perms", &mut changed.user_roles), ("group_perms", &mut changed.group_roles)]
    {
        for (id, role) in fields.text_map(field)? {
            let Ok(id) = id.parse::<Uuid>() else { continue };
            if role.is_empty() {
                roles.remove(&id);
            } else {
                roles.insert(id, role);
            }
        }
    }
    call.state.templates.insert(changed.id, changed.clone());
    let access = |it: &Template| json!({"organization_id": it.organization_id, "group_acl": it.group_roles, "user_acl": it.user_roles});
    call.changed("template", (changed.id, changed.name()), access(&template), access(&changed));
    Ok(Answer::message(200, "Successfully updated template ACL list."))
}

fn shown(call: &mut Call<'_>, template: &Template) -> Value {
    let access = is_licensed(call, ACCESS_CONTROL);
    let ports = is_licensed(call, SHARED_PORTS);
    let home = call.state.organizations.get(&template.organization_id);
    let creator = call.state.users.get(&template.created_by);
    let mut shown = json!({
        "id": template.id,
        "created_at": template.created_at,
        "updated_at": template.updated_at,
        "organization_id": template.organization_id,
        "organization_name": home.map(|it| &it.name),
        "organization_display_name": home.map(|it| &it.display_name),
        "organization_icon": home.map(|it| &it.icon),
        "provisioner": "terraform",
        "active_version_id": template.active_version,
        "active_user_count": 0,
        "build_time_stats": {
            "delete": {"P50": null, "P95": null}, "start": {"P50": null, "P95": null}, "stop": {"P50": null, "P95": null},
        },
        "deprecated": access && !template.text("deprecation_message").is_empty(),
        "deleted": false,
        "created_by_id": template.created_by,
        "created_by_name": creator.map(|it| &it.username),
    });
    if let Value::Object(object) = &mut shown {
        object.extend(template.settings.clone());
    }
    if !access {
        shown["require_active_version"] = json!(false);
        shown["deprecation_message"] = json!("");
    }
    if !ports {
        shown["max_port_share_level"] = json!("public");
    }
    shown
}
