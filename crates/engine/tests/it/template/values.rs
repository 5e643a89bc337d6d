//! Versions whose mark does not tell the values of Secrets: the command line published them.

use api::Reason;
use serde_json::json;

use super::{CHANGED, Scene, source, template, variables};
use crate::support::secret;

#[tokio::test]
async fn changed_secret_publishes_after_the_command_line_did() {
    let mut scene = Scene::new().await;
    let controller = scene.coder.clone();
    scene.coder = scene.command_line("owner");
    let mut manifest = template(&json!({"variables": variables()}));
    scene.published(&mut manifest).await;
    manifest["status"].as_object_mut().unwrap().remove("version");
    scene.coder = controller;
    scene.equal(&mut manifest).await;
    let first = manifest["status"]["version"].clone();
    scene.cluster.set(&secret("registry", &json!({"token": CHANGED})));
    // A pass that does not publish does not take the changed value for the published one.
    manifest["spec"]["mode"] = json!("Observe");
    scene.reconcile(&mut manifest).await;
    assert_eq!((&manifest["status"]["version"], scene.versions()), (&first, 1));
    manifest["spec"].as_object_mut().unwrap().remove("mode");
    scene.published(&mut manifest).await;
    assert_ne!(manifest["status"]["version"]["id"], first["id"]);
    assert_eq!(scene.versions(), 2);
}

#[tokio::test]
async fn log_of_a_build_with_unknown_values_is_not_shown() {
    let mut scene = Scene::new().await;
    let broken = json!({"variables": variables(), "source": source("locals {")});
    let log = "Unclosed configuration block";
    let mut known = template(&broken);
    scene.blocked(&mut known).await;
    scene.build();
    let failed = scene.blocked(&mut known).await;
    assert!(failed.reason == Reason::VersionFailed && failed.message.contains(log), "{}", failed.message);
    scene.coder = scene.command_line("owner");
    let mut unknown = template(&broken);
    unknown["metadata"]["name"] = json!("unknown");
    scene.blocked(&mut unknown).await;
    scene.build();
    let failed = scene.blocked(&mut unknown).await;
    assert_eq!(failed.reason, Reason::VersionFailed);
    assert!(failed.message.contains("exit status 1") && !failed.message.contains(log), "{}", failed.message);
}
