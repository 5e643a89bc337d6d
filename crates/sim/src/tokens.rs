//! Tokens of accounts: names, lifetimes and scopes.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    answer::{Answer, Handled, not_found, unauthorized},
    body::Fields,
    call::Call,
    rights::{self, Right},
    sessions::{self, TOKEN_LOGIN_TYPE},
    state::{ApiKey, User},
};

const DEFAULT_LIFETIME: SignedDuration = SignedDuration::from_hours(168);
const LONGEST_OF_OWNERS: SignedDuration = SignedDuration::from_hours(168);
const LONGEST: SignedDuration = SignedDuration::from_hours(876_600);
const ALL: &str = "coder:all";

/// The scopes that a caller may ask for, by resource.
const SCOPES: [(&str, &[&str]); 10] = [
    (
        "coder",
        &[
            "all",
            "application_connect",
            "workspaces.create",
            "workspaces.operate",
            "workspaces.delete",
            "workspaces.access",
            "templates.build",
            "templates.author",
            "apikeys.manage_self",
        ],
    ),
    (
        "workspace",
        &["read", "create", "update", "delete", "ssh", "start", "stop", "application_connect", "*"],
    ),
    ("template", &["read", "create", "update", "delete", "use", "*"]),
    ("api_key", &["read", "create", "update", "delete", "*"]),
    ("file", &["read", "create", "*"]),
    ("user", &["read", "read_personal", "update_personal", "*"]),
    ("user_secret", &["read", "create", "update", "delete", "*"]),
    ("user_skill", &["read", "create", "update", "delete", "*"]),
    ("task", &["read", "create", "update", "delete", "*"]),
    ("organization", &["read", "update", "delete", "*"]),
];
/// Old names, which only the old field `scope` understands.
const ALIASES: [(&str, &str); 2] = [("all", ALL), ("application_connect", "coder:application_connect")];

fn longest(user: &User) -> SignedDuration {
    if rights::is_owner(user) { LONGEST_OF_OWNERS } else { LONGEST }
}

pub(crate) fn limits(call: &mut Call<'_>) -> Handled {
    let longest = longest(call.user()?).as_nanos();
    Ok(Answer::ok(json!({"max_token_lifetime": i64::try_from(longest).unwrap_or(i64::MAX)})))
}

pub(crate) fn list(call: &mut Call<'_>) -> Handled {
    let user = call.user()?;
    let includes = |name: &str| matches!(call.query(name), Some("true" | "1" | "t" | "T" | "TRUE" | "True"));
    let all = includes("include_all");
    let expired = includes("include_expired");
    let is_readable = |key: &ApiKey| key.user_id == call.caller || call.may(Right::ManageTokens);
    let listed = call.state.api_keys.values().filter(|key| {
        key.login_type == TOKEN_LOGIN_TYPE
            && (all || key.user_id == user.id)
            && (expired || key.expires_at > call.now)
            && is_readable(key)
    });
    let listed: Vec<Value> = listed
        .map(|key| {
            let mut shown = shown(key);
            shown["username"] = json!(call.state.users.get(&key.user_id).map(|it| &it.username));
            shown
        })
        .collect();
    // coderd has null for an empty list here.
    Ok(Answer::ok(if listed.is_empty() { Value::Null } else { json!(listed) }))
}

pub(crate) fn create(call: &mut Call<'_>) -> Handled {
    let user = call.user()?;
    let user_id = user.id;
    let username = user.username.clone();
    let longest = longest(user);
    let is_deleted = user.deleted;
    let fields = call.fields("CreateTokenRequest")?;
    let scopes = wanted_scopes(&fields)?;
    let lifetime = wanted_lifetime(&fields, longest)?;
    let token_name = match fields.plain("token_name")? {
        name if name.is_empty() => format!("token_{}", call.ids().letters(8).to_lowercase()),
        name => name,
    };
    let failed = "Failed to create API key.";
    if let Some((alias, _)) = ALIASES.iter().find(|(alias, _)| scopes.iter().any(|it| it == alias)) {
        let detail = format!("generate API key: invalid API key scope: \"{alias}\"");
        return Err(Answer::message(500, failed).detail(detail));
    }
    if user_id != call.caller && !call.may(Right::ManageTokens) {
        return Err(unauthorized(500, failed, "insert API key: "));
    }
    if is_deleted {
        let detail = "insert API key: pq: Cannot create API key for deleted user";
        return Err(Answer::message(500, failed).detail(detail));
    }
    let is_same = |it: &ApiKey| {
        it.user_id == user_id && it.login_type == TOKEN_LOGIN_TYPE && it.token_name == token_name
    };
    if call.state.api_keys.values().any(is_same) {
        return Err(Answer::message(409, format!("A token with name \"{token_name}\" already exists."))
            .field("name", "This value is already in use and should be unique."));
    }
    let now = call.now;
    let token = ApiKey {
        id: String::new(),
        secret: String::new(),
        user_id,
        login_type: TOKEN_LOGIN_TYPE.to_owned(),
        token_name: token_name.clone(),
        scopes,
        // coderd takes a lifetime of no whole second for none, and shows a day.
        lifetime_seconds: if lifetime.as_secs() == 0 { 24 * 3600 } else { lifetime.as_secs() },
        created_at: now,
        updated_at: now,
        expires_at: now.checked_add(lifetime).unwrap_or(Timestamp::MAX),
        last_used: None,
    };
    let text = sessions::issue(call, token);
    let after = json!({"token_name": token_name, "owner": username});
    call.changed("api_key", (user_id, &token_name), Value::Null, after);
    Ok(Answer::created(json!({"key": text})))
}

fn wanted_scopes(fields: &Fields) -> Result<Vec<String>, Answer> {
    let scopes = fields.texts("scopes", "codersdk.APIKeyScope")?.unwrap_or_default();
    let old = fields.plain("scope")?;
    let asked = if scopes.is_empty() && !old.is_empty() { std::slice::from_ref(&old) } else { &scopes[..] };
    if let Some(unknown) = asked.iter().find(|it| !is_public(it)) {
        let detail = format!("invalid or unsupported API key scope: \"{unknown}\"");
        return Err(Answer::message(400, "Failed to create API key.").detail(detail));
    }
    if !scopes.is_empty() {
        return Ok(scopes);
    }
    let alias = ALIASES.iter().find(|(alias, _)| *alias == old);
    Ok(vec![match alias {
        Some((_, scope)) => (*scope).to_owned(),
        None if old.is_empty() => ALL.to_owned(),
        None => old,
    }])
}

fn is_public(scope: &str) -> bool {
    let is_alias = ALIASES.iter().any(|(alias, _)| *alias == scope);
    let parts = scope.split_once(':');
    let is_listed = parts.is_some_and(|(resource, action)| {
        SCOPES.iter().any(|(it, actions)| *it == resource && actions.contains(&action))
    });
    is_alias || is_listed
}

fn wanted_lifetime(fields: &Fields, longest: SignedDuration) -> Result<SignedDuration, Answer> {
    let wanted = match fields.integer("lifetime", "time.Duration")? {
        None | Some(0) => return Ok(DEFAULT_LIFETIME),
        Some(nanoseconds) => SignedDuration::from_nanos(nanoseconds),
    };
    let refused = |detail: String| {
        Err(Answer::message(400, "Failed to validate create API key request.").detail(detail))
    };
    if wanted.is_negative() {
        return refused("lifetime must be positive number greater than 0".to_owned());
    }
    if wanted > longest {
        return refused(format!("lifetime must be less than {}h0m0s", longest.as_hours()));
    }
    Ok(wanted)
}

/// The key of the path, if the caller may see it. The user of the path only has to be readable.
fn key<'a>(call: &'a Call<'_>) -> Result<&'a ApiKey, Answer> {
    call.user()?;
    let found = call.state.api_keys.get(call.parameter("keyid"));
    found.filter(|it| it.user_id == call.caller || call.may(Right::ManageTokens)).ok_or_else(not_found)
}

pub(crate) fn token(call: &mut Call<'_>) -> Handled {
    Ok(Answer::ok(shown(key(call)?)))
}

pub(crate) fn delete(call: &mut Call<'_>) -> Handled {
    let key = key(call)?;
    let id = key.id.clone();
    let name = key.token_name.clone();
    let before = shown(key);
    call.state.api_keys.remove(&id);
    call.changed("api_key", (id, &name), before, Value::Null);
    Ok(Answer::empty(204))
}

fn shown(key: &ApiKey) -> Value {
    let scope = match key.scopes.as_slice() {
        [one] if one == "coder:application_connect" => "application_connect",
        scopes if scopes.iter().any(|it| it == ALL) => "all",
        _ => "",
    };
    json!({
        "id": key.id,
        "user_id": key.user_id,
        "last_used": key.last_used.unwrap_or(Timestamp::UNIX_EPOCH),
        "expires_at": key.expires_at,
        "created_at": key.created_at,
        "updated_at": key.updated_at,
        "login_type": key.login_type,
        "scope": scope,
        "scopes": key.scopes,
        "token_name": key.token_name,
        "lifetime_seconds": key.lifetime_seconds,
        "allow_list": ["*:*"],
    })
}
