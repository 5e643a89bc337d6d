//! Changes that wake other manifests at once, long before their interval is over. The clock of a test moves only when nothing is left to do.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use sim::{ManualClock, MemoryCluster};
use tokio::time::Instant;

use super::{NAMESPACE, Stage, connect_daemon, deployment, examples, external, reach};

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

/// A manifest of the control plane `main` that is reconciled by the clock once an hour.
fn patient(kind: &str, name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    if spec["controlPlaneRef"].is_null() {
        spec["controlPlaneRef"] = json!({"name": "main"});
    }
    spec["interval"] = json!("1h");
    json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Whether a manifest is not ready for this reason.
fn is_held_up(reason: &str) -> impl Fn(Option<&Value>) -> bool + '_ {
    move |it| {
        let conditions = it.and_then(|it| it["status"]["conditions"].as_array()).into_iter().flatten();
        conditions.into_iter().any(|it| it["type"] == "Ready" && it["reason"] == reason)
    }
}

#[tokio::test(start_paused = true)]
async fn dependents_of_a_control_plane_that_is_gone_report_that_at_once() {
    let stage = Stage::new();
    external(&stage).await;
    stage.ready("CoderControlPlane", "main").await;
    stage.apply(&patient("CoderGroup", "of-main", &json!({}))).await;
    stage.ready("CoderGroup", "of-main").await;
    // A control plane that was suspended from the beginning has no finalizer.
    let external = json!({"url": super::URL, "credentialsSecretRef": {"name": "coder-automation"}});
    stage
        .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "idle"},
            "spec": {"external": external, "suspend": true}}))
        .await;
    stage.apply(&patient("CoderGroup", "of-idle", &json!({"controlPlaneRef": {"name": "idle"}}))).await;
    stage.until("CoderGroup", "of-idle", "waiting", is_held_up("ControlPlaneNotReady")).await;

    for plane in ["main", "idle"] {
        stage.delete("CoderControlPlane", plane).await;
        stage.until("CoderControlPlane", plane, "gone", |it| it.is_none()).await;
        let gone = Instant::now();
        let group = format!("of-{plane}");
        stage.until("CoderGroup", &group, "without its plane", is_held_up("ControlPlaneNotFound")).await;
        assert!(gone.elapsed() < AT_ONCE, "{plane}: {:?}", gone.elapsed());
    }
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn users_that_come_or_are_renamed_wake_groups_and_templates() {
    let stage = Stage::new();
    external(&stage).await;
    connect_daemon(&stage).await;
    stage.apply(&patient("CoderGroup", "team", &json!({"members": ["bob"]}))).await;
    let template = json!({"source": {"files": {"main.tf": "locals {}"}}, "acl": {"users": {"bob": "use"}}});
    stage.apply(&patient("CoderTemplate", "kubernetes", &template)).await;
    let both = [("CoderGroup", "team"), ("CoderTemplate", "kubernetes")];
    for (kind, name) in both {
        stage.until(kind, name, "waiting", is_held_up("ReferenceNotFound")).await;
    }
    let user =
        json!({"username": "bob", "serviceAccount": true, "organizations": ["default"], "suspended": false});
    stage.apply(&patient("CoderUser", "bob", &user)).await;
    stage.ready("CoderUser", "bob").await;
    let came = Instant::now();
    for (kind, name) in both {
        stage.ready(kind, name).await;
        assert!(came.elapsed() < AT_ONCE, "{kind}: {:?}", came.elapsed());
    }

    stage.cluster.edit("CoderUser", "bob", |it| {
        it["spec"]["username"] = json!("robert");
        it["metadata"]["generation"] = json!(it["metadata"]["generation"].as_i64().unwrap() + 1);
    });
    let renamed = Instant::now();
    for (kind, name) in both {
        stage.until(kind, name, "without its user", is_held_up("ReferenceNotFound")).await;
        assert!(renamed.elapsed() < AT_ONCE, "{kind}: {:?}", renamed.elapsed());
    }
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn token_that_a_deletion_finds_revoked_is_reported_by_the_control_plane() {
    let stage = Stage::new();
    let token = deployment(&stage).await;
    reach(&stage, NAMESPACE, &token).await;
    stage.cluster.edit("CoderControlPlane", "main", |it| it["spec"]["interval"] = json!("1h"));
    stage.apply(&patient("CoderGroup", "team", &json!({"deletionPolicy": "Delete"}))).await;
    stage.ready("CoderGroup", "team").await;
    let id = token.expose_secret().split_once('-').unwrap().0.to_owned();
    stage.coder.edit(|it| drop(it.api_keys.remove(&id)));
    let deleted = Instant::now();
    stage.delete("CoderGroup", "team").await;
    stage.until("CoderControlPlane", "main", "refused", is_held_up("Unauthorized")).await;
    assert!(deleted.elapsed() < AT_ONCE, "{:?}", deleted.elapsed());
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
