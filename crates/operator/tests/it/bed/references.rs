//! Manifests that refer to objects of Coder by name follow these objects at once. Intervals are an hour: nothing here happens by
//! the clock.

use std::time::Duration;

use api::annotation::RECONCILE_REQUESTED_AT;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{
    get, licensed,
    stage::{BEFORE_THE_CLOCK, Stage, group_named, is_ready},
};
use crate::examples::request;

const SYNC: &str = "/api/v2/organizations/alpha/settings/idpsync/groups";

fn manifest(kind: &str, name: &str, spec: &Value) -> Value {
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": name},
        "spec": {"controlPlaneRef": {"name": "main"}, "interval": "1h"}});
    for (field, value) in spec.as_object().unwrap() {
        manifest["spec"][field] = value.clone();
    }
    manifest
}

/// A group sync, then its group, then their organization: each waits for the next one.
async fn applied_backwards(stage: &Stage) {
    let spec = json!({"organization": "alpha", "field": "groups", "mapping": {"/dev": ["developers"]}});
    stage.apply(&manifest("CoderGroupSync", "alpha", &spec)).await;
    stage
        .wait_for("CoderGroupSync", "alpha", "waiting", |it| !is_ready(it) && it["status"].is_object())
        .await;
    let spec = json!({"organization": "alpha", "interval": "1h"});
    stage.apply(&group_named("developers", &spec)).await;
    stage
        .wait_for("CoderGroup", "developers", "waiting", |it| !is_ready(it) && it["status"].is_object())
        .await;
    stage.apply(&manifest("CoderOrganization", "alpha", &json!({}))).await;
}

#[tokio::test]
async fn mapping_follows_a_group_that_is_created_again() {
    let stage = Stage::new(licensed().await).await;
    applied_backwards(&stage).await;
    stage.is_noticed("CoderGroupSync", "alpha", "ready", is_ready).await;
    // For its manifest, its control plane, the organization and the group, and at most once for each.
    let reconciles = stage.operator.counted("coder_operator_reconciles_total", "CoderGroupSync").await;
    assert!(reconciles <= 4, "{reconciles} reconciles");
    let group = stage.wait_for("CoderGroup", "developers", "ready", is_ready).await;
    let first = group["status"]["id"].as_str().unwrap();
    let mapped = get(&stage.coderd, SYNC).await["mapping"]["/dev"].clone();
    assert_eq!(mapped, json!([first]));

    request(&stage.coderd.owner, Method::DELETE, &format!("/api/v2/groups/{first}"), None).await;
    let now = Timestamp::now().to_string();
    stage.annotate("CoderGroup", "developers", RECONCILE_REQUESTED_AT, Some(&now)).await;
    let is_other = |it: &Value| is_ready(it) && it["status"]["id"] != first;
    let group = stage.wait_for("CoderGroup", "developers", "created again", is_other).await;
    let follows = async {
        while get(&stage.coderd, SYNC).await["mapping"]["/dev"] != json!([group["status"]["id"]]) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(BEFORE_THE_CLOCK, follows).await.expect("the mapping keeps the id of the deleted group");
}
