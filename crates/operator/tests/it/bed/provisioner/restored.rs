//! A provisioner whose Secret is replaced by an older copy: its daemons go on, the live key lives, and it waits for a person.

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{
    super::{
        operator::Operator,
        stage::{is_held_up, says, words},
    },
    provisioner,
    scene::{SECRET, Scene, is_settled},
};

/// Puts an older copy in place of the Secret.
async fn restore(scene: &Scene, backup: &Secret) {
    let mut secret = backup.clone();
    secret.metadata.resource_version = None;
    secret.metadata.managed_fields = None;
    scene.stage.api::<Secret>().replace(SECRET, &PostParams::default(), &secret).await.unwrap();
}

/// The uids of the pods.
async fn pods(scene: &Scene) -> Vec<Option<String>> {
    let ours = ListParams::default().labels("app.kubernetes.io/instance=alpha");
    let mut uids: Vec<_> =
        scene.stage.api::<Pod>().list(&ours).await.unwrap().iter().map(kube::ResourceExt::uid).collect();
    uids.sort();
    uids
}

/// It is reported, and neither keys nor pods change.
async fn is_held(scene: &Scene, live: &str) {
    let (before, running) = (scene.ours().await, pods(scene).await);
    let told = scene.wait("outdated", is_held_up("SecretOutdated")).await;
    assert!(says(&told, "ProvisionerKeySecretReady", "False", "SecretOutdated"), "{told:#}");
    assert!(says(&told, "Stalled", "True", "SecretOutdated"), "{told:#}");
    for part in ["it holds key alpha,", live, "restore the newer Secret", "Pods that run keep the key"] {
        assert!(words(&told).contains(part), "{part}: {}", words(&told));
    }
    assert_eq!(told["status"]["provisionerKeyName"], live);
    for _ in 0..3 {
        let told = scene.stage.look_again("CoderProvisioner", "alpha").await;
        assert!(is_held_up("SecretOutdated")(&told), "{told:#}");
    }
    assert_eq!((scene.ours().await, pods(scene).await), (before, running));
    assert!(scene.ours().await.iter().any(|it| it["name"] == live));
}

#[tokio::test]
async fn daemons_outlive_an_older_secret_and_get_a_new_key_when_a_person_asks() {
    let mut scene = Scene::new().await;
    scene.stage.apply(&provisioner("alpha", &json!({}))).await;
    scene.wait("made", is_settled).await;
    let first = scene.held().await;
    let backup = scene.stage.api::<Secret>().get(SECRET).await.unwrap();
    scene.ask_for_rotation().await;
    let is_next = |it: &Value| is_settled(it) && it["status"]["provisionerKeyID"] != first.id;
    scene.wait("replaced", is_next).await;
    let second = scene.held().await;

    // With the status.
    restore(&scene, &backup).await;
    is_held(&scene, &second.name).await;

    // Without it, and without an operator that remembers.
    scene.stage.operator.process.kill().unwrap();
    scene.stage.operator.ended().await;
    restore(&scene, &backup).await;
    let empty = Patch::Merge(json!({"status": null}));
    let provisioners = scene.stage.kind("CoderProvisioner");
    provisioners.patch_status("alpha", &PatchParams::default(), &empty).await.unwrap();
    scene.stage.operator = Operator::start(&scene.stage.namespace, &[]);
    is_held(&scene, &second.name).await;

    let running = pods(&scene).await;
    scene.ask_for_rotation().await;
    let is_next = |it: &Value| is_settled(it) && it["status"]["provisionerKeyID"] != second.id;
    scene.wait("replaced", is_next).await;
    let third = scene.held().await;
    assert!(third.name.ends_with("-3") && third.value != first.value, "{third:?}");
    assert_ne!(pods(&scene).await, running, "the daemons have the new key");
    scene.end().await;
}
