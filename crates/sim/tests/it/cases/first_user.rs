//! The first account of a deployment, and signing in.

use serde_json::{Value, json};

use crate::side::{ANONYMOUS, OWNER, PASSWORD, Side};

const FIRST: &str = "/api/v2/users/first";
const LOGIN: &str = "/api/v2/users/login";

pub(super) async fn deployment_without_users(side: &mut Side) {
    side.get(ANONYMOUS, FIRST).await;
    let mut build = side.unrecorded(ANONYMOUS, "/api/v2/buildinfo").await;
    // A key that browsers need.
    build.as_object_mut().unwrap().remove("webpush_public_key");
    side.transcript.note("anonymous GET build info", &build);
    side.get(ANONYMOUS, "/api/v2/users/authmethods").await;
    side.get(ANONYMOUS, "/api/v2/organizations").await;
    side.post(ANONYMOUS, LOGIN, json!({"email": "owner@sim.test", "password": PASSWORD})).await;
}

pub(super) async fn first_user(side: &mut Side) {
    let wanted =
        |password: &str| json!({"email": "owner@sim.test", "username": "owner", "password": password});
    side.post(ANONYMOUS, FIRST, Value::Null).await;
    side.post(ANONYMOUS, FIRST, json!({})).await;
    side.post(ANONYMOUS, FIRST, json!({"email": "owner", "username": "no names", "password": PASSWORD}))
        .await;
    side.post(ANONYMOUS, FIRST, wanted("hunter2")).await;
    side.post(ANONYMOUS, FIRST, wanted(&"Long-enough-1!".repeat(5))).await;
    side.post(ANONYMOUS, FIRST, wanted(PASSWORD)).await;
    side.get(ANONYMOUS, FIRST).await;
    side.post(ANONYMOUS, FIRST, wanted(PASSWORD)).await;
    side.post(ANONYMOUS, FIRST, json!({})).await;
    side.entitlements().await;
}

pub(super) async fn login(side: &mut Side) {
    side.post(ANONYMOUS, LOGIN, json!({"email": "owner@sim.test", "password": "Wrong-password-1"})).await;
    side.post(ANONYMOUS, LOGIN, json!({"email": "other@sim.test", "password": PASSWORD})).await;
    side.post(ANONYMOUS, LOGIN, json!({"email": "owner@sim.test"})).await;
    side.post(ANONYMOUS, LOGIN, json!({"email": "owner", "password": PASSWORD})).await;
    side.post(ANONYMOUS, LOGIN, json!({"email": "OWNER@sim.test", "password": PASSWORD})).await;
    side.sign_in(OWNER).await;
    side.get(OWNER, "/api/v2/users/me").await;
    side.get(OWNER, "/api/v2/users/Owner").await;
    let id = side.token(OWNER)[..10].to_owned();
    side.get(OWNER, &format!("/api/v2/users/me/keys/{id}")).await;
    side.default_organization().await;
    side.sign_up(crate::side::MEMBER).await;
}
