//! The end of a Coder of ours: after everything that needs it, and with its token while it still runs.

use api::{CoderControlPlane, CoderGroup, CoderOrganization};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::ground::{
    Ground, TOKEN_SECRET, ask, cluster_wide, license, licensed, operator, process, ready, running, shipped,
    stage, tell_group,
};
use crate::bed::ban::Ban;
use crate::bed::stage::{eventually, group, is_held_up, is_ready, says, words};

const OUR_TOKENS: &str = "select count(*) from api_keys where token_name like 'coder-operator-%'";

#[tokio::test]
async fn a_coder_of_ours_goes_last_says_what_it_waits_for_and_takes_its_token_along() {
    let stage = stage().await;
    stage.apply(&licensed()).await;
    license(&stage).await;
    let plane = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let alpha = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderOrganization", "metadata": {"name": "alpha"},
        "spec": {"controlPlaneRef": {"name": "main"}, "deletionPolicy": "Delete"}});
    stage.apply(&alpha).await;
    stage.apply(&group(&json!({"organization": "alpha", "deletionPolicy": "Delete"}))).await;
    let alpha = stage.wait::<CoderOrganization>("alpha", "ready", is_ready).await;
    let developers = stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    assert_eq!(ask(&stage, OUR_TOKENS).await, "1");

    // The plane first, and while nobody answers.
    let process = process(&stage, "main").await;
    tell_group("-STOP", &process);
    stage.delete("CoderControlPlane", "main").await;
    stage.delete("CoderOrganization", "alpha").await;
    stage.delete("CoderGroup", "developers").await;
    let is_told =
        |it: &Value| says(it, "Ready", "False", "Deleting") && words(it).contains("CoderOrganization alpha");
    let told = stage.wait::<CoderControlPlane>("main", "waiting", is_told).await;
    assert!(words(&told).contains("waits until these are deleted"), "{}", words(&told));
    stage.wait::<CoderOrganization>("alpha", "told", is_held_up("Unreachable")).await;
    tell_group("-CONT", &process);
    for gone in [&developers, &alpha, &plane] {
        stage.gone(gone).await;
    }
    assert_eq!(ask(&stage, OUR_TOKENS).await, "0", "the token was revoked before coderd went");
    assert_eq!(
        ask(&stage, "select count(*) from organizations where name = 'alpha' and not deleted").await,
        "0"
    );
    let left = stage.operator.said().into_iter().filter(|it| it.to_string().contains("is left"));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<Value>::new());
    eventually("without pods", || running(&stage, "main"), Vec::is_empty).await;
}

#[tokio::test]
async fn a_coder_of_ours_that_was_deleted_while_nobody_looked_goes_and_takes_its_token_along() {
    let mut stage = stage().await;
    let plane = ready(&stage, &shipped()).await;
    assert_eq!(ask(&stage, OUR_TOKENS).await, "1");
    stage.operator.tell("-TERM");
    stage.operator.ended().await;
    stage.api::<Secret>().delete(TOKEN_SECRET, &DeleteParams::default()).await.unwrap();
    stage.delete("CoderControlPlane", "main").await;
    stage.operator = operator(&stage.namespace);
    stage.gone(&plane).await;
    assert_eq!(ask(&stage, OUR_TOKENS).await, "0");
}

#[tokio::test]
async fn a_namespace_with_a_coder_of_ours_goes_and_leaves_no_process() {
    let stage = cluster_wide().await;
    ready(&stage, &shipped()).await;
    stage.apply(&group(&json!({"deletionPolicy": "Delete"}))).await;
    stage.wait::<CoderGroup>("developers", "told", is_held_up("NotEntitled")).await;
    let process = process(&stage, "main").await;
    stage.delete_namespace().await;
    assert!(!std::path::Path::new("/proc").join(&process).exists(), "its process is gone too");
}

/// Whether the API server takes a change of the token Secret.
async fn takes_changes(stage: &Ground) -> bool {
    let patch = Patch::Merge(json!({"metadata": {"labels": {"asked": "yes"}}}));
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    stage.api::<Secret>().patch(TOKEN_SECRET, &params, &patch).await.is_ok()
}

#[tokio::test]
async fn token_is_named_though_its_secret_is_released_later() {
    let stage = stage().await;
    let mut manifest = shipped();
    ready(&stage, &manifest).await;
    manifest["spec"]["replicas"] = json!(0);
    stage.apply(&manifest).await;
    eventually("without pods", || running(&stage, "main"), Vec::is_empty).await;
    let plane = stage.wait::<CoderControlPlane>("main", "there", |_| true).await;
    let forbidden =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["secrets"]});
    let name = format!("no-changes-of-secrets-in-{}", stage.namespace);
    let ban = Ban { stage: &stage, name, words: "Secrets of this namespace stay as they are", forbidden };
    ban.begin(|| takes_changes(&stage)).await;
    stage.delete("CoderControlPlane", "main").await;
    let is_held = |it: &Value| words(it).contains("the token Secret is not deleted yet");
    stage.wait::<CoderControlPlane>("main", "held by the token Secret", is_held).await;
    assert_eq!(stage.left_behind().await, [""; 0], "the deletion is not over");
    ban.end(|| takes_changes(&stage)).await;
    stage.gone(&plane).await;
    let left = stage.left_behind().await;
    assert!(left.iter().any(|it| it.starts_with("the operator's token")), "{left:#?}");
    assert!(left.iter().any(|it| it.contains("stays in Coder without a token")), "{left:#?}");
    assert_eq!(ask(&stage, OUR_TOKENS).await, "1", "nobody could be asked");
}
