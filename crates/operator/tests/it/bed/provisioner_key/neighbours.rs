//! A provisioner and a key beside each other that want the same name, or the same Secret: nobody takes what the other has.

use api::{CoderProvisioner, CoderProvisionerKey};
use k8s_openapi::api::core::v1::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    super::{
        licensed,
        provisioner::{keys, provisioner},
        proxy::{Mood, Proxy},
        stage::{Stage, eventually, is_held_up, is_ready, until, words},
    },
    KIND, SECRET, key, proof, value,
};

const PROVISIONER: &str = "CoderProvisioner";

/// A provisioner `alpha` without daemons.
fn idle(spec: &Value) -> Value {
    let mut manifest = provisioner("alpha", spec);
    manifest["spec"]["replicas"] = json!(0);
    manifest["spec"]["tags"] = json!({"site": "bed"});
    manifest
}

async fn proxied() -> (Stage, Proxy) {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    (Stage::at(coderd, &proxy.url).await, proxy)
}

async fn version(stage: &Stage) -> Option<String> {
    stage.api::<Secret>().get(SECRET).await.unwrap().metadata.resource_version
}

/// One has the Secret that both would have by default. The other says so, and touches nothing, not even when it goes.
async fn of_two(first: &Value, second: &Value) {
    let (stage, proxy) = proxied().await;
    let kind = |it: &Value| it["kind"].as_str().unwrap().to_owned();
    stage.apply(first).await;
    let made = stage.wait_for(&kind(first), "alpha", "ready", is_ready).await;
    let (held, before, asked) = (value(&stage).await.unwrap(), version(&stage).await, proxy.writes());
    let shown = || proxy.requests().iter().filter(|it| it.key.is_some()).count();
    let proofs = shown();

    stage.apply(second).await;
    let told = stage.wait_for(&kind(second), "alpha", "told", is_held_up("HeldByOther")).await;
    assert!(words(&told).starts_with(&format!("{} alpha keeps", kind(first))), "{}", words(&told));
    assert!(words(&told).contains(SECRET) && words(&told).contains("choose another secretName"));
    stage.look_again(&kind(second), "alpha").await;
    stage.look_again(&kind(first), "alpha").await;
    assert_eq!(version(&stage).await, before, "nothing of the Secret is written");
    assert_eq!((proxy.writes(), shown()), (asked, proofs), "nothing is made, and the value is not shown");
    let now = stage.wait_for(&kind(first), "alpha", "there", is_ready).await;
    assert_eq!(now["status"]["provisionerKeyID"], made["status"]["provisionerKeyID"]);

    stage.delete(&kind(second), "alpha").await;
    stage.gone(&told).await;
    assert_eq!(
        (value(&stage).await.as_ref(), keys(&stage.coderd).await),
        (Some(&held), vec!["alpha".to_owned()])
    );

    // With a Secret of its own each has a key of its own.
    let mut apart = second.clone();
    if kind(second) == KIND {
        apart["spec"]["secretName"] = json!("apart");
        apart["spec"]["name"] = json!("beta");
    } else {
        apart["spec"]["key"] = json!({"secretName": "apart"});
    }
    stage.apply(&apart).await;
    stage.wait_for(&kind(second), "alpha", "ready", is_ready).await;
    assert_eq!((keys(&stage.coderd).await.len(), proof(&stage, &held).await.as_deref()), (2, Some("alpha")));
}

#[tokio::test]
async fn a_key_leaves_the_secret_of_a_provisioner_alone_and_says_whose_it_is() {
    of_two(&idle(&json!({})), &key(&json!({"deletionPolicy": "Delete"}))).await;
}

#[tokio::test]
async fn a_provisioner_leaves_the_secret_of_a_key_alone_and_says_whose_it_is() {
    of_two(&key(&json!({"deletionPolicy": "Delete"})), &idle(&json!({}))).await;
}

#[tokio::test]
async fn of_two_that_come_at_once_one_has_the_secret_and_no_key_is_lost() {
    let (stage, _) = proxied().await;
    let (one, other) = (idle(&json!({})), key(&json!({})));
    tokio::join!(stage.apply(&one), stage.apply(&other));
    let settled = |it: &Value| is_ready(it) || is_held_up("HeldByOther")(it);
    let one = stage.wait::<CoderProvisioner>("alpha", "settled", settled).await;
    let other = stage.wait::<CoderProvisionerKey>("alpha", "settled", settled).await;
    assert!(is_ready(&one) != is_ready(&other), "{one}\n{other}");
    one_is_left(&stage).await;
    // Neither takes it from the other later.
    let before = version(&stage).await;
    for kind in [PROVISIONER, KIND, PROVISIONER, KIND] {
        stage.look_again(kind, "alpha").await;
    }
    assert_eq!(version(&stage).await, before);
}

#[tokio::test]
async fn of_two_keys_that_are_minted_at_once_one_is_kept_and_one_revoked() {
    let (stage, proxy) = proxied().await;
    stage.wait_for("CoderControlPlane", "main", "ready", is_ready).await;
    proxy.set_on("/provisionerkeys", Mood::HoldingWrites);
    let (one, other) = (idle(&json!({})), key(&json!({})));
    tokio::join!(stage.apply(&one), stage.apply(&other));
    let minted = || proxy.writes().iter().filter(|it| it.ends_with("/provisionerkeys")).count();
    until("both have asked", || minted() >= 2).await;
    proxy.set(Mood::Passing);
    let settled = |it: &Value| is_ready(it) || is_held_up("HeldByOther")(it);
    let one = stage.wait::<CoderProvisioner>("alpha", "settled", settled).await;
    let other = stage.wait::<CoderProvisionerKey>("alpha", "settled", settled).await;
    assert!(is_ready(&one) != is_ready(&other), "{one}\n{other}");
    one_is_left(&stage).await;
}

/// Checks that the Secret holds a valid key, and that a key which the other one minted meanwhile is revoked.
async fn one_is_left(stage: &Stage) {
    let held = proof(stage, &value(stage).await.unwrap()).await.unwrap();
    eventually("one key", || keys(&stage.coderd), |it| *it == [held.as_str()]).await;
}

/// One has set out for a name and came to nothing; the other has made a key of that name since. It is not taken for lost.
async fn of_one_name(slow: &Value, quick: &Value) {
    let (stage, proxy) = proxied().await;
    let kind = |it: &Value| it["kind"].as_str().unwrap().to_owned();
    proxy.set_on("/provisionerkeys", Mood::Failing(Method::POST, 502));
    stage.apply(slow).await;
    let is_begun = |it: &Value| it["status"]["pendingKey"]["name"] == "alpha";
    let begun = stage.wait_for(&kind(slow), "alpha", "begun", is_begun).await;
    until("asked", || proxy.writes().iter().any(|it| it.ends_with("/provisionerkeys"))).await;
    let mut waits = slow.clone();
    waits["spec"]["suspend"] = json!(true);
    stage.apply(&waits).await;
    let is_suspended = |it: &Value| {
        it["status"]["observedGeneration"] == it["metadata"]["generation"]
            && it.to_string().contains("Suspended")
    };
    stage.wait_for(&kind(slow), "alpha", "suspended", is_suspended).await;
    proxy.set(Mood::Passing);
    stage.apply(quick).await;
    let made = stage.wait_for(&kind(quick), "alpha", "ready", is_ready).await;
    assert_eq!(made["status"]["provisionerKeyName"], "alpha");

    stage.apply(slow).await;
    let own = stage.wait_for(&kind(slow), "alpha", "ready", is_ready).await;
    let name = own["status"]["provisionerKeyName"].as_str().unwrap();
    assert!(name.starts_with("alpha-"), "{name}");
    stage.look_again(&kind(slow), "alpha").await;
    assert_eq!(keys(&stage.coderd).await, ["alpha", name]);
    stage.delete(&kind(slow), "alpha").await;
    stage.gone(&begun).await;
    assert!(keys(&stage.coderd).await.contains(&"alpha".to_owned()));
    let taken = proxy.writes().into_iter().filter(|it| it.starts_with("DELETE") && it.ends_with("/alpha"));
    assert_eq!(taken.collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test]
async fn a_key_that_a_provisioner_made_is_not_taken_for_one_that_a_key_has_lost() {
    let slow = key(&json!({"deletionPolicy": "Delete"}));
    of_one_name(&slow, &idle(&json!({"key": {"secretName": "apart"}}))).await;
}

#[tokio::test]
async fn a_key_that_a_key_made_is_not_taken_for_one_that_a_provisioner_has_lost() {
    of_one_name(&idle(&json!({})), &key(&json!({"secretName": "apart"}))).await;
}

#[tokio::test]
async fn provisioner_uses_the_secret_that_a_deleted_key_left_behind() {
    let (stage, _) = proxied().await;
    stage.apply(&key(&json!({"deletionPolicy": "Retain"}))).await;
    let made = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    let held = value(&stage).await.unwrap();
    // The first one waits: pods are not given the key of another object.
    stage.apply(&idle(&json!({}))).await;
    stage.wait::<CoderProvisioner>("alpha", "held by the key", is_held_up("HeldByOther")).await;
    stage.delete(KIND, "alpha").await;
    stage.gone(&made).await;
    stage.look_again(PROVISIONER, "alpha").await;
    stage.wait::<CoderProvisioner>("alpha", "ready with the Secret that was left", is_ready).await;
    assert_eq!((value(&stage).await, keys(&stage.coderd).await), (Some(held), vec!["alpha".to_owned()]));
}
