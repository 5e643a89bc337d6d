//! What the tests of keys have in common: one provisioner, and keys of other people with names much like its own.

use api::{CoderProvisioner, annotation};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use reqwest::Method;
use serde_json::{Value, json};
use testbed::Coderd;

use super::{
    super::{
        get, licensed,
        stage::{Stage, is_ready},
    },
    KEYS, provisioner,
};

/// The Secret of the provisioner `alpha`.
pub(super) const SECRET: &str = "alpha-provisioner-key";
const FOREIGN: [&str; 4] = ["alpha-1", "alpha-0000-1", "Alphabet", "alph"];

pub(super) struct Scene {
    pub(super) stage: Stage,
    foreign: Vec<Value>,
}

/// A key of ours, with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) id: Value,
    pub(super) value: String,
}

/// The provisioner `alpha` without pods.
pub(super) fn idle(spec: &Value) -> Value {
    let mut manifest = provisioner("alpha", spec);
    manifest["spec"]["replicas"] = json!(0);
    manifest
}

/// Whether nothing is under way any more.
pub(super) fn is_settled(provisioner: &Value) -> bool {
    let status = &provisioner["status"];
    let mut retiring = status["retiringKeys"].as_array().into_iter().flatten();
    is_ready(provisioner)
        // One that was given up may stay written down, should it come after all.
        && retiring.all(|it| it["lost"] == true)
        && status["pendingKey"].is_null()
        && status["formerSecretRefs"].is_null()
}

/// Makes a key as a person does, and gives its value.
pub(super) async fn mint(coderd: &Coderd, name: &str, tags: &Value) -> String {
    let body = json!({"name": name, "tags": tags});
    let (status, answer) = coderd.owner.request(Method::POST, KEYS, Some(&body)).await.unwrap();
    assert_eq!(status, 201, "{answer}");
    answer["key"].as_str().unwrap().to_owned()
}

/// The key that a value is.
pub(super) async fn prove(coderd: &Coderd, value: &str) -> Option<Value> {
    let ask = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = ask.get(format!("{}/api/v2/provisionerkeys/x", coderd.owner.url));
    let answer = ask.header("Coder-Provisioner-Daemon-Key", value).send().await.unwrap();
    if answer.status() == 200 { answer.json().await.ok() } else { None }
}

/// The keys of an organization.
pub(super) async fn listed(coderd: &Coderd, organization: &str) -> Vec<Value> {
    let keys = get(coderd, &format!("/api/v2/organizations/{organization}/provisionerkeys")).await;
    keys.as_array().unwrap().clone()
}

impl Scene {
    pub(super) async fn new() -> Self {
        Self::on(Stage::new(licensed().await).await).await
    }

    pub(super) async fn on(stage: Stage) -> Self {
        for name in FOREIGN {
            mint(&stage.coderd, name, &json!({})).await;
        }
        let foreign = listed(&stage.coderd, "default").await;
        Self { stage, foreign }
    }

    /// With the provisioner `alpha`, and its key.
    pub(super) async fn with(spec: &Value) -> (Self, Key) {
        let scene = Self::new().await;
        let key = scene.made(spec).await;
        (scene, key)
    }

    pub(super) async fn made(&self, spec: &Value) -> Key {
        self.stage.apply(&idle(spec)).await;
        self.wait("made", is_settled).await;
        self.held().await
    }

    pub(super) async fn wait(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        self.stage.wait::<CoderProvisioner>("alpha", what, is).await
    }

    /// Asks for a new key.
    pub(super) async fn ask_for_rotation(&self) {
        let now = uuid::Uuid::new_v4().to_string();
        self.stage.annotate("CoderProvisioner", "alpha", annotation::ROTATE_REQUESTED_AT, Some(&now)).await;
    }

    /// Waits until another key has taken the place of that one.
    pub(super) async fn replaced(&self, before: &Key) -> Key {
        let is = |it: &Value| is_settled(it) && it["status"]["provisionerKeyID"] != before.id;
        self.wait("replaced", is).await;
        let held = self.held().await;
        self.stays(&held).await;
        held
    }

    pub(super) async fn status(&self) -> Value {
        let found = self.stage.kind("CoderProvisioner").get("alpha").await.unwrap();
        found.data["status"].clone()
    }

    /// The keys of the default organization that are not foreign. The foreign ones are as they were.
    pub(super) async fn ours(&self) -> Vec<Value> {
        let (foreign, ours) = listed(&self.stage.coderd, "default")
            .await
            .into_iter()
            .partition::<Vec<_>, _>(|it| self.foreign.contains(it));
        assert_eq!(foreign, self.foreign, "nobody touches the keys of other people");
        ours
    }

    /// The value that the Secret holds by now.
    pub(super) async fn value(&self, status: &Value) -> String {
        let (name, key) = (status["secretRef"]["name"].as_str(), status["secretRef"]["key"].as_str());
        let secret = self.stage.api::<Secret>().get(name.unwrap()).await.unwrap();
        String::from_utf8(secret.data.unwrap()[key.unwrap()].0.clone()).unwrap()
    }

    /// The one key of ours. The Secret holds its value, and the status names it.
    pub(super) async fn held(&self) -> Key {
        let status = self.status().await;
        let value = self.value(&status).await;
        let key = prove(&self.stage.coderd, &value).await.unwrap();
        assert_eq!(key["id"], status["provisionerKeyID"]);
        assert_eq!(key["name"], status["provisionerKeyName"]);
        assert_eq!(self.ours().await, std::slice::from_ref(&key), "there is one key");
        Key { name: key["name"].as_str().unwrap().to_owned(), id: key["id"].clone(), value }
    }

    /// Further passes change neither the key nor the Secret.
    pub(super) async fn stays(&self, key: &Key) {
        let version = async || {
            let name = self.status().await["secretRef"]["name"].as_str().unwrap().to_owned();
            self.stage.api::<Secret>().get(&name).await.unwrap().metadata.resource_version
        };
        // What the last pass has still to write is written when the next one is over.
        self.stage.look_again("CoderProvisioner", "alpha").await;
        let before = version().await;
        for _ in 0..2 {
            self.stage.look_again("CoderProvisioner", "alpha").await;
            assert_eq!(self.held().await, *key);
        }
        assert_eq!(version().await, before, "the Secret is as it was");
    }

    /// Lets the provisioner go; no key of ours is left.
    pub(super) async fn end(&self) {
        let made = self.wait("there", |_| true).await;
        self.stage.delete("CoderProvisioner", "alpha").await;
        self.stage.gone(&made).await;
        assert_eq!(self.ours().await, [Value::Null; 0]);
    }

    /// Changes a Secret as a person does.
    pub(super) async fn edit(&self, name: &str, patch: &Value) {
        let secrets = self.stage.api::<Secret>();
        secrets.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Puts a value into the Secret.
    pub(super) async fn put(&self, value: &str) {
        self.edit(SECRET, &json!({"stringData": {"key": value}})).await;
    }

    /// Deletes a key as a person does.
    pub(super) async fn revoke(&self, name: &str) {
        let path = format!("{KEYS}/{name}");
        let (status, _) = self.stage.coderd.owner.request(Method::DELETE, &path, None).await.unwrap();
        assert_eq!(status, 204);
    }
}
