//! A real provisioner daemon in a pod, on a coderd that it reaches by its Service's name.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use reqwest::Method;
use serde_json::{Value, json};
use testbed::Session;

use super::coder::{deploy, license, sign_in};
use crate::support::{Corner, ask};

const TEMPLATE: &str = r#"resource "terraform_data" "only" { input = "built" }"#;

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

    let version = publish(&owner, organization).await;
    let path = format!("/api/v2/templateversions/{}", version["id"].as_str().unwrap());
    let job = ask("the end of the template's import", || async {
        let (_, version) = owner.request(Method::GET, &path, None).await.unwrap();
        let job = version["job"].clone();
        (job["completed_at"].is_string()).then_some(job)
    })
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

/// Uploads the template and starts its import, for daemons with our key's tags.
async fn publish(owner: &Session, organization: &str) -> Value {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(TEMPLATE.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "main.tf", TEMPLATE.as_bytes()).unwrap();
    let archive = archive.into_inner().unwrap();
    let upload =
        owner.start(Method::POST, "/api/v2/files").header("Content-Type", "application/x-tar").body(archive);
    let file: Value = upload.send().await.unwrap().json().await.unwrap();
    let body = json!({"storage_method": "file", "file_id": file["hash"], "provisioner": "terraform",
        "tags": {"site": "bed"}});
    let (status, version) =
        owner.request(Method::POST, &format!("{organization}/templateversions"), Some(&body)).await.unwrap();
    assert_eq!(status, 201, "{version}");
    version
}
