//! A real provisioner daemon in a pod, on a coderd that it reaches by its Service's name.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use reqwest::Method;
use serde_json::json;

use super::coder::{deploy, license, sign_in};
use crate::support::{Corner, ask};

#[tokio::test]
async fn a_daemon_with_a_key_shows_up_and_builds_a_template() {
    let corner = Corner::new("daemon").await;
    deploy(&corner, "bed/coder-licensed", 1).await;
    let owner = sign_in(&corner).await;
    license(&corner, &owner).await;
    let organization = "/api/v2/organizations/default";
    let body = json!({"name": "by-hand", "tags": {"site": "bed"}});
    let (status, answer) =
        owner.request(Method::POST, &format!("{organization}/provisionerkeys"), Some(&body)).await.unwrap();
    assert_eq!(status, 201, "{answer}");
    corner.create::<Secret>(json!({"metadata": {"name": "key"}, "stringData": {"key": answer["key"]}})).await;
    start_daemon(&corner, &owner.url).await;

    let daemons = format!("{organization}/provisionerdaemons");
    let daemon = ask("a daemon on our key", || async {
        let (_, daemons) = owner.request(Method::GET, &daemons, None).await.unwrap();
        daemons.as_array()?.iter().find(|it| it["key_name"] == "by-hand").cloned()
    })
    .await;
    assert!(daemon["name"].as_str().unwrap().starts_with("daemon-"), "it is named after its pod: {daemon}");

    let version = owner.start_import("default", &json!({"site": "bed"})).await.unwrap();
    let job =
        ask("the end of the template's import", || async { owner.ended_import(&version).await.unwrap() })
            .await;
    assert_eq!(job["status"], "succeeded", "{job}");
    assert_eq!(job["worker_id"], daemon["id"]);
}

async fn start_daemon(corner: &Corner, url: &str) {
    let labels = json!({"app": "daemon"});
    let container = json!({
        "name": "daemon", "image": "bed/coder", "command": ["/opt/coder"], "args": ["provisioner", "start"],
        "env": [
            {"name": "CODER_URL", "value": url},
            {"name": "CODER_PROVISIONER_DAEMON_KEY", "valueFrom": {"secretKeyRef": {"name": "key", "key": "key"}}},
            {"name": "CODER_PROVISIONER_DAEMON_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
    });
    let spec = json!({"selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}});
    corner.create::<Deployment>(json!({"metadata": {"name": "daemon"}, "spec": spec})).await;
}
