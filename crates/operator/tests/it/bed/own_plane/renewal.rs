//! The token of a Coder of ours is renewed in time, and a renewal that fails costs nothing while the token lives.

use api::CoderControlPlane;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::ground::{TOKEN_SECRET, add_variable, ours, owner, ready, shipped, stage, token};
use crate::bed::{
    operator::writes,
    stage::{eventually, is_ready, says},
};

#[tokio::test]
async fn a_token_is_renewed_in_time_and_a_renewal_that_fails_keeps_access_while_the_token_lives() {
    let stage = stage().await;
    let mut plane = shipped();
    // Nothing but the renewal brings anybody back within this test.
    plane["spec"]["interval"] = json!("1h");
    for name in ["CODER_MAX_TOKEN_LIFETIME", "CODER_MAX_ADMIN_TOKEN_LIFETIME"] {
        add_variable(&mut plane, name, "2m");
    }
    ready(&stage, &plane).await;
    let first = token(&stage).await;
    let second = eventually("renewed", || token(&stage), |it| *it != first).await;
    let owner = owner(&stage, "main").await;
    eventually("without the one before", || ours(&owner), |it| it.tokens.len() == 1).await;

    // From now on nothing can be written into it.
    let secrets = stage.api::<Secret>();
    let immutable = Patch::Merge(json!({"immutable": true}));
    secrets.patch(TOKEN_SECRET, &PatchParams::default(), &immutable).await.unwrap();
    let before = writes(&stage.namespace).await.len();
    stage.operator.says(&["cannot renew the operator's token"]).await;
    let still = stage.look_again("CoderControlPlane", "main").await;
    assert!(is_ready(&still) && says(&still, "OperatorAccessReady", "True", "UpToDate"), "{still:#}");
    stage.look_again("CoderControlPlane", "main").await;
    assert_eq!(token(&stage).await, second);
    eventually("without what could not be kept", || ours(&owner), |it| it.tokens.len() == 1).await;
    let written = writes(&stage.namespace).await.split_off(before);
    assert!(written.len() <= 6, "it is not tried all the time: {written:#?}");

    secrets.delete(TOKEN_SECRET, &DeleteParams::default()).await.unwrap();
    eventually("renewed at last", || token(&stage), |it| it.is_some() && *it != second).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
}
