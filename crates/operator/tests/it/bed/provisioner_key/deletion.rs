//! What the status says while a deletion waits.

use api::CoderProvisionerKey;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    super::{
        licensed,
        provisioner::keys,
        proxy::{Mood, Proxy},
        stage::{Stage, is_held_up, is_ready, words},
    },
    KIND, key, name_of, rotate, rotated,
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
        stage
            .operator
            .says(&["a key was revoked", name, "the object that it was minted for is deleted"])
            .await;
    }
}
