//! Who calls: sessions and tokens as they are presented, login and logout, and what is readable without a token.

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, signed_out},
    body::Validations,
    call::Call,
    ids::{Ids, hashed},
    names,
    state::{ApiKey, State},
};

/// What tells a token from a session.
pub(crate) const TOKEN_LOGIN_TYPE: &str = "token";
const TOKEN_HEADER: &str = "coder-session-token";
const ID_LENGTH: usize = 10;
const SECRET_LENGTH: usize = 22;
const SESSION: SignedDuration = SignedDuration::from_hours(24);
/// A session's end and the time of last use are moved at most once in this time.
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// The account of a valid token. `None` for any other request.
pub(crate) fn holder(state: &State, headers: &HeaderMap, now: Timestamp) -> Option<Uuid> {
    valid_key(state, headers, now).ok().map(|it| it.user_id)
}

/// Finds the caller by the token of the request, and renews the session.
pub(crate) fn authenticate(call: &mut Call<'_>) -> Result<(), Answer> {
    let key = valid_key(call.state, call.headers, call.now)?;
    let id = key.id.clone();
    let user_id = key.user_id;
    let now = call.now;
    if let Some(user) = call.state.users.get_mut(&user_id) {
        user.last_seen_at = Some(now);
        if user.status == "dormant" {
            "active".clone_into(&mut user.status);
        }
        if user.status != "active" {
            return Err(Answer::message(
                401,
                format!(
                    "User is not active (status = \"{}\"). Contact an admin to reactivate your account.",
                    user.status
                ),
            ));
        }
    }
    if let Some(key) = call.state.api_keys.get_mut(&id) {
        if key.last_used.is_none_or(|it| now.duration_since(it) > HOUR) {
            key.last_used = Some(now);
        }
        let lifetime = SignedDuration::from_secs(key.lifetime_seconds);
        let is_session = key.login_type != TOKEN_LOGIN_TYPE;
        if is_session && key.expires_at.duration_since(now) <= lifetime - HOUR {
            key.expires_at = now + lifetime;
        }
    }
    call.caller = user_id;
    call.api_key = id;
    Ok(())
}

/// The same where a workspace agent could call too.
pub(crate) fn authenticate_account_or_agent(call: &mut Call<'_>) -> Result<(), Answer> {
    authenticate(call).map_err(|refusal| match refusal.status {
        401 => Answer::message(401, "API key or workspace agent token required, but none provided"),
        _ => refusal,
    })
}

fn valid_key<'a>(state: &'a State, headers: &HeaderMap, now: Timestamp) -> Result<&'a ApiKey, Answer> {
    let token = headers.get(TOKEN_HEADER).and_then(|it| it.to_str().ok()).unwrap_or_default();
    if token.is_empty() {
        return Err(signed_out("Cookie \"coder_session_token\" or query parameter must be provided."));
    }
    let malformed = |what: String| signed_out(format!("Invalid API key format: {what}"));
    let parts: Vec<&str> = token.split('-').collect();
    let [id, secret] = parts.as_slice() else {
        let count = parts.len();
        return Err(malformed(format!("incorrect amount of API key parts, expected 2 got {count}")));
    };
    for (what, part, length) in [("ID", id, ID_LENGTH), ("secret", secret, SECRET_LENGTH)] {
        if part.len() != length {
            let got = part.len();
            return Err(malformed(format!("invalid API key {what} length, expected {length} got {got}")));
        }
    }
    let key = state.api_keys.get(*id).ok_or_else(|| signed_out("API key is invalid."))?;
    if key.secret != hashed(secret) {
        return Err(signed_out("API key secret is invalid."));
    }
    if key.expires_at <= now {
        return Err(signed_out(format!("API key expired at \"{}\".", key.expires_at)));
    }
    Ok(key)
}

/// Stores a session or a token of an account and returns its text, which is shown once.
pub(crate) fn issue(call: &mut Call<'_>, template: ApiKey) -> String {
    store(call.state, call.settings.seed, template)
}

/// The same outside of a request.
pub(crate) fn store(state: &mut State, seed: u64, template: ApiKey) -> String {
    let mut ids = Ids { seed, issued: &mut state.issued };
    let id = ids.letters(ID_LENGTH);
    let secret = ids.letters(SECRET_LENGTH);
    let key = ApiKey { id: id.clone(), secret: hashed(&secret), ..template };
    state.api_keys.insert(id.clone(), key);
    format!("{id}-{secret}")
}

/// A session of an account, before it has an id and a secret.
pub(crate) fn session(user_id: Uuid, lifetime: SignedDuration, now: Timestamp) -> ApiKey {
    ApiKey {
        id: String::new(),
        secret: String::new(),
        user_id,
        login_type: "password".to_owned(),
        token_name: String::new(),
        scopes: vec!["coder:all".to_owned()],
        lifetime_seconds: lifetime.as_secs(),
        created_at: now,
        updated_at: now,
        expires_at: now.checked_add(lifetime).unwrap_or(Timestamp::MAX),
        last_used: Some(now),
    }
}

pub(crate) fn login(call: &mut Call<'_>) -> Handled {
    let fields = call.fields("LoginWithPasswordRequest")?;
    let email = fields.plain("email")?;
    let password = fields.plain("password")?;
    let mut validations = Validations::default();
    validations.required("email", &email, Some(("email", names::is_email)));
    validations.required("password", &password, None);
    validations.done()?;
    let mut users = call.state.users.values();
    let user = users.find(|it| !it.deleted && !email.is_empty() && it.email.eq_ignore_ascii_case(&email));
    let matching =
        user.filter(|it| it.password.as_deref() == Some(hashed_password(it.id, &password).as_str()));
    let Some(user) = matching else {
        return Err(Answer::message(401, "Incorrect email or password."));
    };
    let user_id = user.id;
    let username = user.username.clone();
    if user.status == "suspended" {
        let message = "Your account is suspended. Contact an admin to reactivate your account.";
        return Err(Answer::message(401, message));
    }
    let now = call.now;
    if let Some(user) = call.state.users.get_mut(&user_id).filter(|it| it.status == "dormant") {
        "active".clone_into(&mut user.status);
        user.last_seen_at = Some(now);
    }
    let token = issue(call, session(user_id, SESSION, now));
    call.changed("api_key", (user_id, &username), Value::Null, json!({"login_type": "password"}));
    Ok(Answer::created(json!({"session_token": token})))
}

pub(crate) fn logout(call: &mut Call<'_>) -> Handled {
    let id = std::mem::take(&mut call.api_key);
    call.state.api_keys.remove(&id);
    call.changed("api_key", (id, ""), json!({"login_type": "password"}), Value::Null);
    Ok(Answer::message(200, "Logged out!"))
}

/// The hash under which a password is stored; the id is the salt.
pub(crate) fn hashed_password(user: Uuid, password: &str) -> String {
    hashed(&format!("{user}:{password}"))
}

pub(crate) fn auth_methods(_: &mut Call<'_>) -> Handled {
    Ok(Answer::ok(json!({
        "password": {"enabled": true},
        "github": {"enabled": false, "default_provider_configured": false},
        "oidc": {"enabled": false, "signInText": "", "iconUrl": ""},
    })))
}

pub(crate) fn build_info(call: &mut Call<'_>) -> Handled {
    Ok(Answer::ok(json!({
        "external_url": "https://github.com/coder/coder",
        "version": call.settings.version,
        "dashboard_url": call.settings.url,
        "telemetry": false,
        "workspace_proxy": false,
        "agent_api_version": "1.0",
        "provisioner_api_version": "1.18",
        "upgrade_message": "",
        "deployment_id": call.state.deployment_id,
    })))
}
