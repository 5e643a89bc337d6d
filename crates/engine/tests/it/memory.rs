//! A licensed deployment in memory with an owner, as a state to begin with.

use std::{
    pin::pin,
    sync::{Arc, LazyLock},
    task::{Context, Poll, Waker},
};

use client::{Client, ClientOptions, Transport, users::CreateFirstUser};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use sim::{
    Clock, Coder, Options,
    state::{Entitlement, State},
};
use uuid::Uuid;

pub(crate) const DEPLOYMENT: &str = "00000000-0000-4000-8000-00000000dddd";
/// The default organization.
pub(crate) const DEFAULT: &str = "00000000-0000-4000-8000-0000000000d0";
/// The account whose token the clients have.
pub(crate) const OWNER: &str = "00000000-0000-4000-8000-000000000009";

const PASSWORD: &str = "correct-horse-battery-staple-1";

/// A state, and the token of the owner in it.
static LICENSED: LazyLock<(State, SecretString)> = LazyLock::new(|| wait(sign_in()));

/// The same state as JSON.
static AS_JSON: LazyLock<Value> = LazyLock::new(|| serde_json::to_value(&LICENSED.0).unwrap());

/// The time in memory when nothing has happened yet.
pub(crate) fn start() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

/// A deployment with every licensed feature, an owner and the default organization.
pub(crate) fn licensed() -> State {
    LICENSED.0.clone()
}

/// The licensed deployment with these fields of its state, object by object. A new organization comes with its group; the members of an
/// organization are a list of ids, and `features` are those that the licence covers.
pub(crate) fn described(changes: &Value) -> State {
    let mut state = AS_JSON.clone();
    for (part, changes) in changes.as_object().unwrap() {
        match part.as_str() {
            "organizations" | "groups" | "users" => {
                for (id, fields) in changes.as_object().unwrap() {
                    describe(&mut state, part, id, fields);
                }
            }
            "custom_roles" => {
                let roles = changes.as_array().unwrap().iter().enumerate();
                let blank = |id| json!({"id": Uuid::from_u128(id), "display_name": "", "permissions": []});
                state[part] = roles.map(|(id, fields)| merged(blank(id as u128), fields)).collect();
            }
            "features" => {}
            _ => state[part] = merged(state[part].take(), changes),
        }
    }
    let mut state: State = serde_json::from_value(state).unwrap();
    if let Some(covered) = changes["features"].as_array() {
        for (name, feature) in &mut state.entitlements.features {
            feature.enabled &= covered.contains(&json!(name));
            if !feature.enabled {
                feature.entitlement = Entitlement::NotEntitled;
            }
        }
        state.entitlements.has_license = !covered.is_empty();
    }
    state
}

/// Changes an organization, a group or an account of a state, or adds it.
fn describe(state: &mut Value, part: &str, id: &str, fields: &Value) {
    let mut fields = fields.clone();
    if part == "organizations" {
        let membership = |user: &Value| {
            let membership = json!({"number": 0, "created_at": start(), "updated_at": start()});
            (user.as_str().unwrap().to_owned(), membership)
        };
        let members = fields["members"].as_array().into_iter().flatten().map(membership).collect();
        fields["members"] = Value::Object(members);
        if state["groups"][id].is_null() {
            describe(state, "groups", id, &json!({}));
        }
    }
    if part == "users" && id != OWNER && fields["email"].is_null() {
        fields["email"] = format!("{}@example.com", fields["username"].as_str().unwrap()).into();
    }
    let mut found = state[part][id].take();
    if found.is_null() {
        found = match part {
            "organizations" => {
                merged(AS_JSON[part][DEFAULT].clone(), &json!({"description": "", "is_default": false}))
            }
            "groups" => merged(AS_JSON[part][DEFAULT].clone(), &json!({"organization_id": id})),
            _ => merged(AS_JSON[part][OWNER].clone(), &json!({"roles": [], "password": null})),
        };
        found["id"] = id.into();
        if part == "organizations" {
            found["members"] = json!({});
        }
    }
    state[part][id] = merged(found, &fields);
}

/// The value with these fields over it, at every depth.
fn merged(mut value: Value, fields: &Value) -> Value {
    match (&mut value, fields) {
        (Value::Object(into), Value::Object(fields)) => {
            for (key, field) in fields {
                let found = into.remove(key).unwrap_or_default();
                into.insert(key.clone(), merged(found, field));
            }
            value
        }
        _ => fields.clone(),
    }
}

/// A deployment that goes on from a state, without a rate limit.
pub(crate) fn coder(clock: Clock, state: State) -> Coder {
    Coder::with_state(Options { rate_limit: None, ..Options::new(clock) }, state)
}

/// The same at another version of Coder.
pub(crate) fn coder_of_version(version: &str, state: State) -> Coder {
    let options = Options { rate_limit: None, version: version.to_owned(), ..Options::new(Arc::new(start)) };
    Coder::with_state(options, state)
}

/// A client with the token of the owner.
pub(crate) fn owner(transport: Arc<dyn Transport>) -> Client {
    let url = "https://coder.test".parse().unwrap();
    Client::new(ClientOptions { url, token: Some(LICENSED.1.clone()), transport }).unwrap()
}

/// The token of the owner.
pub(crate) fn owner_token() -> String {
    LICENSED.1.expose_secret().to_owned()
}

/// Waits for something that nobody else has to do anything for.
pub(crate) fn wait<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
    }
}

async fn sign_in() -> (State, SecretString) {
    let options = || Options { rate_limit: None, ..Options::new(Arc::new(start)) };
    let fresh = Coder::new(options()).state();
    let ids = [(fresh.deployment_id, DEPLOYMENT), (fresh.default_organization, DEFAULT)];
    let coder = Coder::with_state(options(), renumbered(&fresh, ids));
    let url = "https://coder.test".parse().unwrap();
    let anonymous = Client::new(ClientOptions { url, token: None, transport: coder.transport() }).unwrap();
    let password = SecretString::from(PASSWORD);
    let (email, username) = ("owner@coder.test".to_owned(), "owner".to_owned());
    let wanted = CreateFirstUser { email, username, password: password.clone() };
    anonymous.create_first_user(&wanted).await.unwrap();
    let token = anonymous.login(&wanted.email, &password).await.unwrap();
    let (first, last) = (start().as_second() - 86_400, start().as_second() + 2 * 365 * 86_400);
    let claims = json!({"nbf": first, "exp": last, "license_expires": last});
    let license = coder.sign_license(claims.as_object().unwrap());
    let owner = anonymous.with_token(token.clone()).unwrap();
    owner.add_license(&SecretString::from(license)).await.unwrap();
    let mut state = coder.state();
    let end = Timestamp::from_second(last).unwrap();
    state.api_keys.values_mut().for_each(|it| it.expires_at = end);
    state.audit_log.clear();
    let owner = *state.users.keys().next().unwrap();
    (renumbered(&state, [(owner, OWNER)]), token)
}

/// The state with other ids.
fn renumbered<const N: usize>(state: &State, ids: [(Uuid, &str); N]) -> State {
    let text = serde_json::to_string(state).unwrap();
    let text = ids.iter().fold(text, |text, (old, new)| text.replace(&old.to_string(), new));
    serde_json::from_str(&text).unwrap()
}
