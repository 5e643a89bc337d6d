//! The life of a template: its versions, its settings, who may use it, and its end.

use api::Reason;
use engine::{Blocked, Outcome};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{CHANGED, Scene, source, template, variables};
use crate::support::{secret, subject};

#[tokio::test]
async fn version_is_built_before_the_template_exists() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({"displayName": "Kubernetes", "schedule": {"defaultTTL": "8h"},
        "version": {"message": "First"}}));
    let waiting = scene.blocked(&mut manifest).await;
    assert_eq!(waiting.reason, Reason::VersionBuilding);
    assert!(scene.deployment.read(|it| it.templates.is_empty()), "no template without a built version");
    let published = manifest["status"]["version"].clone();
    assert!(
        published["id"].is_string() && published["name"].as_str().unwrap().starts_with("sha-"),
        "{published}"
    );
    let still = scene.blocked(&mut manifest).await;
    assert_eq!((still.reason, scene.versions()), (Reason::VersionBuilding, 1));
    assert!(still.message.contains("running"), "{}", still.message);
    scene.build();
    scene.applied(&mut manifest).await;
    let remote = scene.remote(&manifest).await;
    assert_eq!(remote["active_version_id"], published["id"]);
    assert_eq!(
        (&remote["display_name"], &remote["default_ttl_ms"]),
        (&json!("Kubernetes"), &json!(28_800_000))
    );
    assert_eq!(manifest["status"]["version"]["build"], "succeeded");
    let message = scene.deployment.read(|it| it.versions.values().next().unwrap().message.clone());
    assert!(message.starts_with("First\n\n[coder-operator "), "{message}");
}

#[tokio::test]
async fn changed_source_is_published_and_promoted_once_it_is_built() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({}));
    scene.published(&mut manifest).await;
    let first = scene.remote(&manifest).await["active_version_id"].clone();
    manifest["spec"]["source"] = source("resource \"terraform_data\" \"two\" {}");
    scene.blocked(&mut manifest).await;
    assert_eq!(scene.remote(&manifest).await["active_version_id"], first, "promoted only after the build");
    scene.build();
    scene.applied(&mut manifest).await;
    let second = scene.remote(&manifest).await["active_version_id"].clone();
    assert_eq!((second != first, scene.versions()), (true, 2));

    // The old source again: its version is there, and is promoted, also where it was archived.
    let path = format!("/api/v2/templateversions/{}/archive", first.as_str().unwrap());
    scene.by_hand(Method::POST, &path, &json!(null)).await;
    manifest["spec"]["source"] = source("resource \"terraform_data\" \"one\" {}");
    scene.applied(&mut manifest).await;
    assert_eq!(scene.remote(&manifest).await["active_version_id"], first);
    assert_eq!(scene.versions(), 2, "the same content is the same version");
}

#[tokio::test]
async fn version_that_is_not_activated_is_built_and_left() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({}));
    scene.published(&mut manifest).await;
    let first = scene.remote(&manifest).await["active_version_id"].clone();
    manifest["spec"]["version"] = json!({"name": "v2", "activate": false});
    scene.blocked(&mut manifest).await;
    scene.build();
    scene.equal(&mut manifest).await;
    assert_eq!(scene.remote(&manifest).await["active_version_id"], first);
    manifest["spec"]["version"] = json!({"name": "v2"});
    scene.applied(&mut manifest).await;
    assert_ne!(scene.remote(&manifest).await["active_version_id"], first);
}

#[tokio::test]
async fn changed_secret_publishes_a_version() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({"variables": variables()}));
    scene.published(&mut manifest).await;
    let first = manifest["status"]["version"].clone();
    manifest["spec"]["variables"].as_array_mut().unwrap().reverse();
    scene.equal(&mut manifest).await;
    scene.cluster.set(&secret("registry", &json!({"token": CHANGED})));
    scene.published(&mut manifest).await;
    let second = manifest["status"]["version"].clone();
    assert_ne!((&first["name"], &first["content"]), (&second["name"], &second["content"]));
    assert_eq!(scene.versions(), 2);
}

#[tokio::test]
async fn config_map_is_a_source_and_its_change_publishes() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({"source": {"configMapRef": {"name": "files"}}}));
    let waiting = scene.blocked(&mut manifest).await;
    assert_eq!(waiting.reason, Reason::ReferenceNotFound);
    assert!(waiting.message.contains("ConfigMap files"), "{}", waiting.message);
    let map = |text: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files", "namespace": "platform"},
            "data": {"main.tf": text, "modules__a__main.tf": "locals {}"}})
    };
    scene.cluster.set(&map("locals {}"));
    scene.published(&mut manifest).await;
    scene.cluster.set(&map("locals { a = 1 }"));
    scene.published(&mut manifest).await;
    assert_eq!(scene.versions(), 2);
    // The same files inline are the same archive.
    manifest["spec"]["source"] =
        json!({"files": {"main.tf": "locals { a = 1 }", "modules/a/main.tf": "locals {}"}});
    scene.equal(&mut manifest).await;
}

#[tokio::test]
async fn drift_is_healed_and_undeclared_settings_stay() {
    let scene = Scene::new().await;
    let mut manifest =
        template(&json!({"displayName": "Kubernetes", "acl": {"groups": {"Everyone": "admin"}},
        "schedule": {"defaultTTL": "8h"}}));
    scene.published(&mut manifest).await;
    let id = manifest["status"]["id"].clone();
    let path = format!("/api/v2/templates/{}", id.as_str().unwrap());
    let ours = scene.remote(&manifest).await["active_version_id"].clone();
    let by_hand = json!({"display_name": "By hand", "default_ttl_ms": 1, "description": "kept", "icon": "/icon/k8s.png",
        "activity_bump_ms": 60_000, "allow_user_autostart": false});
    scene.by_hand(Method::PATCH, &path, &by_hand).await;
    let owner = scene.deployment.read(|it| *it.users.keys().next().unwrap());
    let access = json!({"user_perms": {owner.to_string(): "use"}, "group_perms": {}});
    scene.by_hand(Method::PATCH, &format!("{path}/acl"), &access).await;
    let pushed = scene.push(&id, "by-hand").await;
    scene.by_hand(Method::PATCH, &format!("{path}/versions"), &json!({"id": pushed})).await;

    let mut observed = manifest.clone();
    observed["spec"]["mode"] = json!("Observe");
    assert!(matches!(scene.reconcile(&mut observed).await.outcome, Outcome::Observed));
    scene.applied(&mut manifest).await;
    let remote = scene.remote(&manifest).await;
    assert_eq!(remote["active_version_id"], ours);
    assert_eq!(
        (&remote["display_name"], &remote["default_ttl_ms"]),
        (&json!("Kubernetes"), &json!(28_800_000))
    );
    assert_eq!((&remote["description"], &remote["icon"]), (&json!("kept"), &json!("/icon/k8s.png")));
    assert_eq!(
        (&remote["activity_bump_ms"], &remote["allow_user_autostart"]),
        (&json!(60_000), &json!(false))
    );
    let access = scene.by_hand(Method::GET, &format!("{path}/acl"), &json!(null)).await;
    assert_eq!(access["users"][0]["role"], "use", "users are managed elsewhere");
    manifest["spec"]["acl"]["users"] = json!({});
    scene.applied(&mut manifest).await;
    let access = scene.by_hand(Method::GET, &format!("{path}/acl"), &json!(null)).await;
    assert_eq!((&access["users"], &access["group"][0]["role"]), (&json!([]), &json!("admin")));
}

#[tokio::test]
async fn without_a_source_versions_are_published_elsewhere() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({"description": "ours", "adoptionPolicy": "Adopt"}));
    manifest["spec"].as_object_mut().unwrap().remove("source");
    let waiting = scene.blocked(&mut manifest).await;
    assert_eq!(waiting.reason, Reason::ReferenceNotFound, "{}", waiting.message);
    let version = scene.push(&json!(null), "first").await;
    let body = json!({"name": "kubernetes", "template_version_id": version});
    let made = scene.by_hand(Method::POST, "/api/v2/organizations/default/templates", &body).await;
    scene.applied(&mut manifest).await;
    assert_eq!(manifest["status"]["id"], made["id"]);
    let pushed = scene.push(&made["id"], "second").await;
    let path = format!("/api/v2/templates/{}/versions", made["id"].as_str().unwrap());
    scene.by_hand(Method::PATCH, &path, &json!({"id": pushed})).await;
    scene.equal(&mut manifest).await;
    assert_eq!(scene.remote(&manifest).await["active_version_id"], pushed);
    assert_eq!(manifest["status"]["version"], Value::Null);
}

#[tokio::test]
async fn template_that_workspaces_use_is_not_deleted() {
    let scene = Scene::new().await;
    let mut manifest = template(&json!({"deletionPolicy": "Delete", "allowDestructive": true}));
    scene.published(&mut manifest).await;
    let owner = scene.deployment.read(|it| *it.users.keys().next().unwrap());
    let template_id: Uuid = manifest["status"]["id"].as_str().unwrap().parse().unwrap();
    scene.deployment.edit(|it| {
        let workspace = sim::state::Workspace {
            name: "dev".to_owned(),
            owner_id: owner,
            template_id,
            ..Default::default()
        };
        it.workspaces.insert(Uuid::from_u128(5), workspace);
    });
    let coder = scene.coder.anew();
    let mut subject = subject(&manifest);
    let assessment = subject.assess_deletion(&coder).await;
    let report = subject.carry_out(&assessment, &coder).await;
    let Outcome::Blocked(Blocked { reason, message }) = report.outcome else {
        panic!("{:?}", report.outcome)
    };
    assert_eq!(reason, Reason::InUse);
    assert!(message.contains("owner/dev"), "{message}");
    assert!(scene.deployment.read(|it| !it.templates[&template_id].deleted));
    scene.deployment.edit(|it| it.workspaces.clear());
    let coder = scene.coder.anew();
    let assessment = subject.assess_deletion(&coder).await;
    assert!(matches!(subject.carry_out(&assessment, &coder).await.outcome, Outcome::Applied));
    assert!(scene.deployment.read(|it| it.templates[&template_id].deleted));
}
