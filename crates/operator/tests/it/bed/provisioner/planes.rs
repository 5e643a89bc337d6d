//! A provisioner that goes to another control plane: its key follows, and no secret of one deployment reaches the other.

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use serde_json::{Value, json};
use testbed::Coderd;

use super::{
    super::{
        licensed,
        operator::writes,
        proxy::{Mood, Proxy},
        stage::{Stage, is_ready},
    },
    scene::{Key, Scene, idle, is_settled, listed, prove},
};

struct Two {
    scene: Scene,
    other: Coderd,
    here: Proxy,
    there: Proxy,
}

/// Two deployments, each behind a proxy and with a token of its own, and a key at the first one.
async fn two() -> (Two, Key) {
    let (coderd, other) = tokio::join!(licensed(), licensed());
    let (here, there) = (Proxy::start(&coderd.owner.url).await, Proxy::start(&other.owner.url).await);
    let scene = Scene::on(Stage::at(coderd, &here.url).await).await;
    scene.stage.write_secret("other-automation", &json!({"token": other.owner.token})).await;
    let external = json!({"url": there.url, "credentialsSecretRef": {"name": "other-automation"}});
    scene
        .stage
        .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
        "metadata": {"name": "other"}, "spec": {"external": external, "interval": "10s"}}))
        .await;
    scene.stage.wait_for("CoderControlPlane", "other", "ready", is_ready).await;
    let key = scene.made(&json!({"tags": {"site": "bed"}})).await;
    (Two { scene, other, here, there }, key)
}

impl Two {
    async fn go(&self) {
        let spec = json!({"tags": {"site": "bed"}, "controlPlaneRef": {"name": "other"}});
        self.scene.stage.apply(&idle(&spec)).await;
    }

    /// What one deployment gives to us is shown to that one only.
    fn is_kept_apart(&self, here: &[&str], there: &[&str]) {
        let tokens = (&self.scene.stage.coderd.owner.token, &self.other.owner.token);
        for (proxy, token, keys) in [(&self.here, tokens.0, here), (&self.there, tokens.1, there)] {
            let requests = proxy.requests();
            assert!(requests.iter().all(|it| it.token.as_ref().is_none_or(|it| it == token)));
            let shown = requests.iter().filter_map(|it| it.key.as_deref());
            assert!(shown.into_iter().all(|it| keys.contains(&it)), "a key was shown to another deployment");
        }
    }
}

#[tokio::test]
async fn a_key_follows_to_another_control_plane_and_each_token_stays_with_its_own() {
    let (two, before) = two().await;
    two.go().await;
    let is_there = |it: &Value| is_settled(it) && it["status"]["controlPlaneRefName"] == "other";
    let moved = two.scene.wait("moved", is_there).await;
    assert_eq!(two.scene.ours().await, [Value::Null; 0], "the old key is revoked where it was");
    let value = two.scene.value(&moved["status"]).await;
    let key = prove(&two.other, &value).await.unwrap();
    assert_eq!(listed(&two.other, "default").await, std::slice::from_ref(&key));
    assert_eq!(key["id"], moved["status"]["provisionerKeyID"]);
    for _ in 0..2 {
        two.scene.stage.look_again("CoderProvisioner", "alpha").await;
    }
    assert_eq!(listed(&two.other, "default").await, [key]);
    two.scene.end().await;
    assert_eq!(listed(&two.other, "default").await, [Value::Null; 0]);
    two.is_kept_apart(&[&before.value], &[&value]);
}

#[tokio::test]
async fn a_key_of_a_control_plane_that_is_gone_is_left_and_named() {
    let (two, before) = two().await;
    two.here.set(Mood::Down);
    two.go().await;
    let is_there = |it: &Value| is_ready(it) && it["status"]["controlPlaneRefName"] == "other";
    let moved = two.scene.wait("moved", is_there).await;
    assert_eq!(moved["status"]["retiringKeys"][0]["name"], before.name, "it is tried again");
    let plane = two.scene.stage.wait_for("CoderControlPlane", "main", "there", |_| true).await;
    let force = Some("true");
    let so_far = writes(&two.scene.stage.namespace).await.len();
    two.scene.stage.annotate("CoderControlPlane", "main", api::annotation::FORCE_FINALIZE, force).await;
    two.scene.stage.delete("CoderControlPlane", "main").await;
    two.scene.stage.gone(&plane).await;
    let moved = two.scene.wait("settled", |it| is_settled(it) && is_there(it)).await;
    let words = "provisioner key alpha is left behind";
    two.scene.stage.operator.says(&[words, "main"]).await;
    let events = two.scene.stage.api::<Event>().list(&ListParams::default()).await.unwrap();
    let notes: Vec<String> = events.items.into_iter().filter_map(|it| it.note).collect();
    assert_eq!(notes.iter().filter(|it| it.contains(words)).count(), 1, "{notes:#?}");
    let lines = two.scene.stage.operator.said();
    assert_eq!(lines.iter().filter(|it| it.to_string().contains(words)).count(), 1, "it is named once");
    // It is named first and forgotten then: an operator may die in between.
    let written = writes(&two.scene.stage.namespace).await.split_off(so_far);
    let is_its = |it: &Value| it["objectRef"]["name"].as_str().is_some_and(|it| it.starts_with("alpha"));
    let at = |kind: &str| written.iter().position(|it| it["objectRef"]["resource"] == kind && is_its(it));
    assert!(at("events").is_some() && at("events") < at("secrets"), "{written:#?}");
    assert!(prove(&two.scene.stage.coderd, &before.value).await.is_some());
    let value = two.scene.value(&moved["status"]).await;
    assert!(prove(&two.other, &value).await.is_some());
    two.is_kept_apart(&[&before.value], &[&value]);
}
