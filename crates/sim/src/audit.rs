//! The audit log as coderd shows it, for what it logs.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, forbidden},
    call::Call,
    members::number,
    rights::Right,
    state::{AuditEntry, State},
    user_view::shown_briefly,
};

/// How many entries are shown where no limit is given.
const PAGE: usize = 100;
/// coderd counts no further.
const COUNT_CAP: usize = 2000;
/// The id of every document of IdP sync.
const SYNC_DOCUMENT: &str = "51a51c00-0000-0000-0000-000000000000";

/// The fields that are logged, by type: as objects show them, and as the log calls them.
const LOGGED: [(&str, &[(&str, &str)]); 8] = [
    (
        "group",
        &[
            ("name", "name"),
            ("display_name", "display_name"),
            ("avatar_url", "avatar_url"),
            ("quota_allowance", "quota_allowance"),
            ("members", "members"),
        ],
    ),
    (
        "organization",
        &[
            ("name", "name"),
            ("display_name", "display_name"),
            ("description", "description"),
            ("icon", "icon"),
            ("shareable_workspace_owners", "shareable_workspace_owners"),
        ],
    ),
    ("user", &[("username", "username"), ("name", "name"), ("status", "status"), ("roles", "rbac_roles")]),
    ("custom_role", &[("display_name", "display_name"), ("organization_permissions", "org_permissions")]),
    (
        "idp_sync_settings_organization",
        &[("field", "field"), ("mapping", "mapping"), ("organization_assign_default", "assign_default")],
    ),
    (
        "idp_sync_settings_group",
        &[
            ("field", "field"),
            ("mapping", "mapping"),
            ("regex_filter", "regex_filter"),
            ("auto_create_missing_groups", "auto_create_missing_groups"),
        ],
    ),
    (
        "template",
        &[
            ("name", "name"),
            ("display_name", "display_name"),
            ("description", "description"),
            ("icon", "icon"),
            ("active_version_id", "active_version_id"),
            ("default_ttl_ms", "default_ttl"),
            ("activity_bump_ms", "activity_bump"),
            ("failure_ttl_ms", "failure_ttl"),
            ("time_til_dormant_ms", "time_til_dormant"),
            ("time_til_dormant_autodelete_ms", "time_til_dormant_autodelete"),
            ("time_til_autostop_notify_ms", "time_til_autostop_notify"),
            ("allow_user_autostart", "allow_user_autostart"),
            ("allow_user_autostop", "allow_user_autostop"),
            ("allow_user_cancel_workspace_jobs", "allow_user_cancel_workspace_jobs"),
            ("require_active_version", "require_active_version"),
            ("max_port_share_level", "max_port_sharing_level"),
            ("cors_behavior", "cors_behavior"),
            ("use_classic_parameter_flow", "use_classic_parameter_flow"),
            ("deprecation_message", "deprecated"),
            ("group_acl", "group_acl"),
            ("user_acl", "user_acl"),
        ],
    ),
    ("idp_sync_settings_role", &[("field", "field"), ("mapping", "mapping")]),
];

pub(crate) fn list(call: &mut Call<'_>) -> Handled {
    let limit = number(call, "limit")?;
    let offset = number(call, "offset")?;
    let query = call.query("q").unwrap_or_default().to_lowercase();
    let wanted: Vec<(&str, &str)> = query.split_whitespace().filter_map(|it| it.split_once(':')).collect();
    if !call.may(Right::ReadAuditLog) {
        return Err(forbidden());
    }
    let shown = call.state.audit_log.iter().rev().filter_map(|it| shown(call.state, it));
    let found: Vec<Value> =
        shown.filter(|entry| wanted.iter().all(|(key, value)| entry[*key] == *value)).collect();
    let count = found.len().min(COUNT_CAP);
    let limit = if limit == 0 { PAGE } else { limit };
    let page: Vec<Value> = found.into_iter().skip(offset).take(limit).collect();
    Ok(Answer::ok(json!({"audit_logs": page, "count": count, "count_cap": COUNT_CAP})))
}

/// An entry. `None` for a change that coderd does not log.
fn shown(state: &State, entry: &AuditEntry) -> Option<Value> {
    let change = &entry.change;
    let (_, fields) = LOGGED.iter().find(|(it, _)| *it == change.resource_type)?;
    let is_document = change.resource_type.starts_with("idp_sync_");
    let organization = match change.resource_type.as_str() {
        "organization" => change.resource_id.clone(),
        _ if is_document => change.resource_id.clone(),
        _ => [&change.after, &change.before]
            .into_iter()
            .find_map(|it| it["organization_id"].as_str())
            .map_or_else(|| Uuid::nil().to_string(), str::to_owned),
    };
    let action = match entry.method.as_str() {
        "POST" => "create",
        "DELETE" => "delete",
        _ => "write",
    };
    let user = entry.user_id.and_then(|it| state.users.get(&it)).map(shown_briefly);
    Some(json!({
        "id": Uuid::from_u128(!entry.request_id.as_u128()),
        "request_id": entry.request_id,
        "time": entry.time,
        "ip": "127.0.0.1",
        "user_agent": entry.user_agent,
        "resource_type": change.resource_type,
        "resource_id": if is_document { SYNC_DOCUMENT } else { &change.resource_id },
        "resource_target": change.target,
        "resource_icon": "",
        "action": action,
        "diff": diff(change.resource_type.as_str(), fields, &change.before, &change.after),
        "status_code": entry.status,
        "additional_fields": {},
        "description": format!("{{user}} {action} {{target}}"),
        "resource_link": "",
        "is_deleted": false,
        "organization_id": organization,
        "user": user,
    }))
}

/// The logged fields that differ.
fn diff(resource_type: &str, fields: &[(&str, &str)], before: &Value, after: &Value) -> Value {
    let mut diff = Map::new();
    for (field, name) in fields {
        let (old, new) = (&before[*field], &after[*field]);
        // A creation and a deletion show what an object is made of.
        if old != new {
            let [old, new] = [old, new].map(|it| logged(resource_type, field, it));
            diff.insert((*name).to_owned(), json!({"old": old, "new": new, "secret": false}));
        }
    }
    Value::Object(diff)
}

/// A value as the log has it: roles by their names, durations in nanoseconds.
fn logged(resource_type: &str, field: &str, value: &Value) -> Value {
    match (resource_type, field) {
        ("user", "roles") => value.as_array().into_iter().flatten().map(|it| it["name"].clone()).collect(),
        ("template", _) if field.ends_with("_ms") => {
            value.as_i64().map_or(Value::Null, |it| json!(it.saturating_mul(1_000_000)))
        }
        _ => value.clone(),
    }
}
