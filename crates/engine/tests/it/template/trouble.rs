//! What keeps a version from being promoted: failed builds, taken names, missing daemons, limits, licences, crashes.

use api::Reason;
use engine::Outcome;
use reqwest::Method;
use serde_json::json;

use super::{Scene, source, template};

const BROKEN: &str = "resource \"terraform_data\" \"one\" {";

#[tokio::test]
async fn failed_version_is_archived_and_the_active_one_stays() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({}));
    scene.published(&mut manifest).await;
    let active = scene.remote(&manifest).await["active_version_id"].clone();
    manifest["spec"]["source"] = source(BROKEN);
    scene.blocked(&mut manifest).await;
    scene.build();
    for _ in 0..2 {
        let failed = scene.blocked(&mut manifest).await;
        assert_eq!(failed.reason, Reason::VersionFailed);
        assert!(failed.message.contains("failed: Error: Unclosed configuration block"), "{}", failed.message);
    }
    assert_eq!(scene.remote(&manifest).await["active_version_id"], active);
    let archived = scene.deployment.read(|it| it.versions.values().filter(|it| it.archived).count());
    assert_eq!((scene.versions(), archived), (2, 1));
    assert_eq!(manifest["status"]["version"]["build"], "failed");

    // A person unarchives the version to look into it: an observed template leaves that.
    let version = manifest["status"]["version"]["id"].as_str().unwrap();
    let path = format!("/api/v2/templateversions/{version}/unarchive");
    scene.by_hand(Method::POST, &path, &json!(null)).await;
    manifest["spec"]["mode"] = json!("Observe");
    scene.reconcile(&mut manifest).await;
    let archived = || scene.deployment.read(|it| it.versions.values().filter(|it| it.archived).count());
    assert_eq!(archived(), 0);
    manifest["spec"]["mode"] = json!("Enforce");
    scene.reconcile(&mut manifest).await;
    assert_eq!(archived(), 1);
    manifest["spec"]["source"] = source("locals {}");
    scene.published(&mut manifest).await;
}

#[tokio::test]
async fn first_version_that_fails_makes_no_template() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({"source": source(BROKEN)}));
    scene.blocked(&mut manifest).await;
    scene.build();
    for _ in 0..3 {
        assert_eq!(scene.blocked(&mut manifest).await.reason, Reason::VersionFailed);
    }
    assert_eq!((scene.versions(), scene.deployment.read(|it| it.templates.len())), (1, 0));
    manifest["spec"]["source"] = source("locals {}");
    scene.published(&mut manifest).await;
    assert_eq!(scene.versions(), 2);
}

#[tokio::test]
async fn name_of_another_content_is_taken() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({"version": {"name": "v1.4.0"}}));
    scene.published(&mut manifest).await;
    manifest["spec"]["source"] = source("locals {}");
    let taken = scene.blocked(&mut manifest).await;
    assert_eq!(taken.reason, Reason::VersionNameTaken);
    assert!(taken.message.contains("version v1.4.0 of the template has other content"), "{}", taken.message);
    assert_eq!(scene.versions(), 1);
    manifest["spec"]["version"] = json!({"name": "v1.5.0"});
    scene.published(&mut manifest).await;
    // And no name at all is content with the version that is there.
    manifest["spec"].as_object_mut().unwrap().remove("version");
    scene.equal(&mut manifest).await;
}

#[tokio::test]
async fn build_waits_for_a_daemon_with_its_tags() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({"provisionerTags": {"cluster": "alpha"}}));
    scene.blocked(&mut manifest).await;
    scene.build();
    for _ in 0..2 {
        let waiting = scene.blocked(&mut manifest).await;
        assert_eq!(waiting.reason, Reason::NoProvisioner);
        assert!(waiting.message.contains(r#"{"cluster":"alpha"}"#), "{}", waiting.message);
    }
    scene.connect(&json!({"cluster": "alpha"})).await;
    scene.build();
    scene.applied(&mut manifest).await;
    assert_eq!(scene.versions(), 1, "the build went on waiting");
}

#[tokio::test]
async fn version_of_a_crash_is_found_again() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({}));
    scene.blocked(&mut manifest).await;
    // No status was written.
    manifest["status"] = json!({});
    assert_eq!(scene.blocked(&mut manifest).await.reason, Reason::VersionBuilding);
    scene.build();
    scene.applied(&mut manifest).await;
    manifest["spec"]["source"] = source("locals {}");
    scene.blocked(&mut manifest).await;
    manifest["status"].as_object_mut().unwrap().remove("version");
    scene.build();
    scene.applied(&mut manifest).await;
    assert_eq!(scene.versions(), 2);
}

#[tokio::test]
async fn account_that_may_not_read_builds_publishes_once() {
    let mut scene = Scene::new().await;
    scene.person("alice").await;
    scene.edit_person("alice", |it| it.roles = vec!["template-admin".to_owned()]);
    scene.coder = scene.command_line("alice");
    let mut manifest = template(&json!({}));
    for _ in 0..3 {
        let waiting = scene.blocked(&mut manifest).await;
        assert_eq!((waiting.reason, scene.versions()), (Reason::VersionBuilding, 1));
        // The command line has none.
        manifest["status"] = json!({});
    }
    scene.build();
    scene.applied(&mut manifest).await;
    assert_eq!(scene.versions(), 1);
}

#[tokio::test]
async fn licensed_fields_are_named_and_the_others_applied() {
    let scene = Scene::new().await;
    let license = scene.deployment.read(|it| *it.licenses.keys().next().unwrap());
    scene.by_hand(Method::DELETE, &format!("/api/v2/licenses/{license}"), &json!(null)).await;
    let mut manifest = template(&json!({"description": "applied", "requireActiveVersion": true,
        "acl": {"groups": {}}, "schedule": {"defaultTTL": "1h", "failureTTL": "24h"}}));
    scene.blocked(&mut manifest).await;
    scene.build();
    let report = scene.reconcile(&mut manifest).await;
    let Outcome::Unsupported(fields) = report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(fields.reason, Reason::NotEntitled);
    for field in ["spec.acl", "spec.requireActiveVersion", "spec.schedule.failureTTL"] {
        assert!(fields.message.contains(field), "{}", fields.message);
    }
    let remote = scene.remote(&manifest).await;
    assert_eq!((&remote["description"], &remote["default_ttl_ms"]), (&json!("applied"), &json!(3_600_000)));
}

#[tokio::test(start_paused = true)]
async fn upload_limit_is_waited_for_and_one_archive_is_uploaded_once() {
    let scene = Scene::new().await;
    let named = |name: String, text: &str| {
        let mut manifest = template(&json!({"source": source(text)}));
        manifest["metadata"]["name"] = json!(name);
        manifest
    };
    for number in 0..20 {
        let mut manifest = named(format!("same-{number}"), "locals {}");
        assert_eq!(scene.blocked(&mut manifest).await.reason, Reason::VersionBuilding);
    }
    let mut reasons = Vec::new();
    for number in 0..6 {
        let mut manifest = named(format!("other-{number}"), &format!("locals {{ a = {number} }}"));
        reasons.push(scene.blocked(&mut manifest).await);
    }
    let limited = reasons.pop().unwrap();
    assert_eq!(limited.reason, Reason::RateLimited);
    assert!(limited.message.contains("12 archives a minute"), "{}", limited.message);
    assert!(reasons.iter().all(|it| it.reason == Reason::VersionBuilding), "{reasons:?}");
}

#[tokio::test]
async fn new_templates_of_the_same_source_have_versions_of_their_own() {
    let scene = Scene::new().await;
    let mut manifests = ["one", "two"].map(|name| template(&json!({"name": name})));
    for manifest in &mut manifests {
        assert_eq!(scene.blocked(manifest).await.reason, Reason::VersionBuilding);
    }
    assert_eq!(scene.versions(), 2);
    scene.build();
    for manifest in &mut manifests {
        scene.applied(manifest).await;
    }
    assert_eq!(scene.versions(), 2);
}
