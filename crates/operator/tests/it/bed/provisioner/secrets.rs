//! Where the value of a key is: in a Secret that a person brought, or in one of ours that moves.

use api::CoderProvisioner;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use serde_json::{Value, json};

use super::{
    super::{
        licensed,
        proxy::Proxy,
        stage::{Stage, is_held_up, is_ready, plane, words},
    },
    provisioner,
    scene::{SECRET, Scene, idle, is_settled, mint, prove},
};

/// A Secret without what changes by itself.
async fn content(scene: &Scene, name: &str) -> (Option<String>, Option<Value>) {
    let secret = scene.stage.api::<Secret>().get(name).await.unwrap();
    let data = secret.data.map(|it| serde_json::to_value(it).unwrap());
    (secret.metadata.resource_version, data)
}

#[tokio::test]
async fn a_secret_that_a_person_brought_is_used_as_it_is_and_its_key_outlives_us() {
    let scene = Scene::new().await;
    let coderd = &scene.stage.coderd;
    let value = mint(coderd, "alpha", &json!({"site": "bed"})).await;
    scene.stage.write_secret("brought", &json!({"key": value})).await;
    let before = content(&scene, "brought").await;
    let spec = json!({"tags": {"site": "bed"}, "key": {"secretName": "brought"}});
    let key = scene.made(&spec).await;
    assert_eq!((key.value.as_str(), key.name.as_str()), (value.as_str(), "alpha"));
    scene.stays(&key).await;
    scene.ask_for_rotation().await;
    scene.stays(&key).await;
    assert_eq!(content(&scene, "brought").await, before, "nothing of it is written");

    let made = scene.wait("there", |_| true).await;
    scene.stage.delete("CoderProvisioner", "alpha").await;
    scene.stage.gone(&made).await;
    assert!(prove(coderd, &value).await.is_some(), "the key is not ours to revoke");
    assert_eq!(content(&scene, "brought").await, before);
}

#[tokio::test]
async fn a_secret_that_a_person_brought_and_that_is_no_use_is_left_to_him() {
    let scene = Scene::new().await;
    let coderd = &scene.stage.coderd;
    let wrong = mint(coderd, "by-hand", &json!({"site": "elsewhere"})).await;
    let of_no_use = [
        (json!({"key": "nonsense"}), "Invalid", "does not accept the value"),
        (json!({"key": "x".repeat(43)}), "Invalid", "does not accept the value"),
        (json!({"key": wrong}), "Invalid", "has other tags than declared"),
        (json!({"other": "x"}), "NotOurs", "has no value under key"),
    ];
    for (number, (values, reason, words_of_it)) in of_no_use.into_iter().enumerate() {
        let name = format!("brought-{number}");
        scene.stage.write_secret(&name, &values).await;
        let before = content(&scene, &name).await;
        scene.stage.apply(&idle(&json!({"tags": {"site": "bed"}, "key": {"secretName": name}}))).await;
        let told = scene.wait("told", |it| is_held_up(reason)(it) && words(it).contains(&name)).await;
        assert!(words(&told).contains(words_of_it), "{}", words(&told));
        scene.stage.look_again("CoderProvisioner", "alpha").await;
        assert_eq!(content(&scene, &name).await, before, "nothing of it is written");
        let names: Vec<Value> = scene.ours().await.iter().map(|it| it["name"].clone()).collect();
        assert_eq!(names, ["by-hand"], "no key is made");
    }
    // He corrects it.
    let right = mint(coderd, "right", &json!({"site": "bed"})).await;
    scene.stage.write_secret("brought-3", &json!({"key": right})).await;
    scene.wait("ready", is_settled).await;
    let made = scene.wait("there", |_| true).await;
    scene.stage.delete("CoderProvisioner", "alpha").await;
    scene.stage.gone(&made).await;
    assert!(prove(coderd, &right).await.is_some() && prove(coderd, &wrong).await.is_some());
}

#[tokio::test]
async fn another_address_of_the_same_deployment_reaches_the_daemons_and_costs_no_key() {
    let coderd = licensed().await;
    let (one, two) = (Proxy::start(&coderd.owner.url).await, Proxy::start(&coderd.owner.url).await);
    let scene = Scene::on(Stage::at(coderd, &one.url).await).await;
    let key = scene.made(&json!({})).await;
    let url = async || {
        let found = scene.stage.api::<Deployment>().get("provisioner-alpha").await.unwrap();
        let pod = found.spec.unwrap().template.spec.unwrap();
        let variables = pod.containers.into_iter().flat_map(|it| it.env.unwrap_or_default());
        variables.into_iter().find(|it| it.name == "CODER_URL").unwrap().value.unwrap()
    };
    assert_eq!(url().await, one.url);
    scene.stage.apply(&plane("main", &two.url)).await;
    scene.wait("moved", |it| is_settled(it) && it["status"]["controlPlaneURL"] == two.url).await;
    scene.stage.look_again("CoderProvisioner", "alpha").await;
    assert_eq!(url().await, two.url);
    assert_eq!(scene.held().await, key);
    scene.stays(&key).await;
}

#[tokio::test]
async fn a_value_moves_with_the_names_of_its_secret_and_the_old_one_goes_after_its_readers() {
    let scene = Scene::new().await;
    let spec = |key: Value| provisioner("alpha", &json!({"key": key}));
    scene.stage.apply(&spec(json!({}))).await;
    scene.wait("made", is_settled).await;
    let key = scene.held().await;

    let places = [
        ("moved", "key", json!({"secretName": "moved"})),
        ("moved", "token", json!({"secretName": "moved", "secretKey": "token"})),
        (SECRET, "key", json!({"secretName": SECRET, "secretKey": "key"})),
    ];
    let mut before = (SECRET.to_owned(), "key".to_owned());
    for (name, entry, declared) in places {
        scene.stage.apply(&spec(declared)).await;
        let place = json!({"name": name, "key": entry});
        // As long as it is read it is there.
        let under_way = |it: &Value| it["status"]["secretRef"] == place;
        scene.stage.wait::<CoderProvisioner>("alpha", "moving", under_way).await;
        while !is_settled(&scene.wait("there", |_| true).await) {
            if is_read(&scene, &before).await {
                // The readers may have gone between the two looks, and the entry after them.
                let is_there = entry_of(&scene, &before).await.is_some();
                assert!(is_there || !is_read(&scene, &before).await, "{before:?} is read and gone");
            }
        }
        scene.wait("moved", |it| is_settled(it) && under_way(it)).await;
        assert_eq!(scene.held().await, key, "no key is made");
        assert_eq!(entry_of(&scene, &before).await, None, "the old entry is gone");
        assert_eq!(entry_of(&scene, &(name.to_owned(), entry.to_owned())).await.as_ref(), Some(&key.value));
        before = (name.to_owned(), entry.to_owned());
    }
    let secrets = scene.stage.api::<Secret>().list(&kube::api::ListParams::default()).await.unwrap();
    assert!(secrets.items.iter().all(|it| it.metadata.name.as_deref() != Some("moved")), "{secrets:?}");
    scene.end().await;
    assert!(is_ready(&scene.stage.wait_for("CoderControlPlane", "main", "ready", is_ready).await));
}

/// The value of an entry.
async fn entry_of(scene: &Scene, (name, key): &(String, String)) -> Option<String> {
    let secret = scene.stage.api::<Secret>().get_opt(name).await.unwrap()?;
    let value = secret.data?.remove(key)?;
    Some(String::from_utf8(value.0).unwrap())
}

/// Whether a pod gets its key from there.
async fn is_read(scene: &Scene, (name, key): &(String, String)) -> bool {
    super::rotation::mounted(&scene.stage).await.iter().any(|it| it.name == *name && it.key == *key)
}
