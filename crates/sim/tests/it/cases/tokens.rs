//! Tokens: names, lifetimes, scopes, and the end of a session.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::side::{ANONYMOUS, MEMBER, OWNER, Side};

const TOKENS: &str = "/api/v2/users/me/keys/tokens";
const HOUR: i64 = 3_600_000_000_000;

/// Notes the lifetimes of tokens in hours.
fn note_lifetimes(side: &mut Side, tokens: &Value) {
    let mut lifetimes = BTreeMap::new();
    for token in tokens.as_array().unwrap() {
        let time = |field: &str| token[field].as_str().unwrap().parse::<Timestamp>().unwrap();
        let hours = time("expires_at").duration_since(time("created_at")).as_secs_f64() / 3600.0;
        lifetimes.insert(token["token_name"].to_string(), hours.round());
    }
    side.transcript.note("hours between creation and expiry", &json!(lifetimes));
}

pub(super) async fn tokens(side: &mut Side) {
    side.get(MEMBER, TOKENS).await;
    side.post(OWNER, TOKENS, Value::Null).await;
    let secret =
        side.post(OWNER, TOKENS, json!({"token_name": "operator", "lifetime": 24 * HOUR})).await.text("key");
    side.post(OWNER, TOKENS, json!({"token_name": "operator"})).await;
    let other = side.post(OWNER, TOKENS, json!({"token_name": "Operator"})).await.text("key");
    let id = secret.split_once('-').unwrap().0.to_owned();
    let listed = side.get(OWNER, &format!("{TOKENS}?include_expired=true")).await.body;
    note_lifetimes(side, &listed);
    side.get(OWNER, &format!("/api/v2/users/me/keys/{id}")).await;
    side.get(MEMBER, &format!("/api/v2/users/owner/keys/{id}")).await;
    side.get(MEMBER, "/api/v2/users/owner/keys/tokens").await;
    side.get(MEMBER, &format!("/api/v2/users/me/keys/{id}")).await;
    side.post(MEMBER, "/api/v2/users/owner/keys/tokens", json!({"token_name": "theirs"})).await;
    side.post(OWNER, "/api/v2/users/member/keys/tokens", json!({"token_name": "theirs"})).await;
    side.get(MEMBER, TOKENS).await;
    side.set_token("token", &secret);
    side.get("token", "/api/v2/users/me").await;
    side.delete(MEMBER, &format!("/api/v2/users/me/keys/{id}")).await;
    side.delete(OWNER, &format!("/api/v2/users/me/keys/{id}")).await;
    side.get("token", "/api/v2/users/me").await;
    side.delete(OWNER, &format!("/api/v2/users/me/keys/{id}")).await;
    side.get(OWNER, &format!("/api/v2/users/me/keys/{id}")).await;
    side.get(OWNER, &format!("{TOKENS}/tokenconfig")).await;
    side.get(MEMBER, &format!("{TOKENS}/tokenconfig")).await;
    side.get(MEMBER, "/api/v2/users/owner/keys/tokens/tokenconfig").await;
    let other = other.split_once('-').unwrap().0;
    side.delete(OWNER, &format!("/api/v2/users/owner/keys/{other}")).await;
}

pub(super) async fn limits(side: &mut Side) {
    let wanted = [
        json!({"token_name": "week", "lifetime": 168 * HOUR}),
        json!({"token_name": "longer", "lifetime": 168 * HOUR + 1}),
        json!({"token_name": "negative", "lifetime": -HOUR}),
        json!({"token_name": "scoped", "scopes": ["coder:all"]}),
        json!({"token_name": "templates", "scopes": ["coder:templates.author", "organization:read"]}),
        json!({"token_name": "licences", "scopes": ["license:read"]}),
        json!({"token_name": "nonsense", "scopes": ["nonsense"]}),
        json!({"token_name": "bare", "scopes": ["all"]}),
        json!({"token_name": "old", "scope": "all"}),
    ];
    for wanted in wanted {
        side.post(OWNER, TOKENS, wanted).await;
    }
    side.post(MEMBER, TOKENS, json!({"token_name": "year", "lifetime": 8760 * HOUR})).await;
    let listed = side.get(OWNER, TOKENS).await.body;
    note_lifetimes(side, &listed);
}

pub(super) async fn expired(side: &mut Side) {
    let brief = json!({"token_name": "brief", "lifetime": 1});
    let token = side.post(MEMBER, TOKENS, brief.clone()).await.text("key");
    side.set_token("expired", &token);
    side.get("expired", "/api/v2/users/me").await;
    side.get(MEMBER, TOKENS).await;
    side.get(MEMBER, &format!("{TOKENS}?include_expired=true")).await;
    side.get(MEMBER, &format!("{TOKENS}?include_expired=1")).await;
    side.get(MEMBER, &format!("{TOKENS}?include_expired=nonsense")).await;
    let id = token.split_once('-').unwrap().0;
    side.get(MEMBER, &format!("/api/v2/users/me/keys/{id}")).await;
    side.post(MEMBER, TOKENS, brief).await;
    side.delete(MEMBER, &format!("/api/v2/users/me/keys/{id}")).await;
    side.get("expired", "/api/v2/users/me").await;
}

pub(super) async fn logout(side: &mut Side) {
    side.sign_up("leaving").await;
    side.post("leaving", "/api/v2/users/logout", Value::Null).await;
    side.get("leaving", "/api/v2/users/me").await;
    side.post("leaving", "/api/v2/users/logout", Value::Null).await;
    side.post(ANONYMOUS, "/api/v2/users/logout", Value::Null).await;
}
