//! A token that a Secret holds ready-made: used as it is, and its end is told in time.

use std::time::Duration;

use api::CoderControlPlane;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use reqwest::Method;
use serde_json::{Value, json};
use testbed::Flavour;

use super::{
    licensed,
    proxy::{Mood, Proxy},
    stage::{Stage, group, is_ready, plane, says, until},
};

const HOUR: Duration = Duration::from_hours(1);

/// A token of the owner's that lives so long.
async fn mint(stage: &Stage, name: &str, lifetime: Duration) -> String {
    let body = json!({"token_name": name, "lifetime": i64::try_from(lifetime.as_nanos()).unwrap()});
    let path = "/api/v2/users/me/keys/tokens";
    let (status, made) = stage.coderd.owner.request(Method::POST, path, Some(&body)).await.unwrap();
    assert_eq!(status, 201, "{made}");
    made["key"].as_str().unwrap().to_owned()
}

fn access(plane: &Value) -> &str {
    let conditions = plane["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|it| it["type"] == "OperatorAccessReady").unwrap()["message"].as_str().unwrap()
}

/// What was announced, and how often.
async fn announced(stage: &Stage) -> Vec<(String, i32)> {
    let events = stage.api::<Event>().list(&ListParams::default()).await.unwrap().items;
    let ours = events.into_iter().filter(|it| it.reason.as_deref() == Some("TokenExpires"));
    ours.map(|it| (it.note.unwrap_or_default(), it.series.map_or(1, |it| it.count))).collect()
}

#[tokio::test]
async fn the_end_of_a_token_is_told_once_and_asked_for_seldom() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Shipped).await.unwrap();
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::bare(coderd).await;
    let week = mint(&stage, "week", 120 * HOUR).await;
    stage.write_token(&week).await;
    stage.apply(&plane("main", &proxy.url)).await;
    let ready = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let until = ready["status"]["credential"]["expiresAt"].as_str().unwrap().to_owned();
    assert_eq!(ready["status"]["credential"]["toldDays"], 7);
    let day = until.split('T').next().unwrap();
    assert!(access(&ready).ends_with(&format!("the token expires on {day}")), "{ready:#}");
    let metric = "control_plane_token_expiry_timestamp_seconds{";
    stage.operator.shows(metric, |it| it.contains(metric)).await;
    for _ in 0..3 {
        stage.look_again("CoderControlPlane", "main").await;
    }
    let notes = announced(&stage).await;
    assert!(notes.len() == 1 && notes[0].1 == 1, "{notes:?}");
    assert!(notes[0].0.contains("expires in less than 7 days") && notes[0].0.contains(day), "{notes:?}");
    let id = week.split_once('-').unwrap().0;
    let asked = || proxy.requests().iter().filter(|it| it.path.ends_with(&format!("/keys/{id}"))).count();
    assert_eq!(asked(), 1, "many passes, one question");

    // Another token has another end, and is asked for at once. It has an Event of its own.
    let short = mint(&stage, "short", 20 * HOUR).await;
    stage.write_token(&short).await;
    stage
        .wait::<CoderControlPlane>("main", "on the next token", |it| {
            is_ready(it) && it["status"]["credential"]["toldDays"] == 1
        })
        .await;
    let notes = announced(&stage).await;
    assert!(notes.len() == 2 && notes.iter().all(|it| it.1 == 1), "{notes:?}");

    // A session has no end that could be told: it moves.
    stage.write_token(&stage.coderd.owner.token).await;
    let session = stage
        .wait::<CoderControlPlane>("main", "on a session", |it| {
            is_ready(it) && it["status"].get("credential").is_none()
        })
        .await;
    assert!(access(&session).contains("a session's"), "{session:#}");
    stage.operator.shows("no date", |it| !it.contains(metric)).await;
    let told = format!("{session}{:?}{:?}", stage.operator.said(), announced(&stage).await);
    for token in [&week, &short, &stage.coderd.owner.token] {
        assert!(!told.contains(token.split_once('-').unwrap().1), "half a token was told");
    }
}

#[tokio::test]
async fn a_token_that_has_ended_is_named_as_the_reason() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Shipped).await.unwrap();
    let url = coderd.owner.url.clone();
    let stage = Stage::bare(coderd).await;
    // Long enough that it is used once before, also where everything is slow.
    stage.write_token(&mint(&stage, "brief", Duration::from_secs(45)).await).await;
    stage.apply(&plane("main", &url)).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let ended = stage
        .wait::<CoderControlPlane>("main", "ended", |it| {
            says(it, "OperatorAccessReady", "False", "Unauthorized")
        })
        .await;
    assert!(access(&ended).contains("the token expired on "), "{ended:#}");
    assert!(access(&ended).contains("put a new one into its Secret"), "{ended:#}");
}

#[tokio::test]
async fn a_reconcile_under_way_sends_nothing_more_with_a_token_that_was_replaced() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let next = mint(&stage, "next", HOUR).await;
    // Two writes: the group, then its members. The answer to the first one is kept.
    proxy.set_on("/groups", Mood::HoldingWrites);
    stage.apply(&group(&json!({"members": ["admin"]}))).await;
    until("the first write", || !proxy.writes().is_empty()).await;
    stage.write_token(&next).await;
    let is_next = |it: &super::proxy::Seen| it.token.as_ref() == Some(&next);
    until("the new token in use", || proxy.requests().iter().any(is_next)).await;
    proxy.set(Mood::Passing);
    stage.wait_for("CoderGroup", "developers", "ready", is_ready).await;
    let requests = proxy.requests();
    let since = requests.iter().position(is_next).unwrap();
    for it in &requests[since..] {
        assert!(it.token.is_none() || is_next(it), "{} {} with the old token", it.method, it.path);
    }
    let writes: Vec<_> = requests.iter().filter(|it| it.method != Method::GET).collect();
    assert!(writes.len() == 2 && is_next(writes[1]), "{:?}", proxy.writes());
}
