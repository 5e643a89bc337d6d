//! Whatever is lost, or changed by hand: there is one key again, with at most one new one, and no other key is touched.

use api::annotation;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::{
        get, licensed,
        proxy::Proxy,
        stage::{LIMIT, Stage, is_ready},
    },
    provisioner,
    scene::{SECRET, Scene, idle, is_settled, listed, mint, prove},
};

#[tokio::test]
async fn what_is_lost_or_spoiled_costs_one_new_key() {
    let (scene, mut key) = Scene::with(&json!({"tags": {"site": "bed"}})).await;
    assert_eq!(key.name, "alpha");

    scene.revoke(&key.name).await;
    key = scene.replaced(&key).await;
    let secrets = scene.stage.api::<Secret>();
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
    key = scene.replaced(&key).await;
    scene.edit(SECRET, &json!({"data": null})).await;
    key = scene.replaced(&key).await;
    scene.put("").await;
    key = scene.replaced(&key).await;
    scene.put("nonsense").await;
    key = scene.replaced(&key).await;
    scene.put(&"x".repeat(43)).await;
    key = scene.replaced(&key).await;

    let uid = scene.stage.kind("CoderProvisioner").get("alpha").await.unwrap().metadata.uid.unwrap();
    assert_eq!(key.name, format!("alpha-{}-7", &uid[..4]), "each of these cost one key");
    // A database from before brings back what we have revoked.
    let back = format!("alpha-{}-1", &uid[..4]);
    mint(&scene.stage.coderd, &back, &json!({"site": "bed"})).await;
    scene.stage.operator.says(&["was revoked", &back]).await;
    scene.stays(&key).await;
    scene.end().await;
}

#[tokio::test]
async fn a_status_is_filled_again_field_by_field_and_no_key_is_made() {
    let (scene, first) = Scene::with(&json!({"tags": {"site": "bed"}})).await;
    scene.ask_for_rotation().await;
    let key = scene.replaced(&first).await;
    let before = known(&scene.status().await);
    assert!(before.len() >= 14, "{before:?}");

    for field in before.keys().chain([&"conditions".to_owned(), &"observedGeneration".to_owned()]) {
        empty(&scene, &json!({field.as_str(): null})).await;
        assert_eq!(known(&scene.status().await), before, "after {field} was emptied");
        assert_eq!(scene.held().await, key);
    }
    let all: Value =
        before.keys().map(|it| (it.clone(), Value::Null)).collect::<serde_json::Map<_, _>>().into();
    empty(&scene, &all).await;
    assert_eq!(known(&scene.status().await), before);
    empty(&scene, &Value::Null).await;
    assert_eq!(known(&scene.status().await), before);

    // The record is written again from the status, every time that it is lost.
    let record = async || {
        let secret = scene.stage.api::<Secret>().get(SECRET).await.unwrap();
        secret.metadata.annotations.unwrap_or_default().remove(annotation::PROVISIONER_KEY)
    };
    let written = record().await.unwrap();
    for lost in [Value::Null, json!(""), json!("nonsense"), json!("{}")] {
        scene.edit(SECRET, &json!({"metadata": {"annotations": {annotation::PROVISIONER_KEY: lost}}})).await;
        scene.stage.look_again("CoderProvisioner", "alpha").await;
        let (now, before) = (record().await.unwrap(), &written);
        assert_eq!(parsed(&now)["current"], parsed(before)["current"], "after {lost}");
        assert_eq!(known(&scene.status().await)["provisionerKeyID"], key.id);
    }
    scene.stays(&key).await;
    scene.end().await;
}

fn parsed(record: &str) -> Value {
    serde_json::from_str(record).unwrap()
}

/// What a status says of keys.
fn known(status: &Value) -> serde_json::Map<String, Value> {
    const OTHERS: [&str; 11] = [
        "conditions",
        "lastAppliedTime",
        "observedGeneration",
        "phase",
        "selector",
        "replicas",
        "readyReplicas",
        "daemons",
        "daemonVersions",
        "lastHandledReconcileAt",
        "drift",
    ];
    let fields = status.as_object().unwrap().clone().into_iter();
    fields.filter(|(name, _)| !OTHERS.contains(&name.as_str())).collect()
}

/// Takes something out of the status, and waits for a pass after that.
async fn empty(scene: &Scene, fields: &Value) {
    let provisioners = scene.stage.kind("CoderProvisioner");
    let patch = Patch::Merge(json!({"status": fields}));
    provisioners.patch_status("alpha", &PatchParams::default(), &patch).await.unwrap();
    scene.stage.look_again("CoderProvisioner", "alpha").await;
}

#[tokio::test]
async fn another_live_key_in_the_secret_is_kept_and_stays_its_makers() {
    let (scene, key) = Scene::with(&json!({"tags": {"site": "bed"}})).await;
    let coderd = &scene.stage.coderd;
    let other = mint(coderd, "by-hand", &json!({"site": "bed"})).await;
    scene.put(&other).await;
    let id = prove(coderd, &other).await.unwrap()["id"].clone();
    scene.wait("kept", |it| is_settled(it) && it["status"]["provisionerKeyID"] == id).await;
    let held = scene.held().await;
    assert_eq!((held.value.as_str(), held.name.as_str()), (other.as_str(), "by-hand"));
    scene.stays(&held).await;
    assert_eq!(prove(coderd, &key.value).await, None, "ours went");

    // One with other tags is no use; it is left alone.
    let wrong = mint(coderd, "wrong-tags", &json!({"site": "elsewhere"})).await;
    scene.put(&wrong).await;
    let is = |it: &Value| is_settled(it) && it["status"]["provisionerKeyID"] != id;
    let made = scene.wait("replaced", is).await;
    let name = made["status"]["provisionerKeyName"].as_str().unwrap();
    let names: Vec<Value> = scene.ours().await.iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["by-hand", "wrong-tags", name]);
    scene.stage.delete("CoderProvisioner", "alpha").await;
    scene.stage.gone(&made).await;
    let names: Vec<Value> = scene.ours().await.iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["by-hand", "wrong-tags"]);
}

#[tokio::test]
async fn an_organization_is_the_same_by_its_id_and_by_nothing_else() {
    let (scene, key) = Scene::with(&json!({"organizationName": "default"})).await;
    let coderd = &scene.stage.coderd;
    let name = get(coderd, "/api/v2/organizations/default").await["name"].clone();
    for name in [name, json!("default")] {
        scene.stage.apply(&idle(&json!({"organizationName": name}))).await;
        scene.wait("the same", |it| is_settled(it) && it["status"]["organizationName"] == name).await;
        assert_eq!(scene.held().await, key);
    }

    let create = async || {
        let body = json!({"name": "beta", "display_name": "Beta"});
        let (status, made) =
            coderd.owner.request(Method::POST, "/api/v2/organizations", Some(&body)).await.unwrap();
        assert_eq!(status, 201, "{made}");
        made["id"].clone()
    };
    let first = create().await;
    scene.stage.apply(&idle(&json!({"organizationName": "beta"}))).await;
    let there = |id: Value| move |it: &Value| is_settled(it) && it["status"]["organizationID"] == id;
    let moved = scene.wait("moved", there(first)).await;
    assert_eq!(scene.ours().await, [Value::Null; 0], "the key in the old organization is gone");

    assert!(moved["status"]["provisionerKeyName"].is_string(), "{moved:#}");
    let delete = async |path: &str| coderd.owner.request(Method::DELETE, path, None).await.unwrap().0;
    // Coder deletes no organization that has a key, and what is lost may be made again before we are back.
    let since = Instant::now();
    while delete("/api/v2/organizations/beta").await != 200 {
        assert!(since.elapsed() < LIMIT, "the organization does not go");
        for key in listed(coderd, "beta").await {
            delete(&format!("/api/v2/organizations/beta/provisionerkeys/{}", key["name"].as_str().unwrap()))
                .await;
        }
    }
    let second = create().await;
    let again = scene.wait("made again", there(second)).await;
    let keys = listed(coderd, "beta").await;
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert_eq!(keys[0]["id"], again["status"]["provisionerKeyID"]);
    assert_eq!(prove(coderd, &scene.value(&again["status"]).await).await.unwrap(), keys[0]);
    scene.end().await;
    assert_eq!(listed(coderd, "beta").await, [Value::Null; 0]);
}

#[tokio::test]
async fn provisioners_with_one_key_name_have_a_key_each_and_do_not_fight() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let scene = Scene::on(Stage::at(coderd, &proxy.url).await).await;
    scene.stage.wait_for("CoderControlPlane", "main", "ready", is_ready).await;
    let pairs = 6;
    let name = |number: usize, side: &str| format!("{side}-{number}");
    for number in 0..pairs {
        let spec = json!({"key": {"name": format!("shared-{number}")}, "replicas": 0});
        let (one, two) = (provisioner(&name(number, "one"), &spec), provisioner(&name(number, "two"), &spec));
        tokio::join!(scene.stage.apply(&one), scene.stage.apply(&two));
    }
    for (number, side) in (0..pairs).flat_map(|it| [(it, "one"), (it, "two")]) {
        scene.stage.wait_for("CoderProvisioner", &name(number, side), "ready", is_settled).await;
    }
    let ours = scene.ours().await;
    for number in 0..pairs {
        let shared = format!("shared-{number}");
        let keys: Vec<&Value> =
            ours.iter().filter(|it| it["name"].as_str().unwrap().starts_with(&shared)).collect();
        assert_eq!(keys.len(), 2, "{ours:#?}");
        assert!(keys.iter().any(|it| it["name"] == shared), "{ours:#?}");
    }
    let deleted: Vec<String> = proxy.writes().into_iter().filter(|it| it.starts_with("DELETE")).collect();
    assert_eq!(deleted, [""; 0], "nobody takes away what the other has");
}
