//! Accounts: the first one, those that others make, and deletion, which leaves the account readable by its id.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, forbidden, not_found, unauthorized, unlicensed},
    body::{self, Fields, Validations, not_json},
    call::{Call, user_named},
    features, names, organizations, password,
    rights::{self, Right},
    sessions::hashed_password,
    state::{State, User},
    user_view::{shown_briefly, shown_roles},
    workspaces,
};

const STATUSES: [&str; 3] = ["active", "dormant", "suspended"];

pub(crate) fn first_user(call: &mut Call<'_>) -> Handled {
    if call.state.users.values().any(|it| !it.deleted) {
        Ok(Answer::message(200, "The initial user has already been created!"))
    } else {
        Err(Answer::message(404, "The initial user has not been created!"))
    }
}

pub(crate) fn create_first_user(call: &mut Call<'_>) -> Handled {
    let fields = call.fields("CreateFirstUserRequest")?;
    let mut validations = Validations::default();
    validations.required("email", &fields.plain("email")?, Some(("email", names::is_email)));
    validations.required("username", &fields.plain("username")?, Some(("username", names::is_name)));
    let name = fields.plain("name")?;
    validations.check("name", &name, "user_real_name", names::is_real_name(&name));
    let password = fields.plain("password")?;
    validations.required("password", &password, None);
    validations.done()?;
    if call.state.users.values().any(|it| !it.deleted) {
        return Err(Answer::message(409, "The initial user has already been created."));
    }
    check_password(&password)?;
    let organization = call.state.default_organization;
    let user = User {
        email: fields.plain("email")?,
        username: fields.plain("username")?,
        name,
        status: "active".to_owned(),
        login_type: "password".to_owned(),
        roles: vec!["owner".to_owned()],
        ..blank(call)
    };
    let id = insert(call, user, Some(&password), &[organization]);
    features::recompute(call.state, call.now);
    Ok(Answer::created(json!({"user_id": id, "organization_id": organization})))
}

pub(crate) fn user(call: &mut Call<'_>) -> Handled {
    let user = call.user()?;
    Ok(Answer::ok(shown(call.state, user)))
}

pub(crate) fn create(call: &mut Call<'_>) -> Handled {
    let fields = call.fields("DeprecatedCreateUserRequest.AliasedReq")?;
    let wanted = validated(&fields)?;
    check_kind(call, &wanted)?;
    let organization_ids = check_places(call, &fields, &wanted)?;
    check_login(&wanted)?;
    if !call.may(Right::ManageUsers) {
        return Err(Answer::message(403, "You are not authorized to create users."));
    }
    let failed = |detail: String| {
        let detail = format!("execute transaction: {detail}");
        Answer::message(500, "Internal error creating user.").detail(detail)
    };
    if let Some(role) = wanted.roles.iter().find(|it| rights::role_title(it).is_none()) {
        return Err(failed(format!("create user: \"{role}\" is not a supported role")));
    }
    if let Some(role) = wanted.roles.first().filter(|_| !call.may(Right::AssignRoles)) {
        return Err(failed(format!("create user: not authorized to assign role \"{role}\"")));
    }
    let status = fields.text("user_status")?.filter(|it| !it.is_empty());
    let status = status.unwrap_or_else(|| "dormant".to_owned());
    if !STATUSES.contains(&status.as_str()) {
        return Err(failed(format!(
            "create user: pq: invalid input value for enum user_status: \"{status}\""
        )));
    }
    if let Some(twice) = repeated(&organization_ids) {
        return Err(failed(format!(
            "create organization member for \"{twice}\": pq: duplicate key value violates unique constraint \
             \"organization_members_pkey\""
        )));
    }
    let user = User {
        email: wanted.email,
        username: wanted.username,
        name: wanted.name,
        status,
        is_service_account: wanted.service_account,
        login_type: wanted.login_type,
        roles: wanted.roles,
        ..blank(call)
    };
    let password = Some(wanted.password).filter(|it| !it.is_empty());
    let id = insert(call, user, password.as_deref(), &organization_ids);
    let user = call.state.users.get(&id).ok_or_else(not_found)?;
    Ok(Answer::created(shown(call.state, user)))
}

fn repeated(ids: &[Uuid]) -> Option<&Uuid> {
    ids.iter().enumerate().find(|(index, id)| ids[..*index].contains(id)).map(|(_, id)| id)
}

/// An account to be made, after the checks of single fields.
struct Wanted {
    email: String,
    username: String,
    name: String,
    password: String,
    login_type: String,
    service_account: bool,
    roles: Vec<String>,
}

fn validated(fields: &Fields) -> Result<Wanted, Answer> {
    let wanted = Wanted {
        email: fields.plain("email")?,
        username: fields.plain("username")?,
        name: fields.plain("name")?,
        password: fields.plain("password")?,
        login_type: fields.plain("login_type")?,
        service_account: fields.flag("service_account")?,
        roles: fields.texts("roles", "string")?.unwrap_or_default(),
    };
    fields.uuids("organization_ids")?;
    let mut validations = Validations::default();
    if wanted.email.is_empty() {
        validations.check("email", "", "required_unless", wanted.service_account);
    } else {
        validations.check("email", &wanted.email, "email", names::is_email(&wanted.email));
    }
    validations.required("username", &wanted.username, Some(("username", names::is_name)));
    validations.check("name", &wanted.name, "user_real_name", names::is_real_name(&wanted.name));
    validations.done()?;
    let login_type = match (wanted.login_type.as_str(), wanted.service_account) {
        ("", true) => "none",
        ("", false) => "password",
        (other, _) => other,
    };
    Ok(Wanted { login_type: login_type.to_owned(), ..wanted })
}

/// Checks what a service account and a person may have.
fn check_kind(call: &mut Call<'_>, wanted: &Wanted) -> Result<(), Answer> {
    let refused = |message: &str| Err(Answer::message(400, message));
    if wanted.service_account {
        if wanted.login_type != "none" {
            return refused("Service accounts must use login type 'none'.");
        } else if !wanted.password.is_empty() {
            return refused("Password cannot be set for service accounts.");
        } else if !wanted.email.is_empty() {
            return refused("Email cannot be set for service accounts.");
        }
        return call.licensed("service_accounts").map_err(|_| unlicensed("Service Accounts"));
    }
    if wanted.login_type == "none" {
        return refused("Login type 'none' requires a service account.");
    }
    if wanted.login_type != "password" && !wanted.password.is_empty() {
        let kind = &wanted.login_type;
        return refused(&format!("Password cannot be set for non-password (\"{kind}\") authentication."));
    }
    Ok(())
}

/// Checks that the names are free and returns the organizations, with the default one for the nil id.
fn check_places(call: &Call<'_>, fields: &Fields, wanted: &Wanted) -> Result<Vec<Uuid>, Answer> {
    let mut ids = fields.uuids("organization_ids")?;
    // The one field of older clients.
    if let Some(id) = fields.text("organization_id")? {
        ids.push(body::uuid(&id).map_err(|why| not_json(&why))?);
    }
    if ids.is_empty() {
        let message = "No organization specified to place the user as a member of. It is required to specify at \
                       least one organization id to place the user in.";
        return Err(Answer::message(400, message)
            .detail("required at least 1 value for the array 'organization_ids'")
            .field("organization_ids", "Missing values, this cannot be empty"));
    }
    let has_email =
        |it: &User| !it.deleted && !wanted.email.is_empty() && it.email.eq_ignore_ascii_case(&wanted.email);
    if user_named(call.state, &wanted.username).is_some() || call.state.users.values().any(has_email) {
        if !call.may(Right::ReadUsers) {
            return Err(unauthorized(500, "Internal error fetching user.", ""));
        }
        return Err(Answer::message(409, "User already exists."));
    }
    for id in &mut ids {
        if id.is_nil() {
            *id = call.state.default_organization;
        }
        let is_visible =
            call.state.organizations.get(id).is_some_and(|it| {
                it.members.contains_key(&call.caller) || call.may(Right::ReadOrganizations)
            });
        if !is_visible {
            let message = format!("Organization does not exist with the provided id \"{id}\".");
            return Err(Answer::message(404, message));
        }
    }
    Ok(ids)
}

fn check_login(wanted: &Wanted) -> Result<(), Answer> {
    match wanted.login_type.as_str() {
        "none" | "github" => Ok(()),
        "password" => check_password(&wanted.password),
        "oidc" => Err(Answer::message(400, "You must configure OIDC before creating OIDC users.")),
        other => {
            let message = format!("Unsupported login type \"{other}\" for manually creating new users.");
            Err(Answer::message(400, message))
        }
    }
}

fn check_password(password: &str) -> Result<(), Answer> {
    match password::weakness(password) {
        None => Ok(()),
        Some(why) => Err(Answer::message(400, "Password is invalid").field("password", why)),
    }
}

pub(crate) fn delete(call: &mut Call<'_>) -> Handled {
    let user = call.user()?;
    let id = user.id;
    let before = shown(call.state, user);
    let username = user.username.clone();
    if id == call.caller {
        return Err(Answer::message(403, "You cannot delete yourself!"));
    }
    check_deletable(call, id)?;
    let State { users, api_keys, organizations, groups, .. } = &mut *call.state;
    if let Some(user) = users.get_mut(&id) {
        user.deleted = true;
    }
    api_keys.retain(|_, key| key.user_id != id);
    for organization in organizations.values_mut() {
        organization.members.remove(&id);
    }
    for group in groups.values_mut() {
        group.members.remove(&id);
    }
    call.changed("user", (id, &username), before, Value::Null);
    Ok(Answer::message(200, "User has been deleted!"))
}

/// Refuses to delete an account that owns workspaces.
fn check_deletable(call: &Call<'_>, id: Uuid) -> Result<(), Answer> {
    if workspaces::of(call).any(|it| it.owner_id == id) {
        let message = "You cannot delete a user that has workspaces. Delete their workspaces and try again!";
        return Err(Answer::message(417, message));
    }
    if call.may(Right::ManageUsers) { Ok(()) } else { Err(forbidden()) }
}

/// An account with an id and empty fields.
fn blank(call: &mut Call<'_>) -> User {
    User {
        id: call.ids().uuid(),
        username: String::new(),
        email: String::new(),
        name: String::new(),
        status: String::new(),
        login_type: String::new(),
        is_service_account: false,
        roles: Vec::new(),
        password: None,
        created_at: call.now,
        updated_at: call.now,
        last_seen_at: None,
        deleted: false,
    }
}

fn insert(call: &mut Call<'_>, mut user: User, password: Option<&str>, organization_ids: &[Uuid]) -> Uuid {
    let id = user.id;
    let username = user.username.clone();
    user.password = password.map(|it| hashed_password(id, it));
    call.state.users.insert(id, user);
    for organization in organization_ids {
        organizations::add_member(call, *organization, id);
    }
    let after = call.state.users.get(&id).map_or(Value::Null, |it| shown(call.state, it));
    call.changed("user", (id, &username), Value::Null, after);
    id
}

/// An account as coderd shows it.
pub(crate) fn shown(state: &State, user: &User) -> Value {
    let mut memberships: Vec<(u64, Uuid)> = state
        .organizations
        .values()
        .filter_map(|it| Some((it.members.get(&user.id)?.number, it.id)))
        .collect();
    memberships.sort_unstable();
    let organization_ids: Vec<Uuid> = memberships.into_iter().map(|(_, id)| id).collect();
    let mut shown = shown_briefly(user);
    shown.insert("organization_ids".to_owned(), json!(organization_ids));
    shown.insert("roles".to_owned(), shown_roles(&user.roles));
    shown.insert("has_ai_seat".to_owned(), json!(false));
    Value::Object(shown)
}
