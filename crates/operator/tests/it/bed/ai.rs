//! AI providers and models at a coderd without a licence, under the controllers.

use reqwest::Method;
use serde_json::{Value, json};
use testbed::Flavour;

use super::{
    get,
    proxy::Proxy,
    run, secrecy,
    stage::{Stage, is_held_up, is_ready, says, words},
};
use crate::{examples::request, support::Folder};

const FIRST: &str = "key-bed-0123456789-first-abcd";
/// Another key with the same mask.
const TWIN: &str = "key-bed-9876543210-twin--abcd";
const SECOND: &str = "key-bed-0123456789-second-wxyz";
const ACCESS_KEY: &str = "AKIABED0123456789";
const SECRET_KEY: &str = "bed-aws-secret-0123456789";
const PROVIDER: &str = "/api/v2/ai/providers/anthropic";

fn object(kind: &str, name: &str, mut spec: Value) -> Value {
    spec["controlPlaneRef"] = json!({"name": "main"});
    spec["interval"] = json!("1h");
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": name}});
    manifest["spec"] = spec;
    manifest
}

fn anthropic(enabled: bool) -> Value {
    object(
        "CoderAIProvider",
        "anthropic",
        json!({"type": "anthropic", "enabled": enabled, "baseURL": "https://api.anthropic.com",
            "apiKeySecretRefs": [{"name": "ai-keys", "key": "anthropic"}]}),
    )
}

async fn masks(stage: &Stage) -> Vec<Value> {
    let keys = get(&stage.coderd, PROVIDER).await["api_keys"].clone();
    keys.as_array().unwrap().iter().map(|it| it["masked"].clone()).collect()
}

/// Waits until the recorded fingerprint is another one.
async fn replaced(stage: &Stage, before: &Value) -> Value {
    let fingerprint = &before["status"]["apiKeyFingerprint"];
    let is_new = |it: &Value| is_ready(it) && it["status"]["apiKeyFingerprint"] != *fingerprint;
    stage.is_noticed("CoderAIProvider", "anthropic", "with another key", is_new).await;
    stage.wait_for("CoderAIProvider", "anthropic", "with another key", is_new).await
}

#[tokio::test]
async fn ai_provider_follows_its_secret_and_shows_no_key() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Shipped).await.unwrap();
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.apply(&anthropic(true)).await;
    let waits = stage.wait_for("CoderAIProvider", "anthropic", "waiting", is_held_up("SecretNotFound")).await;
    assert!(words(&waits).contains("ai-keys"), "{}", words(&waits));
    // The Secret wakes the manifest, when it comes and when it changes.
    stage.write_secret("ai-keys", &json!({"anthropic": FIRST})).await;
    let first = stage.wait_for("CoderAIProvider", "anthropic", "ready", is_ready).await;
    assert_eq!(masks(&stage).await, ["key-...abcd"]);
    stage.write_secret("ai-keys", &json!({"anthropic": TWIN})).await;
    let twin = replaced(&stage, &first).await;
    stage.write_secret("ai-keys", &json!({"anthropic": SECOND})).await;
    let second = replaced(&stage, &twin).await;
    assert_eq!(masks(&stage).await, ["key-...wxyz"]);
    assert_eq!(second["status"]["id"], first["status"]["id"]);

    // A key that somebody else put there is drift, by its mask and by its id.
    for theirs in [FIRST, SECOND] {
        let body = json!({"api_keys": [{"api_key": theirs}]});
        request(&stage.coderd.owner, Method::PATCH, PROVIDER, Some(&body)).await;
        let healed = stage.look_again("CoderAIProvider", "anthropic").await;
        assert!(is_ready(&healed), "{healed:#}");
        let keys = get(&stage.coderd, PROVIDER).await["api_keys"].clone();
        assert_eq!(keys.as_array().unwrap().len(), 1);
        assert_eq!(
            (&keys[0]["masked"], &keys[0]["id"]),
            (&json!("key-...wxyz"), &healed["status"]["apiKeyIDs"][0])
        );
    }
    let writes = proxy.writes().len();
    let equal = stage.look_again("CoderAIProvider", "anthropic").await;
    assert!(is_ready(&equal) && says(&equal, "Drifted", "False", "NoDrift"), "{equal:#}");
    assert_eq!(proxy.writes().len(), writes, "what is equal is not written");

    // AWS credentials, which Coder never shows.
    stage.write_secret("aws", &json!({"access-key": ACCESS_KEY, "secret-key": SECRET_KEY})).await;
    let bedrock = json!({"type": "bedrock", "baseURL": "https://bedrock.example.com", "deletionPolicy": "Delete",
        "bedrock": {"region": "eu-central-1", "protocol": "mantle", "roleARN": "arn:aws:iam::123456789012:role/coder",
        "accessKeySecretRef": {"name": "aws"}, "secretKeySecretRef": {"name": "aws"}}});
    stage.apply(&object("CoderAIProvider", "bedrock", bedrock)).await;
    let bedrock = stage.wait_for("CoderAIProvider", "bedrock", "ready", |it| {
        is_ready(it) && it["status"]["externalID"].is_string()
    });
    let bedrock = bedrock.await;
    assert!(bedrock["status"]["credentialsFingerprint"].is_string(), "{bedrock:#}");
    stage.delete("CoderAIProvider", "bedrock").await;
    stage.gone(&bedrock).await;

    let told = secrecy::told(&stage).await;
    for (what, secret) in [
        ("the first key", FIRST),
        ("its twin", TWIN),
        ("the second key", SECOND),
        ("the access key", ACCESS_KEY),
        ("the secret key", SECRET_KEY),
    ] {
        secrecy::hides(&told, what, secret.as_bytes());
    }
}

#[tokio::test]
async fn model_is_woken_by_its_provider_and_one_manifest_has_the_default() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Shipped).await.unwrap();
    let stage = Stage::new(coderd).await;
    let model = |name: &str, is_default: bool| {
        let mut spec =
            json!({"provider": "anthropic", "model": name, "contextLimit": 1000, "deletionPolicy": "Delete"});
        if is_default {
            spec["default"] = json!(true);
        }
        object("CoderAIModel", name, spec)
    };
    stage.apply(&model("one", true)).await;
    stage.wait_for("CoderAIModel", "one", "waiting", is_held_up("ReferenceNotFound")).await;
    stage.write_secret("ai-keys", &json!({"anthropic": FIRST})).await;
    stage.apply(&anthropic(false)).await;
    stage.is_noticed("CoderAIModel", "one", "told", is_held_up("ProviderDisabled")).await;
    stage.apply(&anthropic(true)).await;
    let one = stage.is_noticed("CoderAIModel", "one", "ready", is_ready).await;
    stage.is_outlived(&one).await;

    // Two that say default: the newer one is told who has it.
    stage.apply(&model("two", true)).await;
    let told = stage.wait_for("CoderAIModel", "two", "told", is_held_up("HeldByOther")).await;
    assert!(words(&told).starts_with("one also sets default: true"), "{}", words(&told));
    stage.apply(&model("one", false)).await;
    let two = stage.is_noticed("CoderAIModel", "two", "ready", is_ready).await;
    let models = get(&stage.coderd, "/api/experimental/chats/model-configs").await;
    let default: Vec<&Value> =
        models.as_array().unwrap().iter().filter(|it| it["is_default"] == true).collect();
    assert_eq!((default.len(), &default[0]["id"]), (1, &two["status"]["id"]));
    let one = stage.look_again("CoderAIModel", "one").await;
    assert!(is_ready(&one), "{one:#}");
    for object in [&one, &two] {
        stage.delete("CoderAIModel", object["metadata"]["name"].as_str().unwrap()).await;
        stage.gone(object).await;
    }
    assert_eq!(get(&stage.coderd, "/api/experimental/chats/model-configs").await, json!([]));
}

#[tokio::test]
async fn command_line_takes_keys_from_the_files_and_compares_their_masks() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Shipped).await.unwrap();
    let folder = Folder::new("ai");
    let secret = |key: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ai-keys"}, "stringData": {"anthropic": key}});
    let model = object(
        "CoderAIModel",
        "claude",
        json!({"provider": "anthropic", "model": "claude", "contextLimit": 1000}),
    );
    let write = |name: &str, documents: &[Value]| {
        let documents: Vec<String> = documents.iter().map(Value::to_string).collect();
        folder.write(name, &documents.join("\n---\n"))
    };
    let set = write("set.yaml", &[secret(FIRST), anthropic(true), model.clone()]);
    let mut told = run(&coderd, &["apply", "--yes", "-f", &set], 0).await;
    told += &run(&coderd, &["verify", "-f", &set], 0).await;
    // A value that is given wins over the files, and another mask is a difference.
    let given = format!("ai-keys/anthropic=file:{}", folder.write("key", SECOND));
    told += &run(&coderd, &["plan", "--exit-code", "-o", "json", "--secret", &given, "-f", &set], 3).await;
    told += &run(&coderd, &["apply", "--yes", "--secret", &given, "-f", &set], 0).await;
    assert_eq!(get(&coderd, PROVIDER).await["api_keys"][0]["masked"], "key-...wxyz");
    let bare = write("bare.yaml", &[anthropic(true), model]);
    told += &run(&coderd, &["plan", "-f", &bare], 5).await;
    assert!(told.contains("Secret ai-keys cannot be read"), "{told}");
    let both = [model_with_default("claude"), model_with_default("rival")];
    told += &run(&coderd, &["plan", "-f", &write("both.yaml", &both)], 2).await;
    assert!(told.contains("only one CoderAIModel of a deployment can set default: true"), "{told}");
    for secret in [FIRST, SECOND] {
        secrecy::hides(&told, "a key", secret.as_bytes());
    }
}

fn model_with_default(name: &str) -> Value {
    object(
        "CoderAIModel",
        name,
        json!({"provider": "anthropic", "model": name, "contextLimit": 1000, "default": true}),
    )
}
