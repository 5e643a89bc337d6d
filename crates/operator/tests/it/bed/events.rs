//! Events: every change has its own words, and the same words again are counted.

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    get, licensed,
    stage::{Stage, group_named, is_ready},
};
use crate::examples::request;

const QUOTA: i64 = 20;

/// The Events about a group that tell of changes.
async fn updates(stage: &Stage, group: &str) -> Vec<Event> {
    let events = stage.api::<Event>().list(&ListParams::default()).await.unwrap().items;
    let is_it = |it: &Event| {
        it.reason.as_deref() == Some("Updated")
            && it.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some(group))
    };
    events.into_iter().filter(is_it).collect()
}

/// Changes the quota of a group by hand, and waits until it is healed.
async fn change(stage: &Stage, group: &str, quota: i64) {
    let before = stage.wait_for("CoderGroup", group, "ready", is_ready).await;
    let path = format!("/api/v2/groups/{}", before["status"]["id"].as_str().unwrap());
    let by_hand = json!({"name": "", "quota_allowance": quota});
    request(&stage.coderd.owner, Method::PATCH, &path, Some(&by_hand)).await;
    let told = updates(stage, group).await;
    let count = |events: &[Event]| -> i32 {
        events.iter().map(|it| it.series.as_ref().map_or(1, |it| it.count)).sum()
    };
    let healed = async {
        while count(&updates(stage, group).await) == count(&told) {
            stage.look_again("CoderGroup", group).await;
        }
    };
    assert!(tokio::time::timeout(super::stage::LIMIT, healed).await.is_ok(), "{quota} is not healed");
    assert_eq!(get(&stage.coderd, &path).await["quota_allowance"], QUOTA);
}

#[tokio::test]
async fn each_change_by_hand_has_an_event_and_the_same_change_is_a_series() {
    let stage = Stage::new(licensed().await).await;
    let spec: Value = json!({"quotaAllowance": QUOTA});
    for name in ["different", "same"] {
        stage.apply(&group_named(name, &spec)).await;
    }
    for quota in [1, 2, 3] {
        change(&stage, "different", quota).await;
    }
    let mut notes: Vec<String> =
        updates(&stage, "different").await.into_iter().filter_map(|it| it.note).collect();
    notes.sort();
    assert_eq!(notes.len(), 3, "{notes:?}");
    for (note, quota) in notes.iter().zip([1, 2, 3]) {
        assert!(note.ends_with(&format!("quotaAllowance: {quota} -> {QUOTA}")), "{note}");
    }

    change(&stage, "same", 5).await;
    change(&stage, "same", 5).await;
    let told = updates(&stage, "same").await;
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!(told[0].series.as_ref().map(|it| it.count), Some(2));
    assert!(told[0].note.as_ref().unwrap().ends_with(&format!("quotaAllowance: 5 -> {QUOTA}")));
}
