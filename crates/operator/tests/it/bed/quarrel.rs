//! Somebody else who wants something else: another manifest under another name, or a hand that keeps changing a field back.

use api::CoderGroup;
use reqwest::Method;
use serde_json::json;

use super::{
    get, licensed,
    stage::{Stage, group, group_named, is_held_up, is_ready, words},
};

#[tokio::test]
async fn an_object_with_two_names_has_one_keeper() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&group(&json!({"organization": "default", "quotaAllowance": 1}))).await;
    stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    let organizations = get(&stage.coderd, "/api/v2/organizations").await;
    let name = organizations[0]["name"].as_str().unwrap();
    let mut second = group(&json!({"organization": name, "quotaAllowance": 2}));
    second["metadata"]["name"] = json!("pretender");
    stage.apply(&second).await;
    let told = stage.wait::<CoderGroup>("pretender", "told", is_held_up("HeldByOther")).await;
    assert!(words(&told).starts_with("developers "), "{}", words(&told));
}

#[tokio::test]
async fn a_field_that_somebody_else_keeps_changing_is_left_alone_after_three_rounds() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&group_named("contended", &json!({"quotaAllowance": 20, "interval": "1h"}))).await;
    let made = stage.wait::<CoderGroup>("contended", "ready", is_ready).await;
    let path = format!("/api/v2/groups/{}", made["status"]["id"].as_str().unwrap());
    let quota = async || get(&stage.coderd, &path).await["quota_allowance"].clone();
    for round in 0..4 {
        let theirs = json!({"quota_allowance": 3});
        let (status, _) = stage.coderd.owner.request(Method::PATCH, &path, Some(&theirs)).await.unwrap();
        assert_eq!(status, 200);
        let seen = stage.look_again("CoderGroup", "contended").await;
        if round < 3 {
            assert_eq!(quota().await, 20, "round {round}");
            continue;
        }
        assert!(is_held_up("Contended")(&seen), "{seen:#}");
        assert!(words(&seen).contains("spec.quotaAllowance"), "{}", words(&seen));
        assert_eq!(seen["status"]["drift"][0]["field"], "quotaAllowance");
        assert_eq!(quota().await, 3, "we have stepped back");
    }
    // Another wish of the manifest is no quarrel.
    stage.apply(&group_named("contended", &json!({"quotaAllowance": 21, "interval": "1h"}))).await;
    stage.wait::<CoderGroup>("contended", "ready again", is_ready).await;
    assert_eq!(quota().await, 21);
}
