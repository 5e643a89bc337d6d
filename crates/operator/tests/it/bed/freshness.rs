//! A status is as recent as its cause: what acknowledges a request has seen what was there when the request was made.
//!
//! Nothing here happens by the clock: intervals are an hour, and every list has been read a moment before it is changed.

use std::time::Duration;

use api::{
    CoderControlPlane,
    annotation::{FLUX_REQUESTED_AT, RECONCILE_REQUESTED_AT},
};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::api::ListParams;
use reqwest::Method;
use serde_json::{Value, json};
use testbed::{Flavour, coderd::sign_license};
use tokio::time::Instant;

use super::{
    get, licensed,
    operator::writes,
    provisioner::{keys, provisioner},
    proxy::{Mood, Proxy},
    stage::{LIMIT, Stage, group_named, is_held_up, is_ready, plane, says},
};
use crate::examples::{all, by_hand, request};

/// How many objects are reconciled at once.
const MANY: usize = 200;
/// How many requests the test sends at once.
const AT_ONCE: usize = 16;

fn kind_of(manifest: &Value) -> &str {
    manifest["kind"].as_str().unwrap()
}

/// Requests a reconcile, and returns the first version of the object that acknowledges it.
async fn acknowledged(stage: &Stage, kind: &str, name: &str, annotation: &str) -> Value {
    let watch = stage.watch(kind, name).await;
    let now = Timestamp::now().to_string();
    stage.annotate(kind, name, annotation, Some(&now)).await;
    watch.until("acknowledged", |it| it["status"]["lastHandledReconcileAt"] == now).await
}

/// The control plane `main` behind a proxy, with a licence from the Secret `license`, reconciled on request only.
async fn patient(licence: &Value) -> (Stage, Proxy) {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap();
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::bare(coderd).await;
    stage.write_token(&stage.coderd.owner.token).await;
    let jwt = sign(&stage, licence).await;
    stage.write_secret("license", &json!({"license": jwt})).await;
    let mut main = plane("main", &proxy.url);
    main["spec"]["interval"] = json!("1h");
    main["spec"]["licenseSecretRef"] = json!({"name": "license"});
    stage.apply(&main).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    (stage, proxy)
}

async fn sign(stage: &Stage, wanted: &Value) -> String {
    sign_license(stage.coderd.licenses.as_ref().unwrap(), wanted).await.unwrap()
}

/// What a field is in Coder.
async fn remote(stage: &Stage, kind: &str, id: &str) -> Value {
    let hand = by_hand(kind).unwrap();
    if kind == "CoderAIModel" {
        // Coder shows models in their list only.
        let list = get(&stage.coderd, hand.path.trim_end_matches("/{id}")).await;
        let found = list.as_array().unwrap().iter().find(|it| it["id"] == id);
        return found.unwrap()[hand.remote_field].clone();
    }
    get(&stage.coderd, &hand.path.replace("{id}", id)).await[hand.remote_field].clone()
}

/// Every kind of which something can be changed: healed, and only reported where it is observed.
async fn every_kind_tells_what_was_changed(stage: &Stage) {
    let mut manifests = all();
    for manifest in &mut manifests {
        manifest["metadata"].as_object_mut().unwrap().remove("namespace");
        manifest["spec"]["interval"] = json!("1h");
        stage.apply(manifest).await;
    }
    for manifest in &manifests {
        stage.wait_for(kind_of(manifest), "example", "ready", is_ready).await;
    }
    for mut manifest in manifests {
        let kind = kind_of(&manifest).to_owned();
        let Some(hand) = by_hand(&kind) else { continue };
        for annotation in [RECONCILE_REQUESTED_AT, FLUX_REQUESTED_AT] {
            let before = acknowledged(stage, &kind, "example", annotation).await;
            assert!(is_ready(&before), "{kind}: {before:#}");
            let id = before["status"]["id"].as_str().unwrap();
            let declared = remote(stage, &kind, id).await;
            hand.change(&stage.coderd.owner, id).await;
            assert_ne!(remote(stage, &kind, id).await, declared, "{kind}");
            let healed = acknowledged(stage, &kind, "example", annotation).await;
            assert_eq!(remote(stage, &kind, id).await, declared, "{kind} says {healed:#}");
            assert!(is_ready(&healed) && says(&healed, "Drifted", "False", "NoDrift"), "{kind}: {healed:#}");
            assert_ne!(healed["status"]["lastAppliedTime"], Value::Null, "{kind}");
        }
        manifest["spec"]["mode"] = json!("Observe");
        stage.apply(&manifest).await;
        let before = stage.wait_for(&kind, "example", "ready", is_ready).await;
        hand.change(&stage.coderd.owner, before["status"]["id"].as_str().unwrap()).await;
        let seen = acknowledged(stage, &kind, "example", RECONCILE_REQUESTED_AT).await;
        assert!(is_held_up("Observed")(&seen), "{kind}: {seen:#}");
        assert!(says(&seen, "Drifted", "True", "DriftFound"), "{kind}: {seen:#}");
        assert_eq!(seen["status"]["drift"][0]["field"], hand.field, "{kind}");
        // A change of the manifest is an event too: the first status of its generation is that of what is there.
        let watch = stage.watch(&kind, "example").await;
        manifest["spec"]["mode"] = json!("Enforce");
        stage.apply(&manifest).await;
        let is_new = |it: &Value| it["status"]["observedGeneration"] == it["metadata"]["generation"];
        let is_next =
            |it: &Value| is_new(it) && it["metadata"]["generation"] != seen["metadata"]["generation"];
        let healed = watch.until("reconciled", is_next).await;
        assert!(is_ready(&healed) && says(&healed, "Drifted", "False", "NoDrift"), "{kind}: {healed:#}");
    }
}

/// A key that daemons elsewhere use is reported, one of our own daemons is made again.
async fn keys_tell_that_they_were_revoked(stage: &Stage) {
    let spec = json!({"replicas": 0, "interval": "1h"});
    stage.apply(&provisioner("own", &spec)).await;
    stage.wait_for("CoderProvisioner", "own", "ready", is_ready).await;
    for (kind, name, path) in [
        ("CoderProvisionerKey", "example", "/api/v2/organizations/alpha/provisionerkeys/alpha-eks"),
        ("CoderProvisioner", "own", "/api/v2/organizations/default/provisionerkeys/own"),
    ] {
        let before = acknowledged(stage, kind, name, FLUX_REQUESTED_AT).await;
        assert!(is_ready(&before), "{before:#}");
        request(&stage.coderd.owner, Method::DELETE, path, None).await;
        let seen = acknowledged(stage, kind, name, FLUX_REQUESTED_AT).await;
        if kind == "CoderProvisionerKey" {
            assert!(is_held_up("KeyRevoked")(&seen), "{seen:#}");
        } else {
            let made = seen["status"]["provisionerKeyName"].as_str().unwrap();
            assert_ne!(made, "own", "{seen:#}");
            assert_eq!(keys(&stage.coderd).await, [made], "{seen:#}");
        }
    }
}

/// A licence that is lost by hand is installed again, one that was added by hand is shown, and a call that fails makes
/// nothing disappear.
async fn licences_tell_what_was_changed(stage: &Stage, proxy: &Proxy) {
    let installed = async || {
        let found = get(&stage.coderd, "/api/v2/licenses").await;
        found.as_array().unwrap().iter().map(|it| it["id"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    let shown = |it: &Value| {
        let shown = it["status"]["licenses"].as_array().into_iter().flatten();
        shown.map(|it| it["id"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    let look = async |annotation| acknowledged(stage, "CoderControlPlane", "main", annotation).await;
    let before = look(RECONCILE_REQUESTED_AT).await;
    let first = installed().await;
    assert_eq!(shown(&before), first);

    let path = format!("/api/v2/licenses/{}", first[0]);
    request(&stage.coderd.owner, Method::DELETE, &path, None).await;
    let again = look(RECONCILE_REQUESTED_AT).await;
    let second = installed().await;
    assert!(second.len() == 1 && second != first, "{first:?} -> {second:?}: {again:#}");
    assert_eq!(shown(&again), second);
    assert!(is_ready(&again) && says(&again, "LicenseApplied", "True", "Applied"), "{again:#}");

    let other = sign(stage, &json!({"feature_set": "enterprise", "account_id": "by-hand"})).await;
    request(&stage.coderd.owner, Method::POST, "/api/v2/licenses", Some(&json!({"license": other}))).await;
    let both = look(FLUX_REQUESTED_AT).await;
    assert_eq!((shown(&both).len(), shown(&both)), (2, installed().await), "{both:#}");

    for path in ["/licenses", "/entitlements"] {
        proxy.set_on(path, Mood::Failing(Method::GET, 503));
        let now = Timestamp::now().to_string();
        stage.annotate("CoderControlPlane", "main", FLUX_REQUESTED_AT, Some(&now)).await;
        let is_unread = |it: &Value| says(it, "Entitlements", "Unknown", "NotObserved");
        let failed = stage.wait::<CoderControlPlane>("main", "unread", is_unread).await;
        assert_eq!(shown(&failed), shown(&both), "{path}: {failed:#}");
        assert_eq!(failed["status"]["features"], both["status"]["features"], "{path}");
        assert_ne!(failed["status"]["lastHandledReconcileAt"], now, "{path}: nothing was read");
        proxy.set(Mood::Passing);
        let is_handled = |it: &Value| it["status"]["lastHandledReconcileAt"] == now && is_ready(it);
        stage.wait::<CoderControlPlane>("main", "handled", is_handled).await;
    }
}

/// Without a licence that is declared, the loss is reported by the control plane and by whatever needs the licence.
async fn a_lost_licence_is_noticed_by_everybody_who_is_asked(stage: &Stage, proxy: &Proxy) {
    let mut main = plane("main", &proxy.url);
    main["spec"]["interval"] = json!("1h");
    stage.apply(&main).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    for (kind, name) in [("CoderGroup", "example"), ("CoderProvisioner", "own")] {
        let before = acknowledged(stage, kind, name, FLUX_REQUESTED_AT).await;
        assert!(is_ready(&before), "{before:#}");
    }
    for licence in get(&stage.coderd, "/api/v2/licenses").await.as_array().unwrap() {
        let path = format!("/api/v2/licenses/{}", licence["id"]);
        request(&stage.coderd.owner, Method::DELETE, &path, None).await;
    }
    for (kind, name) in [("CoderGroup", "example"), ("CoderProvisioner", "own")] {
        let seen = acknowledged(stage, kind, name, FLUX_REQUESTED_AT).await;
        assert!(is_held_up("NotEntitled")(&seen), "{seen:#}");
    }
    let seen = acknowledged(stage, "CoderControlPlane", "main", FLUX_REQUESTED_AT).await;
    assert_eq!((&seen["status"]["licenses"], &seen["status"]["licenseTier"]), (&Value::Null, &json!("none")));

    // Who waits for a licence goes on when the control plane has noticed one, and not by the clock.
    let licence = sign(stage, &json!({"feature_set": "premium", "account_id": "again"})).await;
    request(&stage.coderd.owner, Method::POST, "/api/v2/licenses", Some(&json!({"license": licence}))).await;
    let seen = acknowledged(stage, "CoderControlPlane", "main", FLUX_REQUESTED_AT).await;
    assert_eq!(seen["status"]["licenseTier"], "premium", "{seen:#}");
    for (kind, name) in [("CoderGroup", "example"), ("CoderProvisioner", "own")] {
        stage.is_noticed(kind, name, "ready", is_ready).await;
    }
}

#[tokio::test]
async fn request_is_acknowledged_by_a_status_that_saw_earlier_changes() {
    let (stage, proxy) = patient(&json!({"feature_set": "premium"})).await;
    every_kind_tells_what_was_changed(&stage).await;
    keys_tell_that_they_were_revoked(&stage).await;
    licences_tell_what_was_changed(&stage, &proxy).await;
    a_lost_licence_is_noticed_by_everybody_who_is_asked(&stage, &proxy).await;
}

fn name(number: usize) -> String {
    format!("many-{number}")
}

/// Waits until every group is like that.
async fn each(stage: &Stage, what: &str, is: impl Fn(&Value) -> bool) {
    let since = Instant::now();
    loop {
        let found = stage.kind("CoderGroup").list(&ListParams::default()).await.unwrap().items;
        let found: Vec<Value> = found.iter().map(|it| serde_json::to_value(it).unwrap()).collect();
        let others: Vec<&Value> = found.iter().filter(|it| !is(it)).collect();
        if found.len() == MANY && others.is_empty() {
            return;
        }
        assert!(since.elapsed() < LIMIT, "{} are not {what}, such as {:#?}", others.len(), others.first());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn two_hundred_requests_at_once_share_a_few_reads_of_every_list() {
    let (stage, proxy) = counted().await;
    let (stage, owner) = (&stage, &stage.coderd.owner);
    let make = |number: usize| async move {
        let path = "/api/v2/organizations/default/groups";
        request(owner, Method::POST, path, Some(&json!({"name": name(number)}))).await;
        stage.apply(&group_named(&name(number), &json!({"interval": "1h"}))).await;
    };
    stream::iter(0..MANY).map(make).buffer_unordered(AT_ONCE).collect::<()>().await;
    each(stage, "ready", is_ready).await;

    // The operator sees all of them at once.
    stage.operator.tell("-STOP");
    let now = Timestamp::now().to_string();
    let ask = |number: usize| {
        let now = now.as_str();
        async move { stage.annotate("CoderGroup", &name(number), RECONCILE_REQUESTED_AT, Some(now)).await }
    };
    stream::iter(0..MANY).map(ask).buffer_unordered(AT_ONCE).collect::<()>().await;
    let since = proxy.requests().len();
    stage.operator.tell("-CONT");
    each(stage, "acknowledged", |it| it["status"]["lastHandledReconcileAt"] == now && is_ready(it)).await;

    let asked: Vec<String> = proxy.requests().into_iter().skip(since).map(|it| it.path).collect();
    for list in ["/buildinfo", "/entitlements", "/organizations", "/groups"] {
        let reads = asked.iter().filter(|it| it.ends_with(list)).count();
        assert!((1..=MANY / 10).contains(&reads), "{list} was read {reads} times: {asked:?}");
    }
}

/// A licensed coderd behind a proxy, and the control plane `main` that is reconciled on request only.
async fn counted() -> (Stage, Proxy) {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::bare(coderd).await;
    stage.write_token(&stage.coderd.owner.token).await;
    let mut main = plane("main", &proxy.url);
    main["spec"]["interval"] = json!("1h");
    stage.apply(&main).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    (stage, proxy)
}

#[tokio::test]
async fn name_taken_within_the_life_of_a_cached_list_is_not_ours() {
    let (stage, _proxy) = counted().await;
    for policy in ["Never", "IfEqual"] {
        let (first, taken) =
            (format!("first-{policy}").to_lowercase(), format!("taken-{policy}").to_lowercase());
        stage.apply(&group_named(&first, &json!({"interval": "1h"}))).await;
        stage.wait_for("CoderGroup", &first, "ready", is_ready).await;
        let body = json!({"name": taken, "quota_allowance": 7});
        let path = "/api/v2/organizations/default/groups";
        request(&stage.coderd.owner, Method::POST, path, Some(&body)).await;
        let spec = json!({"interval": "1h", "adoptionPolicy": policy, "quotaAllowance": 7});
        stage.apply(&group_named(&taken, &spec)).await;
        if policy == "Never" {
            let refused = is_held_up("AdoptionRefused");
            let seen = stage.wait_for("CoderGroup", &taken, "refused", refused).await;
            assert_eq!((&seen["status"]["id"], &seen["status"]["creating"]), (&Value::Null, &Value::Null));
        } else {
            stage.wait_for("CoderGroup", &taken, "adopted", is_ready).await;
        }
    }
}

#[tokio::test]
async fn first_ready_does_not_rest_on_a_list_from_before_the_manifest() {
    let (stage, _proxy) = counted().await;
    let path = "/api/v2/organizations/default/groups";
    let body = json!({"name": "found", "quota_allowance": 7});
    let found = request(&stage.coderd.owner, Method::POST, path, Some(&body)).await;
    // The cached list has the group as the manifest will declare it.
    stage.apply(&group_named("first", &json!({"interval": "1h"}))).await;
    stage.wait_for("CoderGroup", "first", "ready", is_ready).await;
    acknowledged(&stage, "CoderGroup", "first", RECONCILE_REQUESTED_AT).await;
    let path = format!("/api/v2/groups/{}", found["id"].as_str().unwrap());
    let body = json!({"name": "", "quota_allowance": 8});
    request(&stage.coderd.owner, Method::PATCH, &path, Some(&body)).await;
    let watch = stage.watch("CoderGroup", "found").await;
    let spec = json!({"interval": "1h", "adoptionPolicy": "IfEqual", "quotaAllowance": 7});
    stage.apply(&group_named("found", &spec)).await;
    let is_decided = |it: &Value| is_ready(it) || is_held_up("AdoptionRefused")(it);
    let seen = watch.until("decided", is_decided).await;
    assert!(is_held_up("AdoptionRefused")(&seen), "{seen:#}");
    assert_eq!(get(&stage.coderd, &path).await["quota_allowance"], 8, "it was not overwritten");
}

/// Creates so many groups, and returns the requests to coderd and the writes to the API server that they cost.
async fn cost_of(count: usize, prefix: &str, stage: &Stage, proxy: &Proxy) -> (Vec<String>, Vec<String>) {
    let before = proxy.requests().len();
    stage.operator.tell("-STOP");
    let make = |number: usize| async move {
        stage.apply(&group_named(&format!("{prefix}-{number}"), &json!({"interval": "1h"}))).await;
    };
    stream::iter(0..count).map(make).buffer_unordered(AT_ONCE).collect::<()>().await;
    stage.operator.tell("-CONT");
    for number in 0..count {
        stage.wait_for("CoderGroup", &format!("{prefix}-{number}"), "ready", is_ready).await;
    }
    let requests = proxy.requests().into_iter().skip(before).map(|it| format!("{} {}", it.method, it.path));
    let requests = requests.collect();
    // An Event about the control plane may come late, and is none of theirs. Events are named after their object.
    let written = writes(&stage.namespace).await.into_iter().filter_map(|it| {
        let target = &it["objectRef"];
        let name = target["name"].as_str().unwrap_or_default();
        let what = format!("{} {}/{}", it["verb"], target["resource"], target["subresource"]);
        name.starts_with(prefix).then(|| format!("{what} {name} {}", it["responseStatus"]["code"]))
    });
    (requests, written.collect())
}

#[tokio::test]
async fn creation_of_a_group_costs_one_request_and_three_writes() {
    let (stage, proxy) = counted().await;
    for (count, prefix) in [(25, "few"), (50, "many")] {
        let (requests, written) = cost_of(count, prefix, &stage, &proxy).await;
        let lists = requests.iter().filter(|it| it.starts_with("GET")).count();
        assert_eq!(requests.len() - lists, count, "{requests:?}");
        assert!(lists <= 12, "{lists} reads for {count} groups: {requests:?}");
        // The first status with the intent, the last one with the id, and the Event.
        assert!(written.len() <= count * 3, "{} writes for {count} groups: {written:#?}", written.len());
    }
}
