//! What a deletion revokes, and what it names as left.

use api::CoderProvisionerKey;
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    super::{
        licensed,
        operator::Operator,
        provisioner::keys,
        proxy::{Mood, Proxy},
        stage::{Stage, is_held_up, is_ready, words},
    },
    KIND, key, name_of, proof, rotate, rotated, value,
};

#[tokio::test]
async fn a_deletion_that_waits_names_its_keys_and_what_to_do() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.apply(&key(&json!({"deletionPolicy": "Delete", "rotation": {"overlap": "1h"}}))).await;
    let made = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    rotate(&stage).await;
    let second = name_of(&rotated(&stage, &made).await);
    proxy.set(Mood::Failing(Method::DELETE, 401));
    stage.delete(KIND, "alpha").await;
    let waits = |it: &Value| is_held_up("Unauthorized")(it) && !it["metadata"]["deletionTimestamp"].is_null();
    let told = stage.wait::<CoderProvisionerKey>("alpha", "waiting", waits).await;
    for part in [
        format!("provisioner keys alpha, {second}").as_str(),
        "Coder rejects the credentials of control plane main; correct them",
        "coder.com/force-finalize",
    ] {
        assert!(words(&told).contains(part), "{part}: {}", words(&told));
    }
    assert!(!words(&told).contains("401") && !words(&told).contains("/api/v2"), "{}", words(&told));
    proxy.set(Mood::Passing);
    stage.gone(&told).await;
    assert_eq!(keys(&stage.coderd).await, [""; 0]);
    for name in ["alpha", second.as_str()] {
        stage.operator.says(&["was revoked", name, "the object that it was minted for is deleted"]).await;
    }
}

/// A key with an old one beside it that is still valid. Returns the name of the new one too.
async fn rotated_key(spec: &Value) -> (Stage, Proxy, String) {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    let mut whole = json!({"rotation": {"overlap": "1h"}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    stage.apply(&key(&whole)).await;
    let made = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    rotate(&stage).await;
    let second = name_of(&rotated(&stage, &made).await);
    (stage, proxy, second)
}

fn is_waiting(reason: &str) -> impl Fn(&Value) -> bool {
    move |it| is_held_up(reason)(it) && !it["metadata"]["deletionTimestamp"].is_null()
}

#[tokio::test]
async fn key_that_cannot_be_revoked_holds_up_no_other_and_is_named_alone() {
    let (stage, proxy, second) = rotated_key(&json!({"deletionPolicy": "Delete"})).await;
    proxy.set_on("/alpha", Mood::Failing(Method::DELETE, 500));
    stage.delete(KIND, "alpha").await;
    let told = stage.wait::<CoderProvisionerKey>("alpha", "waiting", is_waiting("Unreachable")).await;
    assert!(words(&told).contains("provisioner key alpha:"), "{}", words(&told));
    assert!(!words(&told).contains(&second), "{}", words(&told));
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);
    stage.annotate(KIND, "alpha", api::annotation::FORCE_FINALIZE, Some("true")).await;
    stage.gone(&told).await;
    let left = stage.left_behind().await;
    assert_eq!(left.len(), 1, "{left:#?}");
    assert!(left[0].starts_with("provisioner key alpha is left behind"), "{left:#?}");
}

#[tokio::test]
async fn keys_that_only_the_secret_records_are_named() {
    let (mut stage, proxy, second) = rotated_key(&json!({"deletionPolicy": "Delete"})).await;
    stage.operator.process.kill().unwrap();
    stage.operator.ended().await;
    proxy.set(Mood::Down);
    let lost = json!({"status": {"retiringKeys": null, "provisionerKeyName": null}});
    stage.kind(KIND).patch_status("alpha", &PatchParams::default(), &Patch::Merge(lost)).await.unwrap();
    stage.operator = Operator::start(&stage.namespace, &[]);
    stage.delete(KIND, "alpha").await;
    let told = stage.wait::<CoderProvisionerKey>("alpha", "waiting", is_waiting("Unreachable")).await;
    let both = format!("provisioner keys alpha, {second}");
    assert!(words(&told).contains(&both), "{}", words(&told));
}

/// The finalizers of the key.
async fn finalizers(stage: &Stage) -> Vec<String> {
    stage.kind(KIND).get("alpha").await.unwrap().finalizers().to_vec()
}

#[tokio::test]
async fn retained_key_leaves_no_replaced_key_behind() {
    let (stage, _, second) = rotated_key(&json!({})).await;
    assert_eq!(finalizers(&stage).await, [api::finalizer::FINALIZER], "the old key is still to be revoked");
    let turned = stage.wait::<CoderProvisionerKey>("alpha", "there", |_| true).await;
    let current = value(&stage).await.unwrap();
    stage.delete(KIND, "alpha").await;
    stage.gone(&turned).await;
    assert_eq!(keys(&stage.coderd).await, [second.as_str()]);
    assert_eq!(value(&stage).await.as_ref(), Some(&current), "the Secret stays");
    assert_eq!(proof(&stage, &current).await, Some(second));
    assert_eq!(stage.left_behind().await, [""; 0]);
}

#[tokio::test]
async fn replaced_key_that_cannot_be_revoked_is_named_though_the_policy_retains() {
    let (stage, proxy, second) = rotated_key(&json!({})).await;
    proxy.set(Mood::Down);
    stage.delete(KIND, "alpha").await;
    let told = stage.wait::<CoderProvisionerKey>("alpha", "waiting", is_waiting("Unreachable")).await;
    assert!(words(&told).contains("provisioner key alpha:"), "{}", words(&told));
    stage.annotate(KIND, "alpha", api::annotation::FORCE_FINALIZE, Some("true")).await;
    stage.gone(&told).await;
    let left = stage.left_behind().await;
    assert!(left.len() == 1 && left[0].starts_with("provisioner key alpha is left behind"), "{left:#?}");
    assert!(!left[0].contains(&second), "{left:#?}");
}

#[tokio::test]
async fn observed_key_names_the_replaced_key_that_it_leaves() {
    let (stage, _, second) = rotated_key(&json!({})).await;
    let spec = json!({"rotation": {"overlap": "1h"}, "mode": "Observe"});
    stage.apply(&key(&spec)).await;
    let seen = stage.wait::<CoderProvisionerKey>("alpha", "observed", is_ready).await;
    stage.delete(KIND, "alpha").await;
    stage.gone(&seen).await;
    let left = stage.left_behind().await;
    assert!(left.len() == 1 && left[0].starts_with("provisioner key alpha is left behind"), "{left:#?}");
    assert_eq!(keys(&stage.coderd).await, ["alpha".to_owned(), second]);
}

#[tokio::test]
async fn retained_key_that_replaces_none_needs_no_finalizer() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.apply(&key(&json!({}))).await;
    let is_free = |it: &Value| is_ready(it) && it["metadata"]["finalizers"].is_null();
    let made = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_free).await;
    proxy.set(Mood::Down);
    stage.delete(KIND, "alpha").await;
    stage.gone(&made).await;
    assert_eq!(stage.left_behind().await, [""; 0]);
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);
}
