//! Control planes that the operator runs.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sim::MemoryCluster;

use super::{NAMESPACE, PASSWORD, Stage};

#[tokio::test(start_paused = true)]
async fn control_plane_that_we_run_lives_in_memory() {
    let stage = Stage::new();
    let license = stage.coder.sign_license(&Map::new());
    stage.write_secret("coder-db", &[("url", "postgres://db.test/coder")]).await;
    stage.write_secret("coder-license", &[("license", license.as_str())]).await;
    let first = [("email", "admin@coder.test"), ("username", "admin"), ("password", PASSWORD)];
    stage.write_secret("coder-first-user", &first).await;
    let database = json!({"name": "CODER_PG_CONNECTION_URL",
        "valueFrom": {"secretKeyRef": {"name": "coder-db", "key": "url"}}});
    stage
        .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main"}, "spec": {"image": "coder:v2.36.1", "replicas": 2, "extraEnv": [database],
                "licenseSecretRef": {"name": "coder-license"},
                "operatorAccess": {"generatedTokenSecretName": "main-operator-token",
                    "firstUserSecretRef": {"name": "coder-first-user"}}}}))
        .await;
    stage.ready("CoderControlPlane", "main").await;
    assert_eq!(stage.cluster.all("Pod").len(), 2);
    assert_eq!(stage.coder.read(|it| it.licenses.len()), 1);
    let users = |it: &sim::state::State| it.users.values().filter(|it| !it.deleted).count();
    assert_eq!(stage.coder.read(users), 2, "the first user and the operator's account");
    stage.delete("CoderControlPlane", "main").await;
    stage.until("CoderControlPlane", "main", "gone", |it| it.is_none()).await;
    assert_eq!((stage.cluster.all("Deployment").len(), stage.cluster.all("Pod").len()), (0, 0));
    assert!(stage.cluster.find("Secret", "main-operator-token").is_none());
    stage.end().await;
}

/// The accounts of a deployment.
fn accounts(state: &sim::state::State) -> usize {
    state.users.values().filter(|it| !it.deleted).count()
}

/// Changes the control plane as a person does, and approves nothing.
fn declare(stage: &Stage, change: impl Fn(&mut Value)) {
    stage.cluster.edit("CoderControlPlane", "main", |it| {
        change(&mut it["spec"]);
        let generation = it["metadata"]["generation"].as_i64().unwrap();
        it["metadata"]["generation"] = json!(generation + 1);
    });
}

/// Waits for a plan with a step of this action on the operator's access, or without that field on objects. Returns its hash.
async fn planned(stage: &Stage, action: &str, is_access: bool) -> String {
    let is_planned = |it: &Value| {
        let mut steps = it["status"]["plan"]["steps"].as_array().into_iter().flatten();
        steps.any(|it| {
            let is_of_access = it["target"].as_str().unwrap().starts_with("operator access");
            it["action"] == action && is_of_access == is_access
        })
    };
    let what = format!("planning to {action}");
    let asks = stage.until("CoderControlPlane", "main", &what, |it| it.is_some_and(is_planned)).await;
    asks["status"]["plan"]["hash"].as_str().unwrap().to_owned()
}

fn approve(stage: &Stage, hash: &str) {
    stage.cluster.edit("CoderControlPlane", "main", |it| {
        it["metadata"]["annotations"] = json!({api::annotation::APPROVED_PLAN: hash});
    });
}

#[tokio::test(start_paused = true)]
async fn account_of_the_operator_comes_and_goes_with_an_approval() {
    let stage = Stage::new();
    let first = [("email", "admin@coder.test"), ("username", "admin"), ("password", PASSWORD)];
    stage.write_secret("coder-first-user", &first).await;
    stage.write_secret("coder-db", &[("url", "postgres://db.test/coder")]).await;
    let database = json!({"name": "CODER_PG_CONNECTION_URL",
        "valueFrom": {"secretKeyRef": {"name": "coder-db", "key": "url"}}});
    stage
        .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main"}, "spec": {"image": "coder:v2.36.1", "approval": "Manual",
                "extraEnv": [database], "operatorAccess": {"firstUserSecretRef": {"name": "coder-first-user"}}}}))
        .await;
    approve(&stage, &planned(&stage, "Create", false).await);
    let hash = planned(&stage, "Create", true).await;
    assert_eq!(stage.coder.read(accounts), 0, "nothing is created before it is approved");
    approve(&stage, &hash);
    stage.ready("CoderControlPlane", "main").await;
    assert_eq!(stage.coder.read(accounts), 2, "the first user and the operator's account");

    // An account that a person deletes is created again with another approval.
    let operator = stage.coder.read(|it| it.users.values().find(|it| it.username != "admin").unwrap().id);
    stage.request("DELETE", &format!("/api/v2/users/{operator}"), &Value::Null).await;
    assert_eq!(stage.coder.read(accounts), 1);
    let hash = planned(&stage, "Create", true).await;
    assert_eq!(stage.coder.read(accounts), 1, "nothing is created before it is approved");
    approve(&stage, &hash);
    stage.eventually("the account is there again", |it| accounts(it) == 2).await;
    stage.ready("CoderControlPlane", "main").await;

    declare(&stage, |spec| spec["operatorAccess"]["disabled"] = json!(true));
    let hash = planned(&stage, "Delete", true).await;
    assert_eq!(stage.coder.read(accounts), 2, "nothing is deleted before it is approved");
    approve(&stage, &hash);
    stage.eventually("the account is deleted", |it| accounts(it) == 1).await;
    let is_disabled = |it: &Value| {
        let mut conditions = it["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|it| it["type"] == "OperatorAccessReady" && it["reason"] == "AccessDisabled")
    };
    stage.until("CoderControlPlane", "main", "without access", |it| it.is_some_and(is_disabled)).await;
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn observed_control_plane_keeps_the_account_that_it_has() {
    let stage = Stage::new();
    let license = stage.coder.sign_license(&Map::new());
    stage.write_secret("coder-license", &[("license", license.as_str())]).await;
    let first = [("email", "admin@coder.test"), ("username", "admin"), ("password", PASSWORD)];
    stage.write_secret("coder-first-user", &first).await;
    stage
        .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main"}, "spec": {"image": "coder:v2.36.1",
                "licenseSecretRef": {"name": "coder-license"},
                "operatorAccess": {"firstUserSecretRef": {"name": "coder-first-user"}}}}))
        .await;
    stage.ready("CoderControlPlane", "main").await;
    stage
        .apply(
            &json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup", "metadata": {"name": "held"},
            "spec": {"controlPlaneRef": {"name": "main"}, "name": "held", "deletionPolicy": "Delete"}}),
        )
        .await;
    stage.ready("CoderGroup", "held").await;
    declare(&stage, |spec| {
        spec["mode"] = json!("Observe");
        spec["operatorAccess"]["disabled"] = json!(true);
    });
    planned(&stage, "Delete", true).await;
    assert_eq!(stage.coder.read(accounts), 2);

    // The deletion of a manifest that refers to the control plane changes nothing about that.
    let group = stage.cluster.find("CoderGroup", "held").unwrap();
    assert!(group["status"]["id"].is_string(), "{group:#}");
    stage.delete("CoderGroup", "held").await;
    stage.until("CoderGroup", "held", "gone", |it| it.is_none()).await;
    let groups = |it: &sim::state::State| it.groups.values().filter(|it| it.name == "held").count();
    assert_eq!((stage.coder.read(accounts), stage.coder.read(groups)), (2, 0));
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn control_plane_whose_objects_cannot_be_read_does_not_look_healthy() {
    let cluster = MemoryCluster::new(Arc::new(Timestamp::now), 1);
    cluster.refuse_lists("HTTPRoute", Some(NAMESPACE), 403);
    let stage = Stage::on(cluster);
    let gateway = json!({"host": "coder.example.com", "parentRefs": [{"name": "public"}]});
    stage
        .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main"}, "spec": {"image": "coder:v2.36.1", "expose": {"gateway": gateway}}}))
        .await;
    let told = stage.until("CoderControlPlane", "main", "begun", |it| {
        it.is_some_and(|it| it["status"]["conditions"].is_array())
    });
    let told = told.await;
    let conditions = told["status"]["conditions"].as_array().unwrap();
    for condition in ["Ready", "OperatorAccessReady"] {
        let status = conditions.iter().find(|it| it["type"] == condition).map(|it| &it["status"]);
        assert_eq!(status, Some(&json!("Unknown")), "{told:#}");
    }
    assert_eq!(told["status"]["phase"], "Pending");
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn key_for_fingerprints_that_cannot_be_stored_is_reported() {
    let cluster = MemoryCluster::new(Arc::new(Timestamp::now), 1);
    cluster.refuse_writes(Some(|it| it["metadata"]["name"] == "main-operator-token"));
    let stage = Stage::on(cluster);
    stage.write_secret("coder-db", &[("url", "postgres://db.test/coder")]).await;
    let database = json!({"name": "CODER_PG_CONNECTION_URL",
        "valueFrom": {"secretKeyRef": {"name": "coder-db", "key": "url"}}});
    stage
        .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main"}, "spec": {"image": "coder:v2.36.1", "extraEnv": [database]}}))
        .await;
    let is_reported = |it: &Value| {
        let mut conditions = it["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|it| it["type"] == "Ready" && it["reason"] == "SecretNotWritten")
    };
    let told = stage.until("CoderControlPlane", "main", "refused", |it| it.is_some_and(is_reported)).await;
    assert!(told["status"]["plan"].is_null(), "a plan would show a fingerprint: {told:#}");
    assert_eq!(stage.cluster.all("Deployment"), Vec::<Value>::new());
    stage.cluster.refuse_writes(None);
    stage.until("Deployment", "main", "there", |it| it.is_some()).await;
    stage.end().await;
}
