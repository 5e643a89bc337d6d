//! What is managed of accounts: the list of all of them, profiles, roles, suspension, membership.

use serde_json::{Value, json};

use crate::side::{MEMBER, OWNER, PASSWORD, Side};

/// Makes an account in the default organization.
async fn person(side: &mut Side, username: &str) -> String {
    let user = json!({"username": username, "email": format!("{username}@sim.test"), "password": PASSWORD,
        "organization_ids": [uuid::Uuid::nil()]});
    side.post(OWNER, "/api/v2/users", user).await.text("id")
}

pub(super) async fn list(side: &mut Side) {
    let id = person(side, "listed").await;
    for query in
        ["", "?limit=1", "?limit=2&offset=1", "?limit=0&offset=0", "?offset=99", "?limit=-1", "?limit=x"]
    {
        side.get(OWNER, &format!("/api/v2/users{query}")).await;
    }
    side.get(MEMBER, "/api/v2/users?limit=500&offset=0").await;
    side.get(OWNER, "/api/v2/workspaces?q=owner%3Alisted&limit=20").await;
    side.delete(OWNER, &format!("/api/v2/users/{id}")).await;
    side.get(OWNER, "/api/v2/users?limit=500").await;
}

pub(super) async fn profile(side: &mut Side) {
    let id = person(side, "renamed").await;
    let path = format!("/api/v2/users/{id}/profile");
    let profiles = [
        json!({}),
        json!({"username": "two words"}),
        json!({"username": "renamed", "name": " x"}),
        json!({"username": "member"}),
        json!({"username": "RENAMED"}),
        json!({"username": "another", "name": "Another One"}),
    ];
    for profile in profiles {
        side.put(OWNER, &path, profile).await;
    }
    side.put(MEMBER, &path, json!({"username": "mine"})).await;
    side.get(OWNER, "/api/v2/users/another").await;
    side.get(OWNER, "/api/v2/users/renamed").await;
    side.delete(OWNER, &format!("/api/v2/users/{id}")).await;
}

pub(super) async fn roles(side: &mut Side) {
    let id = person(side, "promoted").await;
    let path = format!("/api/v2/users/{id}/roles");
    let bodies = [
        json!({"roles": ["painter"]}),
        json!({"roles": ["template-admin", "auditor"]}),
        json!({"roles": ["owner"]}),
        json!({}),
    ];
    for body in bodies {
        side.put(OWNER, &path, body).await;
    }
    side.put(OWNER, "/api/v2/users/me/roles", json!({"roles": []})).await;
    side.put(MEMBER, &path, json!({"roles": []})).await;
    side.delete(OWNER, &format!("/api/v2/users/{id}")).await;
}

pub(super) async fn suspension(side: &mut Side) {
    let id = person(side, "paused").await;
    let path = format!("/api/v2/users/{id}/status");
    for action in ["suspend", "suspend", "activate", "activate"] {
        side.put(OWNER, &format!("{path}/{action}"), Value::Null).await;
    }
    side.put(OWNER, &format!("/api/v2/users/{id}/roles"), json!({"roles": ["owner"]})).await;
    side.put(OWNER, &format!("{path}/suspend"), Value::Null).await;
    side.put(OWNER, "/api/v2/users/me/status/suspend", Value::Null).await;
    side.put(MEMBER, &format!("{path}/activate"), Value::Null).await;
    side.delete(OWNER, &format!("/api/v2/users/{id}")).await;
}

pub(super) async fn membership(side: &mut Side) {
    let id = person(side, "mover").await;
    let other = side.post(OWNER, "/api/v2/organizations", json!({"name": "moved"})).await.text("id");
    let path = format!("/api/v2/organizations/{other}/members/{id}");
    for _ in 0..2 {
        side.post(OWNER, &path, Value::Null).await;
    }
    side.get(OWNER, &format!("/api/v2/users/{id}")).await;
    for _ in 0..2 {
        side.delete(OWNER, &path).await;
    }
    side.get(OWNER, &format!("/api/v2/users/{id}")).await;
    let own = side.get(OWNER, "/api/v2/users/me").await.text("id");
    side.delete(OWNER, &format!("/api/v2/organizations/{other}/members/{own}")).await;
    side.post(MEMBER, &path, Value::Null).await;
    side.delete(OWNER, &format!("/api/v2/users/{id}")).await;
    side.delete(OWNER, &format!("/api/v2/organizations/{other}")).await;
}
