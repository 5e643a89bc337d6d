//! Changes that wake other manifests at once, long before their interval is over. The clock of a test moves only when nothing is left to do.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sim::{ManualClock, MemoryCluster};
use tokio::time::Instant;

use super::{Stage, examples, external};

/// Far less than any interval.
const AT_ONCE: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn manifest_of_an_organization_that_is_renamed_hears_of_it() {
    let stage = Stage::new();
    external(&stage).await;
    let manifest = |kind: &str, spec: &Value| json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": "example"}, "spec": spec});
    let plane = json!({"name": "main"});
    stage.apply(&manifest("CoderOrganization", &json!({"controlPlaneRef": plane, "name": "alpha"}))).await;
    let group =
        json!({"controlPlaneRef": plane, "organization": "alpha", "name": "developers", "interval": "1h"});
    stage.apply(&manifest("CoderGroup", &group)).await;
    stage.ready("CoderGroup", "example").await;

    let renamed = Instant::now();
    stage.cluster.edit("CoderOrganization", "example", |it| {
        it["spec"]["name"] = json!("beta");
        let generation = it["metadata"]["generation"].as_i64().unwrap();
        it["metadata"]["generation"] = json!(generation + 1);
    });
    let waits = |it: Option<&Value>| {
        it.is_some_and(|it| it["status"]["conditions"][0]["reason"] == "ReferenceNotFound")
    };
    stage.until("CoderGroup", "example", "without its organization", waits).await;
    assert!(renamed.elapsed() < AT_ONCE, "{:?}", renamed.elapsed());
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn replaced_key_goes_while_its_successor_waits_for_an_approval() {
    let clock = ManualClock::new(Timestamp::now());
    let stage = Stage::on(MemoryCluster::new(clock.clock(), 1));
    external(&stage).await;
    let mut manifest = examples::of("CoderProvisionerKey");
    manifest["spec"]["organization"] = json!("default");
    stage.apply(&manifest).await;
    stage.ready("CoderProvisionerKey", "example").await;
    let annotate = |name: &str, value: &str| {
        stage.cluster.edit("CoderProvisionerKey", "example", |it| {
            it["metadata"]["annotations"][name] = json!(value);
        });
    };
    let retiring = |it: &Value| it["status"]["retiringKeys"].as_array().map_or(0, Vec::len);
    annotate(api::annotation::ROTATE_REQUESTED_AT, "one");
    stage
        .until("CoderProvisionerKey", "example", "rotated", |it| it.is_some_and(|it| retiring(it) == 1))
        .await;

    stage.cluster.edit("CoderProvisionerKey", "example", |it| {
        it["spec"]["approval"] = json!("Manual");
        it["metadata"]["generation"] = json!(it["metadata"]["generation"].as_i64().unwrap() + 1);
    });
    annotate(api::annotation::ROTATE_REQUESTED_AT, "two");
    let waits = |it: &Value| it["status"]["conditions"][0]["reason"] == "ApprovalRequired";
    stage.until("CoderProvisionerKey", "example", "waiting", |it| it.is_some_and(waits)).await;
    let keys = || {
        stage
            .coder
            .read(|it| it.provisioner_keys.values().filter(|it| it.name.starts_with("alpha-eks")).count())
    };
    assert_eq!(keys(), 2, "the first one is valid for a while");

    clock.advance(SignedDuration::from_hours(25));
    annotate("example.com/looked-at", "again");
    let is_gone = |it: &Value| retiring(it) == 0 && waits(it);
    let now = stage
        .until("CoderProvisionerKey", "example", "without the first key", |it| it.is_some_and(is_gone))
        .await;
    assert_eq!(keys(), 1);
    let steps = now["status"]["plan"]["steps"].as_array().unwrap();
    assert!(!steps.is_empty() && steps.iter().all(|it| it["action"] != "Delete"), "{steps:?}");
    let revoked = stage.cluster.events().into_iter().filter(|it| it.note.contains("is revoked")).count();
    assert_eq!(revoked, 1);
    stage.end().await;
}
