//! Accounts of ours that stay in Coder are named: one of before that Coder keeps, and the last one when everything goes.

use api::annotation;
use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use kube::{
    ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::ground::{Ground, TOKEN_SECRET, ask, operator, ours, owner, ready, shipped, stage};
use crate::bed::stage::{eventually, is_ready};

async fn record(stage: &Ground) -> Value {
    let secret = stage.api::<Secret>().get(TOKEN_SECRET).await.unwrap();
    serde_json::from_str(&secret.annotations()[annotation::OPERATOR_ACCESS]).unwrap()
}

/// What the Events with that reason say of the control plane.
async fn notes(stage: &Ground, reason: &str) -> Vec<String> {
    let events = stage.api::<Event>().list(&ListParams::default()).await.unwrap().items;
    let mut its = events.into_iter().filter(|it| it.reason.as_deref() == Some(reason)).collect::<Vec<_>>();
    its.retain(|it| it.regarding.as_ref().and_then(|it| it.kind.as_deref()) == Some("CoderControlPlane"));
    its.into_iter().filter_map(|it| it.note).collect()
}

#[tokio::test]
async fn an_account_that_coder_keeps_holds_up_nothing_and_every_one_that_stays_is_named() {
    let mut stage = stage().await;
    let plane = ready(&stage, &shipped()).await;
    let had = ours(&owner(&stage, "main").await).await;
    // Coder lets no account delete itself, so this one cannot go.
    stage.operator.tell("-TERM");
    stage.operator.ended().await;
    let mut kept = record(&stage).await;
    kept["former"] = json!([{"userID": had.accounts[0]}]);
    let patch = json!({"metadata": {"annotations": {annotation::OPERATOR_ACCESS: kept.to_string()}}});
    let secrets = stage.api::<Secret>();
    secrets.patch(TOKEN_SECRET, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    stage.operator = operator(&stage.namespace);
    let said = eventually("said", || notes(&stage, "NotTakenAway"), |it| !it.is_empty()).await;
    assert!(said[0].contains(&had.accounts[0]) && said[0].contains("retrying"), "{said:?}");
    let now = stage.look_again("CoderControlPlane", "main").await;
    assert!(is_ready(&now), "{now:#}");
    assert_eq!(record(&stage).await["former"], kept["former"], "it is tried again");
    assert_eq!(ours(&owner(&stage, "main").await).await.tokens.len(), 1);

    // Nobody is there any more who could take the last one away.
    stage.delete("CoderControlPlane", "main").await;
    stage.gone(&plane).await;
    let question = "select username from users where username like 'coder-operator-%' and not deleted";
    let left = ask(&stage, question).await;
    assert!(left.starts_with("coder-operator-"), "{left}");
    let said = notes(&stage, "LeftBehind").await;
    assert!(said.iter().any(|it| it.contains(&format!("the account {left} stays in Coder"))), "{said:?}");
    let former = format!("the account {}, a former account of the operator", had.accounts[0]);
    assert!(said.iter().any(|it| it.contains(&former)), "each has an Event of its own: {said:?}");
}
