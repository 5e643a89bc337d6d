//! Accounts under the controllers, at a coderd without a licence: a password from a Secret, which is sent once and shown nowhere.

use reqwest::Method;
use serde_json::json;
use testbed::Flavour;

use super::{
    get,
    proxy::Proxy,
    secrecy,
    stage::{Stage, is_held_up, is_ready, words},
};
use crate::examples::request;

const FIRST: &str = "Bed-Person-31-Cases!";
const SECOND: &str = "Bed-Person-47-Cases!";
const EMAIL: &str = "bob@bed.test";

/// Whether bob can sign in with that password.
async fn signs_in(stage: &Stage, password: &str) -> bool {
    let login = json!({"email": EMAIL, "password": password});
    let answer = stage.coderd.owner.request(Method::POST, "/api/v2/users/login", Some(&login)).await.unwrap();
    answer.0 == 201
}

#[tokio::test]
async fn user_begins_with_the_password_of_a_secret_that_no_text_shows() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Shipped).await.unwrap();
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    let bob = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderUser", "metadata": {"name": "bob"},
        "spec": {"controlPlaneRef": {"name": "main"}, "interval": "1h", "email": EMAIL, "roles": ["auditor"],
            "passwordSecretRef": {"name": "people", "key": "bob"}, "suspended": false, "deletionPolicy": "Delete"}});
    stage.apply(&bob).await;
    let waits = stage.wait_for("CoderUser", "bob", "waiting", is_held_up("SecretNotFound")).await;
    assert!(words(&waits).contains("people"), "{}", words(&waits));
    stage.write_secret("people", &json!({"bob": FIRST})).await;
    let made = stage.is_noticed("CoderUser", "bob", "ready", is_ready).await;
    assert!(signs_in(&stage, FIRST).await);
    let user = get(&stage.coderd, "/api/v2/users/bob").await;
    assert_eq!((&user["id"], &user["roles"][0]["name"]), (&made["status"]["id"], &json!("auditor")));

    // The password is a person's own from now on.
    let writes = proxy.writes().len();
    stage.write_secret("people", &json!({"bob": SECOND})).await;
    assert!(is_ready(&stage.look_again("CoderUser", "bob").await));
    assert_eq!(proxy.writes().len(), writes, "a changed Secret is not sent");
    assert!(signs_in(&stage, FIRST).await && !signs_in(&stage, SECOND).await);

    // Roles by hand are healed.
    let roles = json!({"roles": ["auditor", "user-admin"]});
    request(&stage.coderd.owner, Method::PUT, "/api/v2/users/bob/roles", Some(&roles)).await;
    assert!(is_ready(&stage.look_again("CoderUser", "bob").await));
    let user = get(&stage.coderd, "/api/v2/users/bob").await;
    assert_eq!(user["roles"].as_array().unwrap().len(), 1, "{user}");

    let told = secrecy::told(&stage).await;
    for (what, secret) in [("the password", FIRST), ("the other password", SECOND)] {
        secrecy::hides(&told, what, secret.as_bytes());
    }
    stage.delete("CoderUser", "bob").await;
    stage.gone(&made).await;
    let (status, _) = stage.coderd.owner.request(Method::GET, "/api/v2/users/bob", None).await.unwrap();
    assert_eq!(status, 404);
}
