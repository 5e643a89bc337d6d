//! The database of a Coder that we run: declared by reference, and never lost by a roll-out.

use api::CoderControlPlane;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::ground::{Ground, ask, ready, running, shipped, stage};
use crate::bed::stage::{LIMIT, eventually, image, is_held_up, is_ready, says, words};

const VARIABLE: &str = "CODER_PG_CONNECTION_URL";

async fn generation(stage: &Ground) -> Option<i64> {
    stage.api::<Deployment>().get("main").await.unwrap().metadata.generation
}

/// The pods that the Deployment declares. Its generation changes with its annotations too.
async fn template(stage: &Ground) -> Value {
    let deployment = stage.api::<Deployment>().get("main").await.unwrap();
    serde_json::to_value(deployment.spec.unwrap().template).unwrap()
}

async fn rolled_beyond(stage: &Ground, before: Option<i64>) {
    let rolled = |it: Option<&Deployment>| it.is_some_and(|it| it.metadata.generation > before);
    let wait = await_condition(stage.api::<Deployment>(), "main", rolled);
    timeout(LIMIT, wait).await.unwrap().unwrap();
}

fn is_refused(plane: &Value) -> bool {
    is_held_up("DatabaseRemovalRefused")(plane)
        && says(plane, "Stalled", "True", "DatabaseRemovalRefused")
        && says(plane, "DatabaseConfigured", "False", "DatabaseRemovalRefused")
}

#[tokio::test]
async fn database_by_reference_is_used_rolled_with_its_secret_and_kept() {
    let stage = stage().await;
    let mut plane = shipped();
    plane["spec"]["extraEnv"].as_array_mut().unwrap().retain(|it| it["name"] != VARIABLE);
    let without = plane.clone();
    plane["spec"]["database"] = json!({"connectionSecretRef": {"name": "coder-db", "key": "url"}});
    let up = ready(&stage, &plane).await;
    assert!(says(&up, "DatabaseConfigured", "True", "UpToDate"), "{up:#}");
    assert_eq!(ask(&stage, "SELECT count(*) FROM users WHERE username = 'owner'").await, "1");

    // Another value of the Secret reaches the pods.
    let before = generation(&stage).await;
    let secret = stage.api::<Secret>().get("coder-db").await.unwrap().data.unwrap().remove("url").unwrap();
    let url = String::from_utf8(secret.0).unwrap();
    let separator = if url.contains('?') { '&' } else { '?' };
    let changed = format!("{url}{separator}application_name=rolled");
    stage.write_secret("coder-db", &json!({"url": changed})).await;
    rolled_beyond(&stage, before).await;
    stage.wait::<CoderControlPlane>("main", "ready again", is_ready).await;

    // Without the reference Coder would start on an empty database.
    let pods = eventually("one pod", || running(&stage, "main"), |it| it.len() == 1).await;
    let before = generation(&stage).await;
    stage.apply(&without).await;
    let refused = stage.wait::<CoderControlPlane>("main", "refused", is_refused).await;
    assert!(words(&refused).contains("Secret coder-db, key url"), "{}", words(&refused));
    let refused = stage.look_again("CoderControlPlane", "main").await;
    assert!(is_refused(&refused), "{refused:#}");
    assert_eq!(generation(&stage).await, before, "the Deployment was left as it is");
    assert_eq!(running(&stage, "main").await, pods);
    assert_eq!(refused["status"]["operatorAccessReady"], true, "dependents go on");
    ready(&stage, &plane).await;
    assert_eq!(running(&stage, "main").await, pods);
}

#[tokio::test]
async fn secret_that_loses_the_database_url_does_not_roll_pods() {
    let stage = stage().await;
    stage.write_secret("coder-env", &json!({VARIABLE: "postgres://db.invalid/coder", "OTHER": "1"})).await;
    let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main"},
        "spec": {"image": image("bed/host"), "replicas": 0, "interval": "10s",
            "envFrom": [{"secretRef": {"name": "coder-env"}}]}});
    stage.apply(&plane).await;
    let configured = |it: &Value| says(it, "DatabaseConfigured", "True", "UpToDate");
    stage.wait::<CoderControlPlane>("main", "applied", configured).await;
    let recorded = |it: Option<&Deployment>| {
        it.is_some_and(|it| {
            it.annotations().get("coder.com/database").is_some_and(|it| it == "Secret coder-env")
        })
    };
    timeout(LIMIT, await_condition(stage.api::<Deployment>(), "main", recorded)).await.unwrap().unwrap();
    let before = template(&stage).await;

    // A Deployment of an earlier release has no record, and gets one without new pods.
    let unrecorded = json!({"metadata": {"annotations": {"coder.com/database": null}}});
    let deployments = stage.api::<Deployment>();
    deployments.patch("main", &PatchParams::default(), &Patch::Merge(unrecorded)).await.unwrap();
    timeout(LIMIT, await_condition(deployments.clone(), "main", recorded)).await.unwrap().unwrap();
    assert_eq!(template(&stage).await, before);

    let renamed = json!({"data": {VARIABLE: null}, "stringData": {"RENAMED": "postgres://db.invalid/coder"}});
    let secrets = stage.api::<Secret>();
    secrets.patch("coder-env", &PatchParams::default(), &Patch::Merge(renamed)).await.unwrap();
    let refused = stage.wait::<CoderControlPlane>("main", "refused", is_refused).await;
    assert!(words(&refused).contains("from Secret coder-env"), "{}", words(&refused));
    assert_eq!(template(&stage).await, before, "the Deployment was left as it is");

    let restored = json!({"stringData": {VARIABLE: "postgres://db.invalid/coder"}});
    secrets.patch("coder-env", &PatchParams::default(), &Patch::Merge(restored)).await.unwrap();
    stage.wait::<CoderControlPlane>("main", "applied again", configured).await;
    assert_ne!(template(&stage).await, before, "the pods read the other key too");
}

/// A Deployment as newer releases of coder-k8s leave it for a manifest with `spec.database`.
fn deployment(plane: &CoderControlPlane) -> Value {
    let labels = json!({"app.kubernetes.io/name": "coder-control-plane", "app.kubernetes.io/instance": "main",
        "app.kubernetes.io/managed-by": "coder-k8s"});
    let owner = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "name": "main",
        "uid": plane.uid(), "controller": true, "blockOwnerDeletion": true});
    let variable =
        json!({"name": VARIABLE, "valueFrom": {"secretKeyRef": {"name": "coder-db", "key": "url"}}});
    let container = json!({"name": "coder", "image": image("bed/host"), "args": ["--http-address=0.0.0.0:8080"],
        "env": [variable], "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "main", "labels": labels, "ownerReferences": [owner]},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"serviceAccountName": "main", "containers": [container]}}}})
}

#[tokio::test]
async fn deployment_of_coder_k8s_with_a_database_is_not_rolled_onto_none() {
    let stage = stage().await;
    let plane = |spec: Value| {
        let mut whole = json!({"image": image("bed/host"), "replicas": 0, "interval": "10s"});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main"},
            "spec": whole})
    };
    // The definition of an earlier release has dropped `spec.database` from the manifest.
    stage.apply(&plane(json!({"suspend": true}))).await;
    let made = stage.api::<CoderControlPlane>().get("main").await.unwrap();
    let found: Deployment = serde_json::from_value(deployment(&made)).unwrap();
    let params = PostParams { dry_run: false, field_manager: Some("coder-k8s".to_owned()) };
    stage.api::<Deployment>().create(&params, &found).await.unwrap();
    let awake = json!({"spec": {"suspend": false}});
    let planes = stage.api::<CoderControlPlane>();
    planes.patch("main", &PatchParams::default(), &Patch::Merge(awake)).await.unwrap();
    stage.wait::<CoderControlPlane>("main", "refused", is_refused).await;
    stage.look_again("CoderControlPlane", "main").await;
    assert_eq!(generation(&stage).await, Some(1), "the Deployment was left as it is");

    let database = json!({"connectionSecretRef": {"name": "coder-db", "key": "url"}});
    stage.apply(&plane(json!({"suspend": false, "database": database}))).await;
    rolled_beyond(&stage, Some(1)).await;
    let configured = |it: &Value| says(it, "DatabaseConfigured", "True", "UpToDate");
    stage.wait::<CoderControlPlane>("main", "taken over", configured).await;

    // One that never had a database says so from the beginning, also while its pods do not come up.
    let bare = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "bare"},
        "spec": {"image": image("nobody/has-this"), "replicas": 1, "interval": "10s",
            "templateTests": {"allowRetain": true}}});
    stage.apply(&bare).await;
    let is_stuck =
        |it: &Value| is_held_up("RolloutStuck")(it) && says(it, "DatabaseConfigured", "False", "NoDatabase");
    let stuck = stage.wait::<CoderControlPlane>("bare", "stuck", is_stuck).await;
    assert!(says(&stuck, "Complete", "False", "NotSupported"), "{stuck:#}");
}
