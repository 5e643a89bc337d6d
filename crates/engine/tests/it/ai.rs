//! AI providers and models at a deployment in memory: keys from Secrets, drift that only fingerprints show, and the one default.

use std::sync::Arc;

use api::Reason;
use engine::{
    Blocked, Coder, Outcome, Report,
    coder::{Beside, Promises},
    kinds::fingerprint,
};
use reqwest::Method;
use serde_json::{Value, json};
use sim::MemoryCluster;

use crate::{
    memory,
    support::{self, secret, subject},
    wire::{Fault, Wire, answer},
};

const FIRST: &str = "sk-first-0123456789-abcdefghij";
/// Another key with the same mask.
const TWIN: &str = "sk-first-9876543210-abcdefghij";
const SECOND: &str = "sk-other-0123456789-klmnopqrst";

/// A deployment and a cluster in memory, as a controller has them.
struct Scene {
    deployment: sim::Coder,
    cluster: Arc<MemoryCluster>,
}

impl Scene {
    fn new() -> Self {
        Self::with(memory::licensed())
    }

    fn with(state: sim::state::State) -> Self {
        let cluster = Arc::new(support::cluster());
        cluster.set(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "spec": {"external": {"url": "https://coder.test", "credentialsSecretRef": {"name": "token"}}},
            "metadata": {"name": "main", "namespace": "platform", "uid": "u"}}));
        let scene = Self { deployment: memory::coder(Arc::new(memory::start), state), cluster };
        scene.set_keys(&json!({"one": FIRST, "two": SECOND}));
        scene
    }

    fn set_keys(&self, values: &Value) {
        self.cluster.set(&secret("ai-keys", values));
    }

    fn coder(&self) -> Coder {
        let client = memory::owner(self.deployment.transport());
        Coder::new(client, Promises::default()).beside(Beside {
            cluster: Arc::clone(&self.cluster) as _,
            references: Arc::clone(&self.cluster) as _,
            memory: Arc::default(),
            writes_status: true,
            fingerprints: Some(Arc::default()),
            allowed_rules: None,
            tokens: Arc::default(),
        })
    }

    /// One reconcile; the manifest gets the status that a controller would write, and nothing of that shows a key.
    async fn reconcile(&self, manifest: &mut Value) -> Report {
        let coder = self.coder();
        let mut subject = subject(manifest);
        let assessment = subject.assess(&coder, engine::Door::Controller).await;
        fingerprint::store_key(&coder).await.unwrap();
        let report = subject.carry_out(&assessment, &coder).await;
        let mut status = manifest["status"].as_object().cloned().unwrap_or_default();
        status.extend(assessment.aside.status.clone());
        status.extend(report.recorded.clone());
        status.retain(|_, it| !it.is_null());
        if let Some(id) = report.id {
            status.insert("id".to_owned(), json!(id));
        }
        manifest["status"] = status.into();
        let told = format!("{assessment:?} {report:?} {manifest}");
        for key in [FIRST, TWIN, SECOND, "AKIA", "aws-secret"] {
            assert!(!told.contains(key), "{told}");
        }
        report
    }

    async fn applied(&self, manifest: &mut Value) {
        let report = self.reconcile(manifest).await;
        assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
        self.equal(manifest).await;
    }

    async fn equal(&self, manifest: &mut Value) {
        let before = self.deployment.state().audit_log.len();
        let report = self.reconcile(manifest).await;
        assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);
        assert_eq!(self.deployment.state().audit_log.len(), before, "nothing is written");
    }

    async fn blocked(&self, manifest: &mut Value) -> Blocked {
        match self.reconcile(manifest).await.outcome {
            Outcome::Blocked(waiting) => waiting,
            other => panic!("{other:?}"),
        }
    }

    fn masks(&self) -> Vec<String> {
        let state = self.deployment.state();
        let provider = state.ai_providers.values().find(|it| !it.deleted).unwrap();
        provider.api_keys.iter().map(|it| it.masked.clone()).collect()
    }

    /// A person's request.
    async fn by_hand(&self, method: Method, path: &str, body: &Value) {
        let token = memory::owner_token();
        let request = http::Request::builder().method(method).uri(format!("https://coder.test{path}"));
        let request = request.header("coder-session-token", token);
        let body = bytes::Bytes::from(serde_json::to_vec(body).unwrap());
        let answer = self.deployment.transport().send(request.body(body).unwrap()).await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
    }
}

fn provider(more: &Value) -> Value {
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderAIProvider",
        "metadata": {"name": "anthropic", "namespace": "platform"}, "spec": {"controlPlaneRef": {"name": "main"},
        "type": "anthropic", "enabled": true, "baseURL": "https://api.anthropic.com",
        "apiKeySecretRefs": [{"name": "ai-keys", "key": "one"}]}});
    manifest["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    manifest
}

fn model(name: &str, more: &Value) -> Value {
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderAIModel",
        "metadata": {"name": name, "namespace": "platform"}, "spec": {"controlPlaneRef": {"name": "main"},
        "provider": "anthropic", "model": name, "contextLimit": 1000}});
    manifest["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    manifest
}

#[tokio::test]
async fn changed_secret_replaces_the_key_and_the_second_run_writes_nothing() {
    let scene = Scene::new();
    let mut manifest = provider(&json!({}));
    scene.applied(&mut manifest).await;
    assert_eq!(scene.masks(), ["sk-f...ghij"]);
    // The mask is the same, and the fingerprint is another one.
    scene.set_keys(&json!({"one": TWIN}));
    let before = manifest["status"]["apiKeyFingerprint"].clone();
    scene.applied(&mut manifest).await;
    assert_ne!(manifest["status"]["apiKeyFingerprint"], before);
    scene.set_keys(&json!({"one": SECOND}));
    scene.applied(&mut manifest).await;
    assert_eq!(scene.masks(), ["sk-o...qrst"]);
}

#[tokio::test]
async fn key_that_another_client_put_there_is_replaced() {
    let scene = Scene::new();
    let mut manifest = provider(&json!({}));
    scene.applied(&mut manifest).await;
    let path = "/api/v2/ai/providers/anthropic";
    // Another key by its mask, one with the same mask by its id, and one key too many.
    for keys in [json!([{"api_key": SECOND}]), json!([{"api_key": TWIN}])] {
        scene.by_hand(Method::PATCH, path, &json!({"api_keys": keys})).await;
        scene.applied(&mut manifest).await;
        assert_eq!(scene.masks(), ["sk-f...ghij"]);
    }
    let kept = manifest["status"]["apiKeyIDs"][0].clone();
    let more = json!({"api_keys": [{"id": kept}, {"api_key": SECOND}]});
    scene.by_hand(Method::PATCH, path, &more).await;
    scene.applied(&mut manifest).await;
    assert_eq!(scene.masks(), ["sk-f...ghij"], "exactly one key where one is declared");
}

#[tokio::test]
async fn several_keys_keep_their_order() {
    let scene = Scene::new();
    let refs = |names: [&str; 2]| names.map(|it| json!({"name": "ai-keys", "key": it}));
    let mut manifest = provider(&json!({"apiKeySecretRefs": refs(["two", "one"])}));
    scene.applied(&mut manifest).await;
    assert_eq!(scene.masks(), ["sk-o...qrst", "sk-f...ghij"]);
    manifest["spec"]["apiKeySecretRefs"] = json!(refs(["one", "two"]));
    scene.applied(&mut manifest).await;
    assert_eq!(scene.masks(), ["sk-f...ghij", "sk-o...qrst"]);
    manifest["spec"]["apiKeySecretRefs"] = json!([]);
    scene.applied(&mut manifest).await;
    assert_eq!(scene.masks(), Vec::<String>::new());
}

#[tokio::test]
async fn adopted_provider_is_known_by_its_masks_first() {
    let scene = Scene::new();
    let mut manifest = provider(&json!({}));
    scene.applied(&mut manifest).await;
    let mut stranger = provider(&json!({}));
    scene.equal(&mut stranger).await;
    scene.equal(&mut stranger).await;
    assert_eq!(stranger["status"], manifest["status"], "ids and fingerprint are recorded once it is held");
    scene.set_keys(&json!({"one": TWIN}));
    scene.applied(&mut stranger).await;
}

#[tokio::test]
async fn credentials_of_bedrock_are_sent_when_their_secret_changes() {
    let scene = Scene::new();
    scene.cluster.set(&secret("aws", &json!({"id": "AKIA-1", "secret": "aws-secret-1"})));
    let bedrock = json!({"region": "us-gov-west-1", "protocol": "invoke-model", "roleARN": "arn:aws:iam::1:role/coder",
        "accessKeySecretRef": {"name": "aws", "key": "id"}, "secretKeySecretRef": {"name": "aws", "key": "secret"}});
    let mut manifest = provider(&json!({"type": "bedrock", "bedrock": bedrock}));
    manifest["spec"].as_object_mut().unwrap().remove("apiKeySecretRefs");
    scene.applied(&mut manifest).await;
    let stored = || scene.deployment.state().ai_providers.into_values().next().unwrap().settings.unwrap();
    assert_eq!(stored()["access_key_secret"], "aws-secret-1");
    assert_eq!(manifest["status"]["externalID"], stored()["external_id"]);
    scene.cluster.set(&secret("aws", &json!({"id": "AKIA-2", "secret": "aws-secret-2"})));
    scene.applied(&mut manifest).await;
    assert_eq!(
        (&stored()["access_key"], &stored()["access_key_secret"]),
        (&json!("AKIA-2"), &json!("aws-secret-2"))
    );
    // Without the references the credentials are untouched; other settings are exact.
    for field in ["accessKeySecretRef", "secretKeySecretRef"] {
        manifest["spec"]["bedrock"].as_object_mut().unwrap().remove(field);
    }
    manifest["spec"]["bedrock"]["region"] = json!("eu-central-1");
    scene.applied(&mut manifest).await;
    assert_eq!(
        (&stored()["region"], &stored()["access_key_secret"]),
        (&json!("eu-central-1"), &json!("aws-secret-2"))
    );
}

#[tokio::test]
async fn provider_that_coderd_seeds_is_refused() {
    let mut state = memory::licensed();
    let option = json!({"env": "CODER_AI_GATEWAY_ANTHROPIC_KEY", "value_source": "env"});
    let numbered = json!([{"type": "openai", "name": "eu"}]);
    state.server_config =
        Some(json!({"options": [option], "config": {"ai": {"bridge": {"providers": numbered}}}}));
    let scene = Scene::with(state);
    for (name, variable) in
        [("anthropic", "CODER_AI_GATEWAY_ANTHROPIC_KEY"), ("eu", "CODER_AI_GATEWAY_PROVIDER_0_*")]
    {
        let Blocked { reason, message } = scene.blocked(&mut provider(&json!({"name": name}))).await;
        assert_eq!(reason, Reason::SeededFromEnvironment);
        assert!(message.contains(&format!("remove {variable}")), "{message}");
    }
    scene.applied(&mut provider(&json!({"name": "other"}))).await;
    // A managed control plane is asked first: what is declared there counts at the next start.
    let env = json!([{"name": "CODER_AIBRIDGE_PROVIDER_0_NAME", "value": "mine"}]);
    scene.cluster.edit("CoderControlPlane", "main", |it| it["spec"] = json!({"extraEnv": env}));
    let Blocked { reason, message } = scene.blocked(&mut provider(&json!({"name": "mine"}))).await;
    assert_eq!(reason, Reason::SeededFromEnvironment);
    assert!(
        message.contains("CODER_AIBRIDGE_PROVIDER_0_* in spec.extraEnv of CoderControlPlane main"),
        "{message}"
    );
}

#[tokio::test]
async fn provider_that_coder_could_not_make_says_what_it_lacks() {
    let scene = Scene::new();
    let mut manifest = provider(&json!({}));
    manifest["spec"].as_object_mut().unwrap().remove("baseURL");
    assert!(scene.blocked(&mut manifest).await.message.starts_with("spec.baseURL: "));
    scene.applied(&mut provider(&json!({}))).await;
    let other = scene.blocked(&mut provider(&json!({"type": "openai"}))).await;
    assert!(other.message.contains("has the type anthropic"), "{}", other.message);
    let missing = provider(&json!({"apiKeySecretRefs": [{"name": "nowhere"}]}));
    let waiting = scene.blocked(&mut missing.clone()).await;
    assert_eq!((waiting.reason, waiting.message.contains("nowhere")), (Reason::SecretNotFound, true));
}

#[tokio::test]
async fn model_waits_for_its_provider_and_the_default_moves() {
    let scene = Scene::new();
    let mut first = model(
        "first",
        &json!({"config": {"temperature": 1, "reasoning_effort": {"default": "low", "max": "high"}}}),
    );
    assert_eq!(scene.blocked(&mut first).await.reason, Reason::ReferenceNotFound);
    let mut anthropic = provider(&json!({"enabled": false}));
    scene.applied(&mut anthropic).await;
    assert_eq!(scene.blocked(&mut first).await.reason, Reason::ProviderDisabled);
    anthropic["spec"]["enabled"] = json!(true);
    scene.applied(&mut anthropic).await;
    scene.applied(&mut first).await;
    let is_default = |name: &str| {
        let models = scene.deployment.state().model_configs;
        models.values().find(|it| it.model == name).unwrap().is_default
    };
    assert!(is_default("first"), "the first model is the default, whatever is declared");
    let mut second = model("second", &json!({"default": true}));
    scene.applied(&mut second).await;
    assert!(is_default("second") && !is_default("first"));
    scene.equal(&mut first).await;
    let id = first["status"]["id"].as_str().unwrap();
    let path = format!("/api/experimental/chats/model-configs/{id}");
    scene.by_hand(Method::PATCH, &path, &json!({"is_default": true})).await;
    scene.applied(&mut second).await;
    assert!(is_default("second"));
    // A disabled provider is no reason to be unready for a model that is as declared.
    anthropic["spec"]["enabled"] = json!(false);
    scene.applied(&mut anthropic).await;
    scene.equal(&mut first).await;
    first["spec"]["config"] = json!({});
    scene.applied(&mut first).await;
    first["spec"]["model"] = json!("third");
    assert_eq!(scene.blocked(&mut first).await.reason, Reason::ProviderDisabled);
}

#[tokio::test]
async fn model_is_adopted_only_where_one_matches() {
    let scene = Scene::new();
    scene.applied(&mut provider(&json!({}))).await;
    let mut one = model("claude", &json!({"displayName": "One"}));
    let mut two = model("claude", &json!({"displayName": "Two"}));
    scene.applied(&mut one).await;
    scene.applied(&mut two).await;
    let ambiguous = scene.blocked(&mut model("claude", &json!({}))).await;
    assert_eq!(ambiguous.reason, Reason::AdoptionRefused);
    assert!(ambiguous.message.starts_with("2 models claude"), "{}", ambiguous.message);
    let mut stranger = model("claude", &json!({"displayName": "Two"}));
    scene.equal(&mut stranger).await;
    assert_eq!(stranger["status"]["id"], two["status"]["id"]);
    let unknown = scene.reconcile(&mut model("claude", &json!({"config": {"temprature": 1}}))).await;
    assert!(matches!(&unknown.outcome, Outcome::Invalid(it) if it.field == "spec.config.temprature"));
}

#[tokio::test]
async fn moved_route_of_models_names_the_supported_versions() {
    let next = memory::coder_of_version("v2.37.1", memory::licensed());
    let wire = Wire::failing(next, |request| {
        let is_experimental = request.uri().path().starts_with("/api/experimental/");
        is_experimental.then(|| Fault::Instead(Ok(answer(404, &json!({"message": "Route not found."})))))
    });
    let report = support::pass(&model("claude", &json!({})), &wire.coder()).await;
    let Outcome::Blocked(Blocked { reason, message }) = report.outcome else {
        panic!("{:?}", report.outcome)
    };
    assert_eq!(reason, Reason::VersionNotSupported);
    assert!(message.contains("2.34 to 2.36"), "{message}");
}
