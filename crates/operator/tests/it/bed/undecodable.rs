//! An object that the API server takes and the operator cannot read.

use std::time::Duration;

use api::{CoderControlPlane, CoderGroup};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    licensed,
    proxy::Proxy,
    stage::{LIMIT, Stage, group, group_named, is_held_up, is_ready, words},
};

/// A time that fits the schema's format, and that no calendar has.
const NO_TIME: &str = "2026-01-01T00:00:00+99:99";

async fn set_time(stage: &Stage, time: Option<&str>) {
    let patch = Patch::Merge(json!({"status": {"lastAppliedTime": time}}));
    stage.kind("CoderGroup").patch_status("broken", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_reported_and_holds_up_no_other() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&group_named("broken", &json!({"suspend": true}))).await;
    set_time(&stage, Some(NO_TIME)).await;
    let count = "coder_operator_undecodable_objects_total{kind=\"CoderGroup\"} ";
    let is_counted = |it: &str| it.lines().any(|it| it.strip_prefix(count).is_some_and(|it| it != "0"));
    stage.operator.shows("the object", is_counted).await;
    stage.apply(&group(&json!({"quotaAllowance": 7}))).await;
    stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    let about_it = |it: &Event| {
        it.reason.as_deref() == Some("Undecodable")
            && it.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some("broken")
    };
    stage.operator.says(&["Undecodable", "broken"]).await;
    let events = stage.api::<Event>();
    let told = async || events.list(&ListParams::default()).await.unwrap().items.iter().any(about_it);
    let since = Instant::now();
    while !told().await {
        assert!(since.elapsed() < LIMIT, "there is no Event about it");
        sleep(Duration::from_millis(100)).await;
    }
    // Once it can be read it is looked after as any other.
    set_time(&stage, None).await;
    stage.apply(&group_named("broken", &json!({"suspend": false}))).await;
    stage.wait::<CoderGroup>("broken", "ready", |it: &Value| is_ready(it)).await;
}

#[tokio::test]
async fn undecodable_control_plane_is_used_for_no_write() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.apply(&group(&json!({"quotaAllowance": 7}))).await;
    stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    let set_time = async |time: Option<&str>| {
        let patch = Patch::Merge(json!({"status": {"lastAppliedTime": time}}));
        let planes = stage.kind("CoderControlPlane");
        planes.patch_status("main", &PatchParams::default(), &patch).await.unwrap();
    };
    set_time(Some(NO_TIME)).await;
    let waits = is_held_up("ControlPlaneNotReady");
    let blocked = stage.wait::<CoderGroup>("developers", "blocked", waits).await;
    assert!(words(&blocked).contains("Undecodable"), "{}", words(&blocked));
    let before = proxy.writes();
    stage.apply(&group(&json!({"quotaAllowance": 8}))).await;
    stage.look_again("CoderGroup", "developers").await;
    assert_eq!(proxy.writes(), before, "nothing is sent to an origin that may not be declared any more");

    // Only the status is another one.
    set_time(None).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    assert_ne!(proxy.writes(), before);
}
