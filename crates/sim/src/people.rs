//! What is managed of accounts: the list of all of them, profiles, roles, suspension, membership.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, not_found},
    body::Validations,
    call::{Call, user_named},
    members::number,
    names, organizations,
    rights::{self, Right},
    state::User,
    users::shown,
};

const SUSPENDED: &str = "suspended";
const OWNER: &str = "owner";
const OIDC: &str = "oidc";

pub(crate) fn list(call: &mut Call<'_>) -> Handled {
    let limit = number(call, "limit")?;
    let offset = number(call, "offset")?;
    let sees_all = call.may(Right::ReadUsers);
    let is_visible = |it: &&User| !it.deleted && (sees_all || it.id == call.caller);
    let mut users: Vec<&User> = call.state.users.values().filter(is_visible).collect();
    users.sort_by_key(|it| it.username.to_lowercase());
    let limit = if limit == 0 { usize::MAX } else { limit };
    let page: Vec<Value> = users.iter().skip(offset).take(limit).map(|it| shown(call.state, it)).collect();
    // coderd counts along with the rows, so that a page without rows has no count.
    let count = if page.is_empty() { 0 } else { users.len() };
    Ok(Answer::ok(json!({"users": page, "count": count})))
}

/// Changes an account and returns it as it is then.
fn changed(call: &mut Call<'_>, id: Uuid, change: impl FnOnce(&mut User)) -> Handled {
    let before = call.state.users.get(&id).map(|it| shown(call.state, it)).ok_or_else(not_found)?;
    let now = call.now;
    let user = call.state.users.get_mut(&id).ok_or_else(not_found)?;
    change(user);
    user.updated_at = now;
    let username = user.username.clone();
    let after = call.state.users.get(&id).map(|it| shown(call.state, it)).ok_or_else(not_found)?;
    call.changed("user", (id, &username), before, after.clone());
    Ok(Answer::ok(after))
}

pub(crate) fn update_profile(call: &mut Call<'_>) -> Handled {
    let user = call.user()?.clone();
    let fields = call.fields("UpdateUserProfileRequest")?;
    let username = fields.plain("username")?;
    let name = fields.plain("name")?;
    let mut validations = Validations::default();
    validations.required("username", &username, Some(("username", names::is_name)));
    validations.check("name", &name, "user_real_name", names::is_real_name(&name));
    validations.done()?;
    if username != user.username && !call.may(Right::ManageUsers) {
        return Err(not_found());
    }
    if user_named(call.state, &username).is_some_and(|it| it.id != user.id) {
        return Err(Answer::message(409, "A user with this username already exists.")
            .field("username", "This username is already in use."));
    }
    changed(call, user.id, |it| {
        it.username = username;
        it.name = name;
    })
}

pub(crate) fn update_roles(call: &mut Call<'_>) -> Handled {
    let user = call.user()?.clone();
    if user.login_type == OIDC && syncs_roles(call) {
        let message = "Cannot modify roles for OIDC users when role sync is enabled.";
        return Err(Answer::message(400, message).detail(
            "'User Role Field' is set in the OIDC configuration. All role changes must come from the oidc identity \
             provider.",
        ));
    }
    if user.id == call.caller {
        return Err(Answer::message(400, "You cannot change your own roles."));
    }
    let roles = call.fields("UpdateRoles")?.texts("roles", "string")?.unwrap_or_default();
    if let Some(unknown) = roles.iter().find(|it| rights::role_title(it).is_none()) {
        return Err(Answer::message(400, format!("\"{unknown}\" is not a supported role")));
    }
    let differs = |it: &&String| roles.contains(it) != user.roles.contains(it);
    let changing = roles.iter().chain(&user.roles).find(differs);
    if let Some(role) = changing.filter(|_| !call.may(Right::AssignRoles)) {
        return Err(Answer::message(400, format!("not authorized to assign role \"{role}\"")));
    }
    changed(call, user.id, |it| it.roles = roles)
}

/// Whether the deployment was started with a field of claims that roles come from.
fn syncs_roles(call: &Call<'_>) -> bool {
    let options = call.state.server_config.as_ref().and_then(|it| it["options"].as_array());
    options
        .into_iter()
        .flatten()
        .any(|it| it["env"] == "CODER_OIDC_USER_ROLE_FIELD" && it["value_source"] == "env")
}

pub(crate) fn suspend(call: &mut Call<'_>) -> Handled {
    let user = call.user()?;
    let id = user.id;
    if id == call.caller {
        return Err(Answer::message(400, "You cannot suspend yourself."));
    }
    if user.roles.iter().any(|it| it == OWNER) {
        let message =
            format!("You cannot suspend a user with the \"{OWNER}\" role. You must remove the role first.");
        return Err(Answer::message(400, message));
    }
    changed(call, id, |it| SUSPENDED.clone_into(&mut it.status))
}

pub(crate) fn activate(call: &mut Call<'_>) -> Handled {
    let id = call.user()?.id;
    changed(call, id, |it| "active".clone_into(&mut it.status))
}

pub(crate) fn add_member(call: &mut Call<'_>) -> Handled {
    let (organization, display_name) = {
        let organization = call.organization()?;
        (organization.id, organization.display_name.clone())
    };
    let user = call.user()?;
    let (id, username) = (user.id, user.username.clone());
    if user.login_type == OIDC && call.state.organization_sync.as_ref().is_some_and(|it| it["field"] != "") {
        let message = "Organization sync is enabled for OIDC users, meaning manual organization assignment is not allowed \
                       for this user. Have the user re-login to refresh their organizations.";
        return Err(Answer::message(400, message).detail(format!(
            "User {username} is an OIDC user and organization sync is enabled. Ask an administrator to resolve the \
             membership in your external IDP."
        )));
    }
    if !call.may(Right::ManageUsers) {
        return Err(not_found());
    }
    let is_member = |it: &crate::state::Organization| it.members.contains_key(&id);
    if call.state.organizations.get(&organization).is_some_and(is_member) {
        return Err(Answer::message(400, "User is already an organization member")
            .detail(format!("{username} is already a member of {display_name}")));
    }
    organizations::add_member(call, organization, id);
    let after = json!({"user_id": id, "organization_id": organization, "created_at": call.now,
        "updated_at": call.now, "roles": []});
    call.changed("organization_member", (id, &username), Value::Null, after.clone());
    Ok(Answer::ok(after))
}

pub(crate) fn remove_member(call: &mut Call<'_>) -> Handled {
    let organization = call.organization()?.id;
    let user = call.user()?;
    let (id, username) = (user.id, user.username.clone());
    let is_member = |it: &crate::state::Organization| it.members.contains_key(&id);
    if !call.state.organizations.get(&organization).is_some_and(is_member) {
        return Err(not_found());
    }
    if id == call.caller {
        return Err(Answer::message(400, "cannot remove self from an organization"));
    }
    if !call.may(Right::ManageUsers) {
        return Err(not_found());
    }
    if let Some(organization) = call.state.organizations.get_mut(&organization) {
        organization.members.remove(&id);
    }
    for group in call.state.groups.values_mut().filter(|it| it.organization_id == organization) {
        group.members.remove(&id);
    }
    let before = json!({"user_id": id, "organization_id": organization});
    call.changed("organization_member", (id, &username), before, Value::Null);
    Ok(Answer::empty(204))
}
