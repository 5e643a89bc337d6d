//! Provisioner keys and the daemons that use them.

use serde_json::{Value, json};

use crate::side::{ANONYMOUS, MEMBER, OWNER, Side};

const KEY: &str = "coder-provisioner-daemon-key";

async fn prove(side: &mut Side, value: &str) {
    let prove = ("GET", "/api/v2/provisionerkeys/own", &Value::Null);
    side.call_with(ANONYMOUS, prove, &[(KEY, value)]).await;
}

pub(super) async fn keys(side: &mut Side) {
    let organization = side.default_organization().await;
    let keys = format!("/api/v2/organizations/{organization}/provisionerkeys");
    side.get(OWNER, &format!("{keys}/daemons")).await;
    let tags = json!({"zone": "a", "empty": ""});
    let value = side.post(OWNER, &keys, json!({"name": "Builders", "tags": tags})).await.text("key");
    prove(side, &value).await;
    prove(side, "short").await;
    prove(side, &"x".repeat(43)).await;
    side.get(OWNER, &format!("{keys}/daemons")).await;
    side.get(MEMBER, &format!("{keys}/daemons")).await;
    for name in ["bUILDERS", "", "PSK", "user-auth", "built-in", &"x".repeat(65)] {
        side.post(OWNER, &keys, json!({"name": name, "tags": tags})).await;
    }
    side.post(OWNER, &keys, json!({"name": "tagless", "tags": null})).await;
    side.post(OWNER, &keys, json!({"name": "a b"})).await;
    side.post(OWNER, &keys, json!({"name": "x", "tags": {"a": 1}})).await;
    side.post(MEMBER, &keys, json!({"name": "mine", "tags": tags})).await;
    side.delete(MEMBER, &format!("{keys}/builders")).await;
    side.get(OWNER, &format!("{keys}/builders")).await;
    side.delete(OWNER, &format!("{keys}/psk")).await;
    side.delete(OWNER, &format!("{keys}/nobody")).await;
    side.delete(OWNER, &format!("{keys}/a%20b")).await;
    side.delete(OWNER, &format!("{keys}/tagless")).await;
    side.delete(OWNER, &format!("{keys}/BUILDERS")).await;
    side.delete(OWNER, &format!("{keys}/builders")).await;
    prove(side, &value).await;
    side.get(OWNER, &format!("{keys}/daemons")).await;
    let other = "/api/v2/organizations/payments/provisionerkeys";
    side.post(OWNER, other, json!({"name": "Builders", "tags": {}})).await;
    side.get(OWNER, &format!("{other}/daemons")).await;
    side.get(MEMBER, &format!("{other}/daemons")).await;
    side.delete(OWNER, &format!("{other}/user-auth")).await;
    side.delete(OWNER, &format!("{other}/builders")).await;
}

/// Connects a daemon without a websocket: coderd stores the daemon before it notices that.
async fn connect(side: &mut Side, value: &str, query: &str, version: &str) {
    let path = format!("/api/v2/organizations/default/provisionerdaemons/serve?{query}");
    let headers = [(KEY, value), ("x-coder-build-version", version)];
    let answer = side.unrecorded_with(("GET", &path, &Value::Null), &headers).await;
    // The second answer after the first one is indented by some builds of coderd.
    let body = match answer.body.as_str().and_then(|it| it.split_once('\n')) {
        Some((first, second)) => json!([first, serde_json::from_str::<Value>(second).ok()]),
        None => answer.body,
    };
    side.transcript.note(&format!("daemon with {query} of {version}"), &json!([answer.status, body]));
}

pub(super) async fn daemons(side: &mut Side) {
    let organization = side.default_organization().await;
    let keys = format!("/api/v2/organizations/{organization}/provisionerkeys");
    let tags = json!({"zone": "a", "empty": ""});
    let value = side.post(OWNER, &keys, json!({"name": "pods", "tags": tags})).await.text("key");
    connect(side, &value, "name=pod-1&provisioner=terraform&version=1.18", "v2.35.0").await;
    connect(side, &value, "name=pod-1&provisioner=terraform&version=1.18", "v2.36.1").await;
    side.get(OWNER, &format!("{keys}/daemons")).await;
    connect(side, &value, "name=pod-2&provisioner=terraform", "").await;
    for refused in [
        "name=pod-3",
        "name=pod-3&provisioner=ansible",
        "name=pod-3&provisioner=terraform&tag=zone",
        "name=pod-3&provisioner=terraform&tag=zone%3Da",
        "name=pod-3&provisioner=terraform&version=1.99",
        "name=pod-3&provisioner=terraform&version=2.0",
        "name=pod-3&provisioner=terraform&version=one",
    ] {
        connect(side, &value, refused, "v2.36.1").await;
    }
    for key in ["", "short", &"x".repeat(43)] {
        connect(side, key, "name=pod-4&provisioner=terraform&version=1.18", "v2.36.1").await;
    }
    side.get(OWNER, &format!("{keys}/daemons")).await;
    side.delete(OWNER, &format!("{keys}/pods")).await;
    side.get(OWNER, &format!("{keys}/daemons")).await;
    connect(side, &value, "name=pod-1&provisioner=terraform&version=1.18", "v2.36.1").await;
}
