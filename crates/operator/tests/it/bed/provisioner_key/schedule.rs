//! When the time of a key has come. The times that are written down are put back, because the clock cannot be put forward.

use api::CoderProvisionerKey;
use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    super::{
        licensed,
        provisioner::keys,
        proxy::Proxy,
        stage::{Stage, is_held_up, is_ready},
    },
    KIND, SECRET, key, name_of, proof, rotate, rotated, value,
};

/// Lets the key be of that many seconds ago, in the status and in the Secret, which is the one that counts.
async fn made(stage: &Stage, ago: i64) {
    let time = (Timestamp::now() - SignedDuration::from_secs(ago)).strftime("%FT%TZ").to_string();
    let patch = Patch::Merge(json!({"status": {"lastRotationTime": time}}));
    stage.kind(KIND).patch_status("alpha", &PatchParams::default(), &patch).await.unwrap();
    stage.edit_record(SECRET, |record| record["rotatedAt"] = json!(time)).await;
}

/// Lets the overlap of an hour be over in a few seconds.
async fn replaced_so_long_ago(stage: &Stage) {
    let since = (Timestamp::now() - SignedDuration::from_secs(3590)).strftime("%FT%TZ").to_string();
    stage.edit_record(SECRET, |record| record["retiring"][0]["since"] = json!(since)).await;
}

#[tokio::test]
async fn a_key_gives_way_when_it_is_due_and_not_before_and_once() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    let minted = || {
        let all = proxy.requests().into_iter().filter(|it| it.method == Method::POST);
        all.filter(|it| it.path.ends_with("/provisionerkeys")).count()
    };
    let spec = json!({"interval": "2h", "rotation": {"every": "1h", "overlap": "1h"}});
    stage.apply(&key(&spec)).await;
    let first = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    let old = value(&stage).await.unwrap();
    made(&stage, 3500).await;
    stage.look_again(KIND, "alpha").await;
    assert_eq!((minted(), value(&stage).await.as_ref()), (1, Some(&old)));

    // From here on nobody asks.
    made(&stage, 3590).await;
    let second = rotated(&stage, &first).await;
    let new = value(&stage).await.unwrap();
    assert_eq!(proof(&stage, &old).await.as_deref(), Some("alpha"), "both are valid");
    assert_eq!(proof(&stage, &new).await, Some(name_of(&second)));
    for _ in 0..2 {
        stage.look_again(KIND, "alpha").await;
    }
    assert_eq!((minted(), value(&stage).await.as_ref()), (2, Some(&new)));

    // The overlap ends by itself, and what is valid stays.
    replaced_so_long_ago(&stage).await;
    let is_over = |it: &Value| is_ready(it) && it["status"]["retiringKeys"].is_null();
    stage.wait::<CoderProvisionerKey>("alpha", "over", is_over).await;
    assert_eq!(keys(&stage.coderd).await, [name_of(&second)]);

    // What nobody schedules stays, however old it is.
    stage.apply(&key(&json!({"interval": "2h"}))).await;
    stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    made(&stage, 500_000).await;
    stage.look_again(KIND, "alpha").await;
    assert_eq!((minted(), value(&stage).await.as_ref()), (2, Some(&new)));

    // What was replaced goes by itself also while the next key waits for an approval.
    let mut spec = json!({"interval": "2h", "rotation": {"overlap": "1h"}});
    stage.apply(&key(&spec)).await;
    let second = stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    rotate(&stage).await;
    let third = rotated(&stage, &second).await;
    spec["approval"] = json!("Manual");
    stage.apply(&key(&spec)).await;
    rotate(&stage).await;
    let waits = is_held_up("ApprovalRequired");
    stage.wait::<CoderProvisionerKey>("alpha", "waiting", &waits).await;
    assert_eq!(keys(&stage.coderd).await.len(), 2, "both are valid");
    replaced_so_long_ago(&stage).await;
    let is_over = |it: &Value| waits(it) && it["status"]["retiringKeys"].is_null();
    stage.wait::<CoderProvisionerKey>("alpha", "over", is_over).await;
    assert_eq!((keys(&stage.coderd).await, minted()), (vec![name_of(&third)], 3));
}
