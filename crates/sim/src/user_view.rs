//! Accounts as other objects show them.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{call::NEVER, rights, state::User};

/// An account as it is shown among the members of a group.
pub(crate) fn shown_briefly(user: &User) -> Map<String, Value> {
    let mut shown = Map::new();
    let mut put = |key: &str, value: Value| shown.insert(key.to_owned(), value);
    put("id", json!(user.id));
    put("username", json!(user.username));
    put("email", json!(user.email));
    put("status", json!(user.status));
    put("login_type", json!(user.login_type));
    put("created_at", json!(user.created_at));
    put("updated_at", json!(user.updated_at));
    put("last_seen_at", shown_time(user.last_seen_at));
    if !user.name.is_empty() {
        put("name", json!(user.name));
    }
    if user.is_service_account {
        put("is_service_account", json!(true));
    }
    shown
}

pub(crate) fn shown_roles(roles: &[String]) -> Value {
    let shown =
        |name: &String| json!({"name": name, "display_name": rights::role_title(name).unwrap_or(name)});
    roles.iter().map(shown).collect()
}

pub(crate) fn shown_time(time: Option<Timestamp>) -> Value {
    time.map_or_else(|| json!(NEVER), |time| json!(time))
}
