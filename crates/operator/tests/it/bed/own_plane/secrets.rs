//! Secrets that go away and come back: ours with the token, and those that the pods read.

use api::CoderControlPlane;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kube::api::{DeleteParams, Patch, PatchParams};
use reqwest::Method;
use serde_json::{Value, json};
use testbed::Session;

use super::ground::{
    Ground, Ours, TOKEN_SECRET, operator, ours, owner, ready, running, shipped, stage, token,
};
use crate::bed::{
    operator::writes,
    stage::{eventually, is_held_up, is_ready, says, words},
};

/// Waits until there is one token, and it is another one than before, and tells what we have then.
async fn renewed(stage: &Ground, owner: &Session, before: &Ours) -> Ours {
    let now =
        eventually("renewed", || ours(owner), |it| it.tokens.len() == 1 && it.tokens != before.tokens).await;
    assert_eq!(now.accounts, before.accounts, "no second account");
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    // A token is in coderd before it is in the Secret, and the status may still be that from before.
    let holds_it = |it: &Option<String>| it.as_ref().is_some_and(|it| it.starts_with(&now.tokens[0]));
    eventually("the token that is left in the Secret", || token(stage), holds_it).await;
    now
}

async fn merge(stage: &Ground, patch: &Value) {
    let secrets = stage.api::<Secret>();
    secrets.patch(TOKEN_SECRET, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn delete(stage: &Ground, name: &str) {
    stage.api::<Secret>().delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_token_that_is_lost_or_revoked_is_minted_again_for_the_same_account_and_no_pod_is_rolled() {
    let stage = stage().await;
    ready(&stage, &shipped()).await;
    let owner = owner(&stage, "main").await;
    let (mut had, pods, written) =
        (ours(&owner).await, running(&stage, "main").await, writes(&stage.namespace).await.len());

    // Deleted: our finalizer holds it until there is another one, with another token in it.
    let held = token(&stage).await;
    delete(&stage, TOKEN_SECRET).await;
    eventually("another token", || token(&stage), |it| it.is_some() && *it != held).await;
    let secret = stage.api::<Secret>().get(TOKEN_SECRET).await.unwrap();
    assert_eq!(secret.metadata.deletion_timestamp, None, "it is a new one");
    had = renewed(&stage, &owner, &had).await;

    // Emptied.
    merge(&stage, &json!({"data": null})).await;
    had = renewed(&stage, &owner, &had).await;

    // Torn out, record and all.
    merge(&stage, &json!({"metadata": {"finalizers": null}})).await;
    delete(&stage, TOKEN_SECRET).await;
    had = renewed(&stage, &owner, &had).await;

    // Revoked in Coder. A pass that was about to look at it anyway mints another one before anybody is told.
    let path = format!("/api/v2/users/{}/keys/{}", had.accounts[0], had.tokens[0]);
    assert_eq!(owner.request(Method::DELETE, &path, None).await.unwrap().0, 204);
    renewed(&stage, &owner, &had).await;

    assert_eq!(running(&stage, "main").await, pods, "no pod was touched");
    let deployment = stage.api::<Deployment>().get("main").await.unwrap();
    assert_eq!(deployment.metadata.generation, Some(1));
    let written = writes(&stage.namespace).await.split_off(written);
    assert!(written.len() <= 60, "{} writes: {written:#?}", written.len());
}

#[tokio::test]
async fn a_token_secret_that_is_torn_out_while_nobody_looks_costs_no_second_account() {
    let mut stage = stage().await;
    ready(&stage, &shipped()).await;
    let owner = owner(&stage, "main").await;
    let had = ours(&owner).await;
    stage.operator.tell("-TERM");
    stage.operator.ended().await;
    merge(&stage, &json!({"metadata": {"finalizers": null}})).await;
    delete(&stage, TOKEN_SECRET).await;
    stage.operator = operator(&stage.namespace);
    renewed(&stage, &owner, &had).await;
}

#[tokio::test]
async fn what_pods_read_may_be_missing_for_a_while_and_no_pod_is_rolled() {
    let stage = stage().await;
    ready(&stage, &shipped()).await;
    let (pods, written) = (running(&stage, "main").await, writes(&stage.namespace).await.len());
    let secrets = stage.api::<Secret>();
    let url = secrets.get("coder-db").await.unwrap().data.unwrap().remove("url").unwrap();
    let url = String::from_utf8(url.0).unwrap();

    delete(&stage, "coder-db").await;
    let told = stage.wait::<CoderControlPlane>("main", "told", is_held_up("SecretNotFound")).await;
    assert!(words(&told).contains("coder-db"), "{}", words(&told));
    assert!(says(&told, "OperatorAccessReady", "True", "UpToDate"), "what belongs to it goes on: {told:#}");
    stage.write_secret("coder-db", &json!({"other": "key"})).await;
    let is_told = |it: &Value| is_held_up("SecretNotFound")(it) && words(it).contains("url");
    stage.wait::<CoderControlPlane>("main", "told which key", is_told).await;
    // As it was: another key in it would be another configuration.
    delete(&stage, "coder-db").await;
    stage.write_secret("coder-db", &json!({"url": url})).await;
    stage.wait::<CoderControlPlane>("main", "ready again", is_ready).await;

    assert_eq!(running(&stage, "main").await, pods, "no pod was touched");
    let deployment = stage.api::<Deployment>().get("main").await.unwrap();
    assert_eq!(deployment.metadata.generation, Some(1));
    let written = writes(&stage.namespace).await.split_off(written);
    assert!(written.len() <= 10, "{written:#?}");
}
