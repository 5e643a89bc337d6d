//! A coderd that goes away, comes back, or answers as Coder never does.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    get, licensed,
    operator::writes,
    proxy::{Mood, Proxy},
    stage::{Stage, group, is_held_up, is_ready, plane, says, until, words},
};

/// A stage behind a proxy, with a group that is as declared.
async fn settled() -> (Stage, Proxy, Value) {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.apply(&group(&json!({"quotaAllowance": 7}))).await;
    let made = stage.wait_for("CoderGroup", "developers", "ready", is_ready).await;
    (stage, proxy, made)
}

/// The operator has told its token to nobody: not in an object, not in an Event, not in a line that it wrote.
async fn nobody_was_told_the_token(stage: &Stage) {
    let token = &stage.coderd.owner.token;
    for kind in ["CoderControlPlane", "CoderGroup"] {
        let objects = stage.kind(kind).list(&kube::api::ListParams::default()).await.unwrap();
        let text = serde_json::to_string(&objects.items).unwrap();
        assert!(!text.contains(token), "{text}");
    }
    let events = stage.api::<k8s_openapi::api::events::v1::Event>();
    let events = events.list(&kube::api::ListParams::default()).await.unwrap();
    assert!(!serde_json::to_string(&events.items).unwrap().contains(token));
    assert!(!serde_json::to_string(&stage.operator.said()).unwrap().contains(token));
    assert!(!stage.operator.get("/metrics").await.unwrap().1.contains(token));
}

#[tokio::test]
async fn a_coderd_that_goes_away_is_told_and_what_changed_meanwhile_is_healed_when_it_is_back() {
    let (stage, proxy, made) = settled().await;
    proxy.set(Mood::Down);
    let told = stage.wait_for("CoderControlPlane", "main", "unreachable", is_held_up("Unreachable")).await;
    assert!(words(&told).contains("127.0.0.1"), "where: {told}");
    let is_told = |it: &Value| is_held_up("Unreachable")(it) || is_held_up("ControlPlaneNotReady")(it);
    stage.wait_for("CoderGroup", "developers", "told", is_told).await;
    let path = format!("/api/v2/groups/{}", made["status"]["id"].as_str().unwrap());
    let by_hand = json!({"name": "", "quota_allowance": 3});
    crate::examples::request(&stage.coderd.owner, reqwest::Method::PATCH, &path, Some(&by_hand)).await;
    proxy.set(Mood::Passing);
    let is_healed =
        |it: &Value| is_ready(it) && it["status"]["lastAppliedTime"] != made["status"]["lastAppliedTime"];
    stage.wait_for("CoderGroup", "developers", "healed", is_healed).await;
    assert_eq!(get(&stage.coderd, &path).await["quota_allowance"], 7);
    stage.wait_for("CoderControlPlane", "main", "ready", is_ready).await;
}

#[tokio::test]
async fn huge_entitlements_become_a_small_status_without_secrets() {
    let (stage, proxy, _) = settled().await;
    let secret = ["A1b2C3d4E5", "k6L7m8N9o0P1q2R3s4T5u6"].join("-");
    let feature = json!({"entitlement": "entitled", "enabled": true});
    let mut features: Map<String, Value> =
        (0..1000).map(|it| (format!("feature_{it}"), feature.clone())).collect();
    features.extend(
        [("template_rbac", 1), ("Bad \"Name\"", 1), ("", 1)].map(|it| (it.0.to_owned(), feature.clone())),
    );
    features.insert("n".repeat(100_000), feature);
    let warnings: Vec<String> =
        (0..2000).map(|it| format!("{it} {secret} {}", "warning ".repeat(125))).collect();
    let entitlements = json!({"features": features, "warnings": warnings, "errors": [], "has_license": true,
        "trial": false, "require_telemetry": false, "refreshed_at": "2026-01-01T00:00:00Z"});
    assert!(entitlements.to_string().len() > 2_000_000);
    proxy.set_on("/entitlements", Mood::Body(entitlements.to_string()));
    let plane = stage.look_again("CoderControlPlane", "main").await;
    assert!(is_ready(&plane), "{plane:#}");
    let status = plane["status"].to_string();
    assert!(status.len() < 64 * 1024, "{}", status.len());
    assert!(!status.contains(&secret));
    let names: Vec<&str> = plane["status"]["features"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 200);
    assert!(names.iter().all(|it| it.starts_with("feature_")), "{names:?}");
    assert_eq!(plane["status"]["licenseWarnings"].as_array().unwrap().len(), 50);
    let metrics = stage.operator.get("/metrics").await.unwrap().1;
    let labels = metrics.lines().filter(|it| it.contains("control_plane_feature_enabled{"));
    assert_eq!(labels.count(), 200);
    assert!(!metrics.contains(&secret) && !metrics.contains("Bad"));
    assert!(!serde_json::to_string(&stage.operator.said()).unwrap().contains(&secret));
}

#[tokio::test]
async fn control_planes_of_one_account_share_its_rate_limit() {
    /// Half of the limit that the proxy names.
    const SHARE: usize = 20;
    let (stage, proxy, _) = settled().await;
    proxy.set_on("/users/me", Mood::Limit(40));
    stage.apply(&plane("again", &proxy.url.replace("127.0.0.1", "localhost"))).await;
    stage.wait_for("CoderControlPlane", "again", "ready", is_ready).await;
    for _ in 0..15 {
        for name in ["main", "again"] {
            stage.look_again("CoderControlPlane", name).await;
        }
    }
    let requests = proxy.requests().into_iter().filter(|it| it.path.ends_with("/users/me"));
    let sent: Vec<Instant> = requests.map(|it| it.at).collect();
    // A request is seen a moment after it was permitted.
    let minute = Duration::from_secs(58);
    let most =
        sent.iter().map(|first| sent.iter().filter(|it| *it >= first && **it - *first < minute).count());
    // The first request of each control plane finds out which account its token is of.
    assert!(most.max().unwrap() <= SHARE + 2, "{} requests", sent.len());
    assert!(sent.len() >= SHARE, "{} requests", sent.len());
}

#[tokio::test]
async fn dependents_report_the_current_reason_of_a_control_plane_that_cannot_be_used() {
    let (stage, proxy, _) = settled().await;
    let told = |reason: &'static str| {
        move |it: &Value| is_held_up("ControlPlaneNotReady")(it) && words(it).contains(reason)
    };
    let secrets = stage.api::<k8s_openapi::api::core::v1::Secret>();
    secrets.delete(super::stage::CREDENTIALS, &kube::api::DeleteParams::default()).await.unwrap();
    stage.is_noticed("CoderGroup", "developers", "without a Secret", told("SecretNotFound")).await;
    proxy.set(Mood::Down);
    stage.write_token(&stage.coderd.owner.token).await;
    stage.wait_for("CoderControlPlane", "main", "unreachable", is_held_up("Unreachable")).await;
    stage.is_noticed("CoderGroup", "developers", "unreachable", told("Unreachable")).await;
    proxy.set(Mood::Passing);
    stage.wait_for("CoderGroup", "developers", "ready again", is_ready).await;
}

#[tokio::test]
async fn an_answer_that_coder_never_gives_is_told_in_words_without_secrets_and_outlived() {
    let (stage, proxy, _) = settled().await;
    let elsewhere = Proxy::start("http://127.0.0.1:1").await;
    elsewhere.set(Mood::Html);
    let moods = [
        (Mood::Html, "RemoteError", "HTML"),
        (Mood::Truncated, "Unreachable", ""),
        (Mood::RedirectTo(elsewhere.url.clone()), "RemoteError", "redirect"),
        (Mood::RepeatingTheToken, "Unreachable", "500"),
    ];
    // Where no token is sent, where it is, and where an object alone is concerned.
    for (end, kind, name) in [
        ("/buildinfo", "CoderControlPlane", "main"),
        ("/users/me", "CoderControlPlane", "main"),
        ("/groups", "CoderGroup", "developers"),
    ] {
        for (number, (mood, reason, part)) in moods.clone().into_iter().enumerate() {
            proxy.set_on(end, mood);
            if kind == "CoderGroup" {
                // Something to do, so that everything is read anew.
                stage.apply(&group(&json!({"quotaAllowance": number + 1}))).await;
            } else {
                stage.look_again(kind, name).await;
            }
            let what = format!("{reason} {part} on {end}");
            let says_so = |it: &Value| is_held_up(reason)(it) && words(it).contains(part);
            let told = stage.wait_for(kind, name, &what, says_so).await;
            assert!(!says(&told, "Stalled", "True", reason), "it is tried again: {told}");
            proxy.set(Mood::Passing);
            // The pauses between tries are another test's.
            while !is_ready(&stage.look_again(kind, name).await) {}
        }
    }
    stage.wait_for("CoderGroup", "developers", "ready again", is_ready).await;
    nobody_was_told_the_token(&stage).await;
    let followed: Vec<String> = elsewhere.requests().into_iter().map(|it| it.path).collect();
    assert_eq!(followed, Vec::<String>::new(), "a redirect is not followed");
    assert_eq!(proxy.writes().len(), 1 + moods.len(), "not one write too many: {:?}", proxy.writes());
}

#[tokio::test]
async fn a_failure_that_stays_the_same_is_written_once() {
    let (stage, proxy, _) = settled().await;
    proxy.set_on("/groups", Mood::RepeatingTheToken);
    let told = stage.wait_for("CoderGroup", "developers", "failed", is_held_up("Unreachable")).await;
    assert!(!told.to_string().contains("request-"), "what is different each time is not told: {told}");
    let failures = || proxy.reads("/groups");
    let (before, written) = (failures(), writes(&stage.namespace).await.len());
    until("tried three times more", || failures() >= before + 3).await;
    let after = stage.wait_for("CoderGroup", "developers", "failed", is_held_up("Unreachable")).await;
    assert_eq!(after["metadata"]["resourceVersion"], told["metadata"]["resourceVersion"]);
    // And a whole plane that fails.
    proxy.set(Mood::RepeatingTheToken);
    stage.wait_for("CoderControlPlane", "main", "failed", is_held_up("Unreachable")).await;
    let told = stage.wait_for("CoderControlPlane", "main", "failed", is_held_up("Unreachable")).await;
    let before = proxy.reads("/buildinfo");
    until("tried three times more", || proxy.reads("/buildinfo") >= before + 3).await;
    let after = stage.wait_for("CoderControlPlane", "main", "failed", is_held_up("Unreachable")).await;
    assert_eq!(after["metadata"]["resourceVersion"], told["metadata"]["resourceVersion"]);
    let more: Vec<Value> = writes(&stage.namespace).await.split_off(written);
    assert!(more.len() <= 3, "the plane's status and the group's, once each: {more:#?}");
}

#[tokio::test]
async fn a_coderd_that_asks_for_time_gets_it() {
    let (stage, proxy, _) = settled().await;
    let pause = Duration::from_secs(7);
    proxy.set_on("/buildinfo", Mood::Busy(7));
    let told = stage.wait_for("CoderControlPlane", "main", "busy", is_held_up("RateLimited")).await;
    assert!(!says(&told, "Stalled", "True", "RateLimited"), "{told}");
    let asked = proxy.reads("/buildinfo");
    until("asked again", || proxy.reads("/buildinfo") > asked).await;
    proxy.set(Mood::Passing);
    stage.wait_for("CoderControlPlane", "main", "ready", is_ready).await;
    let times: Vec<_> =
        proxy.requests().into_iter().filter(|it| it.path.ends_with("/buildinfo")).map(|it| it.at).collect();
    let (last, again) = (times[asked - 1], times[asked]);
    assert!(again - last >= pause, "asked again after {:?}", again - last);
}

#[tokio::test]
async fn a_coder_that_is_too_old_is_told_so_and_not_written_to() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    proxy.set(Mood::Version("v2.33.5"));
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.apply(&group(&json!({}))).await;
    let told = stage.wait_for("CoderGroup", "developers", "too old", is_held_up("VersionTooOld")).await;
    assert_eq!(words(&told), "needs Coder >= 2.34, and this is v2.33.5");
    assert_eq!(proxy.writes(), Vec::<String>::new());
    // It goes on by itself after an upgrade.
    proxy.set(Mood::Passing);
    stage.wait_for("CoderGroup", "developers", "ready", is_ready).await;
}

#[tokio::test]
async fn another_deployment_at_the_same_address_is_not_written_to_until_a_person_accepts_it() {
    let (stage, proxy, made) = settled().await;
    let other = licensed().await;
    stage.write_token(&other.owner.token).await;
    proxy.turn_to(&other.owner.url);
    let told =
        stage.wait_for("CoderControlPlane", "main", "another one", is_held_up("DeploymentChanged")).await;
    let before = proxy.writes();
    let is_told = |it: &Value| is_held_up("ControlPlaneNotReady")(it) || is_held_up("DeploymentChanged")(it);
    stage.wait_for("CoderGroup", "developers", "told", is_told).await;
    stage.apply(&group(&json!({"quotaAllowance": 8}))).await;
    stage.wait_for("CoderGroup", "developers", "told", is_told).await;
    assert_eq!(proxy.writes(), before);
    let known = told["status"]["deploymentID"].clone();
    let build = get(&other, "/api/v2/buildinfo").await;
    let id = build["deployment_id"].as_str().unwrap();
    assert_ne!(known, id, "what was known stays known: {told}");
    assert!(words(&told).contains(&format!("{}: {id}", api::annotation::ACCEPT_DEPLOYMENT)), "{told}");

    stage.annotate("CoderControlPlane", "main", api::annotation::ACCEPT_DEPLOYMENT, Some(id)).await;
    let accepted = stage.wait_for("CoderControlPlane", "main", "accepted", is_ready).await;
    assert_eq!(accepted["status"]["deploymentID"], id);
    let again = stage.wait_for("CoderGroup", "developers", "made there", is_ready).await;
    assert_ne!(again["status"]["id"], made["status"]["id"]);
    let groups = get(&other, "/api/v2/organizations/default/groups").await;
    assert!(groups.as_array().unwrap().iter().any(|it| it["id"] == again["status"]["id"]));
}

#[tokio::test]
async fn what_was_made_is_ours_even_when_its_manifest_was_deleted_or_changed_before_we_knew() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.wait_for("CoderControlPlane", "main", "ready", is_ready).await;
    let manifest = |quota: u32| group(&json!({"quotaAllowance": quota, "deletionPolicy": "Delete"}));
    let exists = || async {
        let groups = get(&stage.coderd, "/api/v2/organizations/default/groups").await;
        groups.as_array().unwrap().iter().any(|it| it["name"] == "developers")
    };
    // Changed meanwhile: it is held, and becomes what is declared now.
    proxy.set(Mood::HoldingWrites);
    stage.apply(&manifest(1)).await;
    until("being made", || proxy.writes().len() == 1).await;
    stage.apply(&manifest(2)).await;
    proxy.set(Mood::Passing);
    let made = stage.wait_for("CoderGroup", "developers", "ready", is_ready).await;
    let path = format!("/api/v2/groups/{}", made["status"]["id"].as_str().unwrap());
    assert_eq!(get(&stage.coderd, &path).await["quota_allowance"], 2);
    stage.delete("CoderGroup", "developers").await;
    stage.gone(&made).await;
    assert!(!exists().await);
    // Deleted meanwhile: it is held, and goes.
    let before = proxy.writes().len();
    proxy.set(Mood::HoldingWrites);
    stage.apply(&manifest(1)).await;
    let made = stage
        .wait_for("CoderGroup", "developers", "there", |it| it["metadata"]["finalizers"].is_array())
        .await;
    until("being made", || proxy.writes().len() > before).await;
    stage.delete("CoderGroup", "developers").await;
    proxy.set(Mood::Passing);
    stage.gone(&made).await;
    assert!(!exists().await, "{:?}", proxy.writes());
}

#[tokio::test]
async fn what_one_manifest_made_is_not_given_to_another_that_took_its_name() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.wait_for("CoderControlPlane", "main", "ready", is_ready).await;
    proxy.set(Mood::HoldingWrites);
    stage.apply(&group(&json!({"quotaAllowance": 1}))).await;
    until("being made", || proxy.writes().len() == 1).await;
    stage.delete("CoderGroup", "developers").await;
    let mut second = group(&json!({"quotaAllowance": 2}));
    second["spec"]["name"] = json!("others");
    stage.apply(&second).await;
    proxy.set(Mood::Passing);
    let made = stage.wait_for("CoderGroup", "developers", "ready", is_ready).await;
    let path = format!("/api/v2/groups/{}", made["status"]["id"].as_str().unwrap());
    assert_eq!(get(&stage.coderd, &path).await["name"], "others");
    let groups = get(&stage.coderd, "/api/v2/organizations/default/groups").await;
    let first = groups.as_array().unwrap().iter().find(|it| it["name"] == "developers");
    assert_eq!(
        first.map(|it| &it["quota_allowance"]),
        Some(&json!(1)),
        "neither renamed nor changed: {groups}"
    );
}

#[tokio::test]
async fn of_three_control_planes_a_dead_one_delays_nobody_else() {
    let coderd = licensed().await;
    let silent = Proxy::start(&coderd.owner.url).await;
    silent.set(Mood::Down);
    let other = licensed().await;
    let stage = Stage::new(coderd).await;
    let mut second = plane("second", &other.owner.url);
    second["spec"]["external"]["credentialsSecretRef"]["name"] = json!("second");
    stage.write_secret("second", &json!({"token": other.owner.token})).await;
    for plane in [second, plane("dead", &silent.url), plane("refusing", "http://127.0.0.1:1")] {
        stage.apply(&plane).await;
    }
    let of = |plane: &str, spec: Value| {
        let mut manifest = group(&spec);
        manifest["metadata"]["name"] = json!(format!("of-{plane}"));
        manifest["spec"]["controlPlaneRef"]["name"] = json!(plane);
        manifest
    };
    for plane in ["dead", "refusing", "main", "second"] {
        stage.apply(&of(plane, json!({"quotaAllowance": 1}))).await;
    }
    let is_told = |it: &Value| is_held_up("Unreachable")(it) || is_held_up("ControlPlaneNotReady")(it);
    for dead in ["dead", "refusing"] {
        stage.wait_for("CoderControlPlane", dead, "unreachable", is_held_up("Unreachable")).await;
        stage.wait_for("CoderGroup", &format!("of-{dead}"), "told", is_told).await;
    }
    for plane in ["main", "second"] {
        stage.wait_for("CoderGroup", &format!("of-{plane}"), "ready", is_ready).await;
        // And again while the dead ones are tried.
        stage.apply(&of(plane, json!({"quotaAllowance": 2}))).await;
        stage.wait_for("CoderGroup", &format!("of-{plane}"), "ready", is_ready).await;
    }
    silent.set(Mood::Passing);
    stage.wait_for("CoderControlPlane", "dead", "back", is_ready).await;
}

#[tokio::test]
async fn a_control_plane_that_fails_is_asked_again_after_growing_pauses_and_not_sooner() {
    let (stage, proxy, _) = settled().await;
    // Nobody but us asks for a pass.
    let mut slow = plane("main", &proxy.url);
    slow["spec"]["interval"] = json!("1h");
    stage.apply(&slow).await;
    stage.look_again("CoderControlPlane", "main").await;
    proxy.set_on("/users/me", Mood::RepeatingTheToken);
    let before = proxy.reads("/users/me");
    stage.look_again("CoderControlPlane", "main").await;
    until("four failures", || proxy.reads("/users/me") >= before + 4).await;
    let asked = proxy.requests().into_iter().filter(|it| it.path.ends_with("/users/me")).map(|it| it.at);
    let times: Vec<_> = asked.skip(before).take(4).collect();
    let pauses: Vec<Duration> = times.windows(2).map(|it| it[1] - it[0]).collect();
    // Our own words in its status are no reason to ask sooner; a tenth of each pause is chance.
    for (pause, least) in pauses.iter().zip([900, 1800, 3600]) {
        assert!(*pause >= Duration::from_millis(least), "{pauses:?}");
    }
}

#[tokio::test]
async fn an_address_that_was_changed_to_one_that_does_not_answer_is_not_served_at_the_old_one() {
    let (stage, proxy, _) = settled().await;
    // A port that nobody listens at, and that nobody else is given as long as we have it.
    let nobody = tokio::net::TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    stage.apply(&plane("main", &format!("http://{}", nobody.local_addr().unwrap()))).await;
    stage.wait_for("CoderControlPlane", "main", "silent", is_held_up("Unreachable")).await;
    stage
        .wait_for("CoderGroup", "developers", "without a plane", |it| {
            says(it, "Ready", "False", "ControlPlaneNotReady")
        })
        .await;
    let before = proxy.writes();
    stage.apply(&group(&json!({"quotaAllowance": 77}))).await;
    stage.wait_for("CoderGroup", "developers", "waiting", is_held_up("ControlPlaneNotReady")).await;
    assert_eq!(proxy.writes(), before, "the old address is not the declared one");
}

#[tokio::test]
async fn a_control_plane_does_not_look_healthy_before_it_has_answered() {
    let stage = Stage::bare(licensed().await).await;
    stage.write_token(&stage.coderd.owner.token).await;
    // Takes connections and never says a word.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let watch = stage.watch("CoderControlPlane", "main").await;
    stage.apply(&plane("main", &format!("http://{}", mute.local_addr().unwrap()))).await;
    let is_begun = |it: &Value| says(it, "Ready", "Unknown", "Progressing");
    let seen = watch.until("begun", is_begun).await;
    assert_eq!(seen["status"]["operatorAccessReady"], false);
}
