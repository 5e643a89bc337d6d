//! Groups of an organization. The group of everyone has the id of its organization.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, internal_unauthorized, not_found, unauthorized},
    body::{self, Fields, Validations},
    call::Call,
    names,
    rights::Right,
    state::{Group, State},
    user_view,
};

const EVERYONE: &str = "Everyone";
/// The parameters that the list understands.
const QUERY: [&str; 3] = ["organization", "has_member", "group_ids"];

/// Adds the group of everyone of an organization.
pub(crate) fn insert_everyone(state: &mut State, organization: Uuid) {
    let group = Group {
        id: organization,
        organization_id: organization,
        name: EVERYONE.to_owned(),
        display_name: String::new(),
        avatar_url: String::new(),
        quota_allowance: 0,
        members: BTreeSet::new(),
    };
    state.groups.insert(organization, group);
}

fn is_everyone(group: &Group) -> bool {
    group.id == group.organization_id
}

pub(crate) fn list(call: &mut Call<'_>) -> Handled {
    let organization = call.organization()?.id;
    if let Some((unknown, _)) = call.query.iter().find(|(name, _)| !QUERY.contains(&name.as_str())) {
        let refusal = Answer::message(400, "Query parameters have invalid values.");
        return Err(refusal.field(unknown, format!("\"{unknown}\" is not a valid query param")));
    }
    let groups = call.state.groups.values().filter(|it| it.organization_id == organization);
    Ok(Answer::ok(groups.map(|it| shown(call, it)).collect()))
}

pub(crate) fn create(call: &mut Call<'_>) -> Handled {
    let organization = call.organization()?.id;
    let fields = call.fields("CreateGroupRequest")?;
    let name = fields.plain("name")?;
    let display_name = fields.plain("display_name")?;
    let mut validations = Validations::default();
    validations.required("name", &name, Some(("group_name", names::is_group_name)));
    check_display_name(&mut validations, &display_name);
    validations.done()?;
    if name == EVERYONE {
        let why = format!("\"{EVERYONE}\" is a reserved group name");
        return Err(Answer::message(400, "Invalid group name.").field("name", why));
    }
    if !call.may(Right::ManageGroups) {
        return Err(internal_unauthorized());
    }
    if is_taken(call.state, organization, &name) {
        return Err(Answer::message(409, format!("A group named \"{name}\" already exists."))
            .field("name", "Group names must be unique"));
    }
    let group = Group {
        id: call.ids().uuid(),
        organization_id: organization,
        name,
        display_name,
        avatar_url: fields.plain("avatar_url")?,
        quota_allowance: quota(&fields)?.unwrap_or_default(),
        members: BTreeSet::new(),
    };
    let shown = shown(call, &group);
    call.changed("group", (group.id, &group.name), Value::Null, shown.clone());
    call.state.groups.insert(group.id, group);
    Ok(Answer::created(shown))
}

fn check_display_name(validations: &mut Validations, display_name: &str) {
    let is_valid = names::is_display_name(display_name);
    validations.check("display_name", display_name, "group_display_name", is_valid);
}

/// Group names differ also by case.
fn is_taken(state: &State, organization: Uuid, name: &str) -> bool {
    state.groups.values().any(|it| it.organization_id == organization && it.name == name)
}

/// coderd keeps the lower 32 bits of the number.
fn quota(fields: &Fields) -> Result<Option<i32>, Answer> {
    let wanted = fields.integer("quota_allowance", "int")?;
    Ok(wanted.map(|it| {
        let [.., a, b, c, d] = it.to_be_bytes();
        i32::from_be_bytes([a, b, c, d])
    }))
}

/// The group of the path, if the caller may see its organization.
fn found<'a>(call: &'a Call<'_>) -> Result<&'a Group, Answer> {
    let wanted = call.parameter("group");
    let invalid = |why| Answer::message(400, format!("Invalid UUID \"{wanted}\".")).detail(why);
    let id = body::uuid(wanted).map_err(invalid)?;
    let group = call.state.groups.get(&id).ok_or_else(not_found)?;
    let organization = call.state.organizations.get(&group.organization_id);
    let is_member = organization.is_some_and(|it| it.members.contains_key(&call.caller));
    if is_member || call.may(Right::ReadOrganizations) { Ok(group) } else { Err(not_found()) }
}

pub(crate) fn group(call: &mut Call<'_>) -> Handled {
    let group = found(call)?;
    Ok(Answer::ok(shown(call, group)))
}

pub(crate) fn update(call: &mut Call<'_>) -> Handled {
    let group = found(call)?.clone();
    let fields = call.fields("PatchGroupRequest")?;
    let mut name = fields.plain("name")?;
    let display_name = fields.text("display_name")?;
    let mut validations = Validations::default();
    validations.check("name", &name, "group_name", name.is_empty() || names::is_group_name(&name));
    check_display_name(&mut validations, display_name.as_deref().unwrap_or_default());
    validations.done()?;
    if name == group.name {
        name.clear();
    }
    let added = fields.texts("add_users", "string")?.unwrap_or_default();
    let removed = fields.texts("remove_users", "string")?.unwrap_or_default();
    check_everyone(&group, &name, display_name.as_deref(), !(added.is_empty() && removed.is_empty()))?;
    let added = members_of_organization(call, &group, &added)?;
    let removed = members_of_organization(call, &group, &removed)?;
    if !name.is_empty() && is_taken(call.state, group.organization_id, &name) {
        return Err(Answer::message(409, format!("A group with name \"{name}\" already exists.")));
    }
    if !call.may(Right::ManageGroups) {
        let message = "Failed to add or remove non-existent group member";
        return Err(unauthorized(400, message, "execute transaction: update group by ID: "));
    }
    let before = shown(call, &group);
    let mut changed = Group {
        name: if name.is_empty() { group.name } else { name },
        display_name: display_name.unwrap_or(group.display_name),
        avatar_url: fields.text("avatar_url")?.unwrap_or(group.avatar_url),
        quota_allowance: quota(&fields)?.unwrap_or(group.quota_allowance),
        ..group
    };
    for user in added {
        if !changed.members.insert(user) {
            return Err(Answer::message(400, "Cannot add the same user to a group twice!").detail(format!(
                "execute transaction: insert group member \"{user}\": pq: duplicate key value violates unique \
                 constraint \"group_members_user_id_group_id_key\""
            )));
        }
    }
    changed.members.retain(|it| !removed.contains(it));
    let after = shown(call, &changed);
    call.changed("group", (changed.id, &changed.name), before, after.clone());
    call.state.groups.insert(changed.id, changed);
    Ok(Answer::ok(after))
}

/// Checks what can be changed about the group of everyone, and that no other group takes its name.
fn check_everyone(
    group: &Group,
    name: &str,
    display_name: Option<&str>,
    changes_members: bool,
) -> Result<(), Answer> {
    let refused = |status: u16, message: String| Err(Answer::message(status, message));
    if is_everyone(group) && !name.is_empty() {
        return refused(400, format!("Cannot rename the \"{EVERYONE}\" group!"));
    }
    if is_everyone(group) && display_name.is_some_and(|it| !it.is_empty()) {
        return refused(400, format!("Cannot update the Display Name for the \"{EVERYONE}\" group!"));
    }
    if name == EVERYONE {
        return refused(400, format!("\"{EVERYONE}\" is a reserved group name!"));
    }
    if is_everyone(group) && changes_members {
        return refused(403, format!("Cannot add or remove users from the \"{EVERYONE}\" group!"));
    }
    Ok(())
}

fn members_of_organization(call: &Call<'_>, group: &Group, users: &[String]) -> Result<Vec<Uuid>, Answer> {
    let organization = call.state.organizations.get(&group.organization_id);
    let member = |text: &String| {
        let invalid = || Answer::message(400, format!("ID \"{text}\" must be a valid user UUID."));
        let id: Uuid = text.parse().map_err(|_| invalid())?;
        if organization.is_some_and(|it| it.members.contains_key(&id)) {
            return Ok(id);
        }
        // coderd names the group here, not the organization.
        Err(Answer::message(400, format!("User must be a member of organization \"{}\"", group.name)))
    };
    users.iter().map(member).collect()
}

pub(crate) fn delete(call: &mut Call<'_>) -> Handled {
    let group = found(call)?;
    let id = group.id;
    let name = group.name.clone();
    let before = shown(call, group);
    if is_everyone(group) {
        let message = format!("\"{EVERYONE}\" is a reserved group and cannot be deleted!");
        return Err(Answer::message(400, message));
    }
    if !call.may(Right::ManageGroups) {
        return Err(internal_unauthorized());
    }
    call.state.groups.remove(&id);
    call.changed("group", (id, &name), before, Value::Null);
    Ok(Answer::message(200, "Successfully deleted group!"))
}

/// A group as the caller sees it: without the right to read accounts only the caller is among its members.
pub(crate) fn shown(call: &Call<'_>, group: &Group) -> Value {
    let organization = call.state.organizations.get(&group.organization_id);
    let sees_all = call.may(Right::ReadUsers);
    let is_visible = |id: &&Uuid| sees_all || **id == call.caller;
    let show = |id: &Uuid| call.state.users.get(id).map(user_view::shown_briefly);
    let (members, count): (Vec<_>, usize) = match organization.filter(|_| is_everyone(group)) {
        Some(organization) => {
            let members = organization.members.keys().filter(is_visible).filter_map(show).collect();
            (members, organization.members.len())
        }
        None => (group.members.iter().filter(is_visible).filter_map(show).collect(), group.members.len()),
    };
    json!({
        "id": group.id,
        "name": group.name,
        "display_name": group.display_name,
        "organization_id": group.organization_id,
        "organization_name": organization.map(|it| &it.name),
        "organization_display_name": organization.map(|it| &it.display_name),
        "avatar_url": group.avatar_url,
        "quota_allowance": group.quota_allowance,
        "source": "user",
        "members": members,
        "total_member_count": count,
    })
}
