//! Keys that are made only when a person has agreed to just that.

use api::CoderProvisionerKey;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{
    super::{
        licensed,
        provisioner::keys,
        proxy::Proxy,
        stage::{Stage, is_held_up, is_ready},
    },
    KIND, SECRET, key, name_of, proof, rotate, value,
};

const ASKS: &str = "ApprovalRequired";

fn hash_of(object: &Value) -> String {
    object["status"]["plan"]["hash"].as_str().unwrap().to_owned()
}

async fn approve(stage: &Stage, plan: &Value) {
    stage.annotate(KIND, "alpha", api::annotation::APPROVED_PLAN, Some(&hash_of(plan))).await;
}

async fn asks(stage: &Stage, but: &str) -> Value {
    let is_other = |it: &Value| is_held_up(ASKS)(it) && it["status"]["plan"]["hash"] != but;
    stage.wait::<CoderProvisionerKey>("alpha", "asking", is_other).await
}

#[tokio::test]
async fn a_key_is_made_for_the_plan_that_was_approved_and_for_no_other() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    let manual = |tags: Value, secret: &str| {
        key(&json!({"approval": "Manual", "tags": tags, "secretName": secret, "rotation": {"overlap": "1h"}}))
    };
    stage.apply(&manual(json!({"site": "bed"}), SECRET)).await;
    let first = asks(&stage, "").await;
    stage.look_again(KIND, "alpha").await;
    assert_eq!((proxy.writes(), value(&stage).await), (vec![], None), "nothing is made before");
    approve(&stage, &first).await;
    let made = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    for _ in 0..2 {
        stage.look_again(KIND, "alpha").await;
    }
    let old = value(&stage).await.unwrap();
    assert_eq!((proxy.writes().len(), keys(&stage.coderd).await), (1, vec!["alpha".to_owned()]));

    // An approval is for one plan: the next key needs the next one.
    rotate(&stage).await;
    let asked = asks(&stage, "").await;
    assert!(!asked.to_string().contains(&old), "the value is nobody's business");
    assert_eq!(asked["status"]["plan"]["steps"][0]["field"], "name", "{asked}");
    assert_eq!((proxy.writes().len(), value(&stage).await.as_ref()), (1, Some(&old)));

    // What would be made changes between the plan and the approval: other tags, another Secret.
    stage.apply(&manual(json!({"site": "other"}), SECRET)).await;
    let other_tags = asks(&stage, &hash_of(&asked)).await;
    approve(&stage, &asked).await;
    stage.look_again(KIND, "alpha").await;
    assert_eq!((proxy.writes().len(), value(&stage).await.as_ref()), (1, Some(&old)));
    stage.api::<Secret>().delete(SECRET, &DeleteParams::default()).await.unwrap();
    stage.apply(&manual(json!({"site": "other"}), "elsewhere")).await;
    let elsewhere = asks(&stage, &hash_of(&other_tags)).await;
    approve(&stage, &other_tags).await;
    stage.look_again(KIND, "alpha").await;
    assert_eq!((proxy.writes().len(), name_of(&made)), (1, "alpha".to_owned()));

    approve(&stage, &elsewhere).await;
    let is_other = |it: &Value| is_ready(it) && it["status"]["provisionerKeyName"] != "alpha";
    let turned = stage.wait::<CoderProvisionerKey>("alpha", "rotated", is_other).await;
    assert_eq!(proxy.writes().len(), 2, "{:?}", proxy.writes());
    assert_eq!(turned["status"]["secretRef"]["name"], "elsewhere");
    assert_eq!(proof(&stage, &old).await.as_deref(), Some("alpha"), "both are valid");
}
