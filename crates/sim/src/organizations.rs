//! Organizations. A deleted one keeps answering by its id, and its name is free again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, not_found, unauthorized},
    body::{Fields, Validations},
    call::{Call, organization_named},
    groups, names,
    rights::Right,
    state::{Membership, Organization, State, Template},
};

/// The roles of every member, which only an experiment can change.
const MEMBER_ROLES: [&str; 1] = ["organization-workspace-access"];
const RESERVED: &str = "default";

/// Adds the organization that every deployment has.
pub(crate) fn insert_default(state: &mut State, now: Timestamp) {
    let id = state.default_organization;
    let organization = Organization {
        id,
        name: "coder".to_owned(),
        display_name: "Coder".to_owned(),
        description: "Builtin default organization.".to_owned(),
        icon: String::new(),
        is_default: true,
        created_at: now,
        updated_at: now,
        deleted: false,
        members: BTreeMap::new(),
        workspace_sharing: None,
    };
    state.organizations.insert(id, organization);
    groups::insert_everyone(state, id);
}

pub(crate) fn add_member(call: &mut Call<'_>, organization: Uuid, user: Uuid) {
    call.state.issued += 1;
    let number = call.state.issued;
    let membership = Membership { number, created_at: call.now, updated_at: call.now };
    if let Some(organization) = call.state.organizations.get_mut(&organization) {
        organization.members.insert(user, membership);
    }
}

pub(crate) fn list(call: &mut Call<'_>) -> Handled {
    let sees_all = call.may(Right::ReadOrganizations);
    let live = call.state.organizations.values().filter(|it| !it.deleted);
    let visible = live.filter(|it| sees_all || it.members.contains_key(&call.caller));
    Ok(Answer::ok(visible.map(shown).collect()))
}

fn reserved(name: &str) -> Result<(), Answer> {
    if name == RESERVED {
        return Err(Answer::message(400, format!("Organization name \"{RESERVED}\" is reserved.")));
    }
    Ok(())
}

pub(crate) fn create(call: &mut Call<'_>) -> Handled {
    let fields = call.fields("CreateOrganizationRequest")?;
    let name = fields.plain("name")?;
    let display_name = fields.plain("display_name")?;
    let description = fields.plain("description")?;
    let icon = fields.plain("icon")?;
    let mut validations = Validations::default();
    validations.required("name", &name, Some(("organization_name", names::is_name)));
    check_display_name(&mut validations, &display_name);
    validations.done()?;
    reserved(&name)?;
    if let Some(taken) = organization_named(call.state, &name) {
        if !call.may(Right::ReadOrganizations) && !taken.members.contains_key(&call.caller) {
            let message = format!("Internal error fetching organization \"{name}\".");
            return Err(unauthorized(500, &message, ""));
        }
        return Err(Answer::message(409, "Organization already exists with that name."));
    }
    if !call.may(Right::ManageOrganizations) {
        let attempt = "execute transaction: create organization: ";
        return Err(unauthorized(500, "Internal error inserting organization member.", attempt));
    }
    let id = call.ids().uuid();
    let now = call.now;
    let organization = Organization {
        id,
        display_name: if display_name.is_empty() { name.clone() } else { display_name },
        name,
        description,
        icon,
        is_default: false,
        created_at: now,
        updated_at: now,
        deleted: false,
        members: BTreeMap::new(),
        workspace_sharing: None,
    };
    let shown = shown(&organization);
    let name = organization.name.clone();
    call.state.organizations.insert(id, organization);
    groups::insert_everyone(call.state, id);
    add_member(call, id, call.caller);
    call.changed("organization", (id, &name), Value::Null, shown.clone());
    Ok(Answer::created(shown))
}

fn check_display_name(validations: &mut Validations, display_name: &str) {
    let is_valid = names::is_display_name(display_name);
    validations.check("display_name", display_name, "organization_display_name", is_valid);
}

pub(crate) fn update(call: &mut Call<'_>) -> Handled {
    let organization = call.organization()?.clone();
    let fields = call.fields("UpdateOrganizationRequest")?;
    let name = fields.plain("name")?;
    let display_name = fields.plain("display_name")?;
    let description = fields.text("description")?;
    let icon = fields.text("icon")?;
    let mut validations = Validations::default();
    validations.check("name", &name, "organization_name", name.is_empty() || names::is_name(&name));
    check_display_name(&mut validations, &display_name);
    validations.done()?;
    reserved(&name)?;
    check_member_roles(&fields)?;
    if !call.may(Right::ManageOrganizations) {
        return Err(not_found());
    }
    let taken = organization_named(call.state, &name).filter(|it| it.id != organization.id);
    if taken.is_some() && !organization.deleted {
        let message = format!("Organization already exists with the name \"{name}\".");
        let why = "This value is already in use and should be unique.";
        return Err(Answer::message(409, message).field("name", why));
    }
    let before = shown(&organization);
    let kept = |new: String, old: String| if new.is_empty() { old } else { new };
    let changed = Organization {
        name: kept(name, organization.name),
        display_name: kept(display_name, organization.display_name),
        description: description.unwrap_or(organization.description),
        icon: icon.unwrap_or(organization.icon),
        updated_at: call.now,
        ..organization
    };
    let after = shown(&changed);
    call.changed("organization", (changed.id, &changed.name), before, after.clone());
    call.state.organizations.insert(changed.id, changed);
    Ok(Answer::ok(after))
}

fn check_member_roles(fields: &Fields) -> Result<(), Answer> {
    match fields.texts("default_org_member_roles", "string")? {
        Some(roles) if roles != MEMBER_ROLES => {
            let message = "Changing default organization roles is not enabled on this deployment.";
            Err(Answer::message(403, message).detail(format!(
                "Setting default_org_member_roles to anything other than [{}] requires the \
                 \"minimum-implicit-member\" experiment.",
                MEMBER_ROLES.join(" ")
            )))
        }
        _ => Ok(()),
    }
}

pub(crate) fn delete(call: &mut Call<'_>) -> Handled {
    let organization = call.organization()?;
    let id = organization.id;
    let before = shown(organization);
    let name = organization.name.clone();
    if organization.is_default {
        return Err(Answer::message(400, "Default organization cannot be deleted."));
    }
    // Only the step from there to deleted is checked.
    let remaining = if organization.deleted { Vec::new() } else { remaining(call.state, organization) };
    let is_allowed = call.may(Right::ManageOrganizations);
    if !is_allowed && !call.may(Right::CountResources) {
        let attempt = "delete organization: execute transaction: delete organization: ";
        return Err(unauthorized(500, "Internal error deleting organization.", attempt));
    }
    // coderd answers every failure like this, also a missing right, and then the list may be empty.
    if !is_allowed || !remaining.is_empty() {
        let detail = format!("This organization has {} that must be deleted first.", remaining.join(", "));
        return Err(Answer::message(500, "Error deleting organization.").detail(detail));
    }
    let now = call.now;
    if let Some(organization) = call.state.organizations.get_mut(&id) {
        organization.deleted = true;
        organization.updated_at = now;
    }
    call.changed("organization", (id, &name), before, Value::Null);
    Ok(Answer::message(200, "Organization has been deleted."))
}

/// What has to be deleted before the organization, beyond one member and the group of everyone.
fn remaining(state: &State, organization: &Organization) -> Vec<String> {
    let id = organization.id;
    let groups = state.groups.values().filter(|it| it.organization_id == id).count();
    let keys = state.provisioner_keys.values().filter(|it| it.organization_id == id).count();
    let is_here = |it: &&Template| it.organization_id == id && !it.deleted;
    let templates = || state.templates.values().filter(is_here);
    let workspaces = state.workspaces.values().filter(|it| templates().any(|one| one.id == it.template_id));
    let counts = [
        ("workspace", workspaces.count()),
        ("template", templates().count()),
        ("member", organization.members.len().saturating_sub(1)),
        ("group", groups.saturating_sub(1)),
        ("provisioner key", keys),
    ];
    let in_words = |(what, count): &(&str, usize)| match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        count => Some(format!("{count} {what}s")),
    };
    counts.iter().filter_map(in_words).collect()
}

fn shown(organization: &Organization) -> Value {
    json!({
        "id": organization.id,
        "name": organization.name,
        "display_name": organization.display_name,
        "description": organization.description,
        "icon": organization.icon,
        "created_at": organization.created_at,
        "updated_at": organization.updated_at,
        "is_default": organization.is_default,
        "default_org_member_roles": MEMBER_ROLES,
    })
}
