//! Custom roles of an organization. A role is known by its name; its id is in no answer.

use engine::kinds::role::KNOWN_PERMISSIONS;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, forbidden, not_found},
    body::{Fields, Validations},
    call::Call,
    names,
    rights::{self, Right},
    state::{CustomRole, Permission, State},
};

/// The roles of an organization that Coder has itself, with the names that people see.
pub(crate) const BUILT_IN: [(&str, &str); 7] = [
    ("agents-access", "Coder Agents User"),
    ("organization-admin", "Organization Admin"),
    ("organization-auditor", "Organization Auditor"),
    ("organization-template-admin", "Organization Template Admin"),
    ("organization-user-admin", "Organization User Admin"),
    ("organization-workspace-access", "Organization Workspace Access"),
    ("organization-workspace-creation-ban", "Organization Workspace Creation Ban"),
];

const FAILED: &str = "Failed to update role permissions";
const WILDCARD: &str = "*";

/// A role as a request describes it.
struct Wanted {
    name: String,
    display_name: String,
    permissions: Vec<Permission>,
}

pub(crate) fn create(call: &mut Call<'_>) -> Handled {
    let organization = call.organization()?.id;
    let wanted = wanted(call)?;
    if !call.may(Right::ManageRoles) {
        return Err(not_found());
    }
    check_permissions(organization, &wanted.permissions)?;
    if position(call.state, organization, |name| name.eq_ignore_ascii_case(&wanted.name)).is_some() {
        let detail = "pq: duplicate key value violates unique constraint \"custom_roles_unique_key\"";
        return Err(Answer::message(400, FAILED).detail(detail));
    }
    let Wanted { name, display_name, permissions } = wanted;
    let id = call.ids().uuid();
    let role = CustomRole { id, organization_id: organization, name, display_name, permissions };
    let after = shown(&role);
    call.changed("custom_role", (id, &role.name), Value::Null, after.clone());
    call.state.custom_roles.push(role);
    Ok(Answer::ok(after))
}

pub(crate) fn update(call: &mut Call<'_>) -> Handled {
    let organization = call.organization()?.id;
    let mut wanted = wanted(call)?;
    wanted.permissions.retain(|it| complaint(it).is_none());
    if !call.may(Right::ManageRoles) {
        return Err(not_found());
    }
    let Some(at) = position(call.state, organization, |name| name == wanted.name) else {
        return Err(not_found());
    };
    check_permissions(organization, &wanted.permissions)?;
    let before = shown(&call.state.custom_roles[at]);
    let role = &mut call.state.custom_roles[at];
    role.display_name = wanted.display_name;
    role.permissions = wanted.permissions;
    let (id, name, after) = (role.id, role.name.clone(), shown(role));
    call.changed("custom_role", (id, &name), before, after.clone());
    Ok(Answer::ok(after))
}

pub(crate) fn delete(call: &mut Call<'_>) -> Handled {
    let organization = call.organization()?.id;
    let name = call.parameter("roleName").to_owned();
    check_name(&name)?;
    let Some(at) = position(call.state, organization, |it| it == name) else {
        let message = format!("No custom role with the name {name} found");
        return Err(Answer::message(404, message).detail("no role found"));
    };
    if !call.may(Right::ManageRoles) {
        return Err(forbidden());
    }
    let role = call.state.custom_roles.remove(at);
    call.changed("custom_role", (role.id, &role.name), shown(&role), Value::Null);
    Ok(Answer::empty(204))
}

/// Where a custom role of an organization is in the list.
fn position(state: &State, organization: Uuid, is_named: impl Fn(&str) -> bool) -> Option<usize> {
    state.custom_roles.iter().position(|it| it.organization_id == organization && is_named(&it.name))
}

fn wanted(call: &Call<'_>) -> Result<Wanted, Answer> {
    let fields = call.fields("CustomRoleRequest")?;
    let name = fields.plain("name")?;
    let permissions = permissions(&fields, "organization_permissions")?;
    let display_name = fields.plain("display_name")?;
    let others = ["site_permissions", "user_permissions", "organization_member_permissions"];
    let mut counts = [0; 3];
    for (count, field) in counts.iter_mut().zip(others) {
        *count = permissions_of(&fields, field)?;
    }
    let mut validations = Validations::default();
    validations.check("name", &name, "username", names::is_name(&name));
    validations.done()?;
    check_name(&name)?;
    let kinds =
        [("site wide", "site wide"), ("user", "user"), ("organization member", "organization member")];
    for ((what, which), count) in kinds.iter().zip(counts) {
        if count > 0 {
            let message = format!(
                "Invalid request, not allowed to assign {what} permissions for an organization role."
            );
            let detail = format!("organization scoped roles may not contain {which} permissions");
            return Err(Answer::message(400, message).detail(detail));
        }
    }
    Ok(Wanted { name, display_name, permissions })
}

fn permissions_of(fields: &Fields, field: &str) -> Result<usize, Answer> {
    Ok(permissions(fields, field)?.len())
}

fn permissions(fields: &Fields, field: &str) -> Result<Vec<Permission>, Answer> {
    let objects = fields.objects(field, "codersdk.Permission")?;
    let text = |it: &Map<String, Value>, key: &str| {
        it.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let permission = |it: &Map<String, Value>| Permission {
        negate: it.get("negate").and_then(Value::as_bool).unwrap_or_default(),
        resource_type: text(it, "resource_type"),
        action: text(it, "action"),
    };
    Ok(objects.iter().map(permission).collect())
}

/// Refuses names of built-in roles, and names that are none.
fn check_name(name: &str) -> Result<(), Answer> {
    let is_built_in = BUILT_IN.iter().any(|(it, _)| *it == name) || rights::role_title(name).is_some();
    if is_built_in {
        let detail = format!("\"{name}\" is a reserved role name, and not allowed to be used");
        return Err(Answer::message(400, "Reserved role name").detail(detail));
    }
    if names::is_name(name) {
        return Ok(());
    }
    let detail = match name {
        _ if name.len() > 32 => "must be <= 32 characters".to_owned(),
        "new" | "create" => format!("cannot use \"{name}\" as a name"),
        _ => "must be alphanumeric with hyphens".to_owned(),
    };
    Err(Answer::message(400, "Invalid role name").detail(detail))
}

/// What is wrong with a permission, however it is granted.
fn complaint(permission: &Permission) -> Option<String> {
    let Permission { resource_type, action, .. } = permission;
    if resource_type == WILDCARD {
        return None;
    }
    let Some((_, actions)) = KNOWN_PERMISSIONS.iter().find(|(it, _)| it == resource_type) else {
        return Some(format!("invalid resource type \"{resource_type}\""));
    };
    let is_known = action == WILDCARD || actions.contains(&action.as_str());
    (!is_known).then(|| format!("invalid action \"{action}\" for resource \"{resource_type}\""))
}

fn check_permissions(organization: Uuid, permissions: &[Permission]) -> Result<(), Answer> {
    let refused = |detail: String| Err(Answer::message(400, FAILED).detail(detail));
    let complaints: Vec<String> = permissions
        .iter()
        .filter_map(complaint)
        // coderd says it twice.
        .map(|it| format!("org=\"{organization}\": org {it}: {it}"))
        .collect();
    if !complaints.is_empty() {
        return refused(format!("invalid role: {}", complaints.join("\n")));
    }
    for Permission { negate, resource_type, action } in permissions {
        let why = if *negate {
            "no negative permissions"
        } else if action == WILDCARD || resource_type == WILDCARD {
            "no wildcard symbols"
        } else {
            continue;
        };
        return refused(format!(
            "org=\"{organization}\": org: invalid permission for action=\"{action}\" type=\"{resource_type}\", {why}"
        ));
    }
    Ok(())
}

/// A role as coderd shows it.
pub(crate) fn shown(role: &CustomRole) -> Value {
    json!({
        "name": role.name,
        "organization_id": role.organization_id,
        "display_name": role.display_name,
        "site_permissions": [],
        "user_permissions": [],
        "organization_permissions": role.permissions,
        "organization_member_permissions": null,
    })
}
