//! AI providers and models: keys, settings of Bedrock, and the one default.

use serde_json::{Value, json};

use crate::side::{MEMBER, OWNER, Side};

const PROVIDERS: &str = "/api/v2/ai/providers";
const MODELS: &str = "/api/experimental/chats/model-configs";
const KEY: &str = "key-0123456789-0123456789";
const STRANGER: &str = "00000000-0000-0000-0000-000000000009";

pub(super) async fn providers(side: &mut Side) {
    side.get(OWNER, PROVIDERS).await;
    side.get(MEMBER, PROVIDERS).await;
    let base = json!({"type": "anthropic", "name": "anthropic", "base_url": "https://api.anthropic.com"});
    let with = |field: &str, value: Value| {
        let mut body = base.clone();
        body[field] = value;
        body
    };
    let refused = [
        json!({}),
        with("type", json!("")),
        with("type", json!("other")),
        with("name", json!("")),
        with("name", json!("Anthropic")),
        with("name", json!("a--b")),
        with("base_url", json!("")),
        with("base_url", json!("api.anthropic.com")),
        with("base_url", json!("ftp://api.anthropic.com")),
        with("api_keys", json!([""])),
        with("api_keys", json!([" spaced"])),
        with("settings", json!({})),
        with("settings", json!({"_type": "other"})),
        with("settings", json!({"_type": "bedrock", "_version": 2})),
    ];
    for body in refused {
        side.post(OWNER, PROVIDERS, body).await;
    }
    side.post(MEMBER, PROVIDERS, base.clone()).await;
    let mut wanted = with("api_keys", json!([KEY]));
    wanted["display_name"] = json!("Anthropic");
    wanted["icon"] = json!("/icon/anthropic.svg");
    let id = side.post(OWNER, PROVIDERS, wanted).await.text("id");
    let duplicate = side.post(OWNER, PROVIDERS, base).await;
    assert_eq!(duplicate.status, 409);
    for path in [id.as_str(), "anthropic", "Anthropic", "nowhere", STRANGER] {
        side.get(OWNER, &format!("{PROVIDERS}/{path}")).await;
        side.get(MEMBER, &format!("{PROVIDERS}/{path}")).await;
    }
    side.get(OWNER, PROVIDERS).await;
}

pub(super) async fn keys(side: &mut Side) {
    let path = format!("{PROVIDERS}/anthropic");
    let key = side.get(OWNER, &path).await.body["api_keys"][0]["id"].clone();
    let changes = [
        json!({}),
        json!({"name": "other", "type": "openai"}),
        json!({"enabled": null}),
        json!({"enabled": true, "display_name": "", "icon": "", "base_url": "https://proxy.test/"}),
        json!({"base_url": ""}),
        json!({"api_keys": [{}]}),
        json!({"api_keys": [{"id": key, "api_key": "both"}]}),
        json!({"api_keys": [{"api_key": ""}]}),
        json!({"api_keys": [{"api_key": " spaced"}]}),
        json!({"api_keys": [{"id": key}, {"id": key}]}),
        json!({"api_keys": [{"id": STRANGER}]}),
        json!({"api_keys": [{"id": key}, {"api_key": "short"}]}),
        json!({"api_keys": [{"api_key": "0123456789"}]}),
        json!({"api_keys": [{"api_key": "abc"}]}),
        json!({"api_keys": []}),
        json!({"settings": {"_type": "bedrock", "_version": 1, "region": "eu"}, "api_keys": [{"api_key": KEY}]}),
        json!({"api_keys": [{"api_key": KEY}]}),
    ];
    for change in changes {
        side.patch(OWNER, &path, change).await;
    }
    side.patch(MEMBER, &path, json!({"enabled": false})).await;
    side.patch(OWNER, &format!("{PROVIDERS}/nowhere"), json!({"enabled": false})).await;
    side.delete(MEMBER, &path).await;
}

pub(super) async fn bedrock(side: &mut Side) {
    let settings = |more: Value| {
        let mut settings = json!({"_type": "bedrock", "_version": 1});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        settings
    };
    let body = |settings: Value| json!({"type": "bedrock", "name": "bedrock", "base_url": "https://bedrock.test", "settings": settings});
    let refused = [
        json!({"type": "bedrock", "name": "bedrock", "base_url": "https://bedrock.test"}),
        body(settings(json!({"model": "m"}))),
        body(settings(json!({"region": "eu", "protocol": "other"}))),
        body(settings(json!({"role_arn": "arn:aws:iam::1:role/a", "protocol": "mantle"}))),
        body(settings(json!({"role_arn": "role"}))),
        body(settings(json!({"role_arn": "arn:aws:s3:::bucket"}))),
        body(settings(json!({"role_arn": "arn:aws:iam::1:user/a"}))),
        body(settings(json!({"region": "eu", "external_id": "mine"}))),
        json!({"type": "openai", "name": "other", "base_url": "https://o.test", "settings": settings(json!({"region": "eu"}))}),
        json!({"type": "copilot", "name": "copilot", "base_url": "https://c.test", "api_keys": [KEY]}),
        json!({"type": "bedrock", "name": "bedrock", "base_url": "https://b.test", "api_keys": [KEY],
            "settings": settings(json!({"region": "eu"}))}),
    ];
    for body in refused {
        side.post(OWNER, PROVIDERS, body).await;
    }
    let wanted =
        settings(json!({"region": "eu-central-1", "model": "m", "small_fast_model": "s", "unknown": 1,
        "access_key": "AKIA", "access_key_secret": "hidden"}));
    side.post(OWNER, PROVIDERS, body(wanted)).await;
    let path = format!("{PROVIDERS}/bedrock");
    for change in [
        json!({"region": "us-gov-west-1"}),
        json!({"region": "eu", "protocol": "mantle"}),
        json!({"access_key": ""}),
    ] {
        side.patch(OWNER, &path, json!({"settings": settings(change)})).await;
    }
    side.patch(OWNER, &path, json!({"settings": null})).await;
    side.patch(OWNER, &path, json!({"settings": {}})).await;
    side.patch(OWNER, &path, json!({"api_keys": [{"api_key": KEY}]})).await;
    side.get(OWNER, PROVIDERS).await;
    side.delete(OWNER, &path).await;
    side.get(OWNER, &path).await;
    side.delete(OWNER, &path).await;
}

pub(super) async fn models(side: &mut Side) {
    side.get(OWNER, MODELS).await;
    let provider = side.get(OWNER, &format!("{PROVIDERS}/anthropic")).await.text("id");
    let off = json!({"type": "openai", "name": "off", "base_url": "https://api.openai.com"});
    let disabled = side.post(OWNER, PROVIDERS, off).await.text("id");
    let body = |model: &str| json!({"ai_provider_id": provider, "model": model, "context_limit": 1000});
    let with = |field: &str, value: Value| {
        let mut body = body("one");
        body[field] = value;
        body
    };
    let refused = [
        json!({}),
        with("ai_provider_id", json!(STRANGER)),
        with("ai_provider_id", json!(disabled)),
        with("ai_provider_id", json!("no")),
        with("model", json!(" ")),
        with("context_limit", json!(0)),
        with("compression_threshold", json!(101)),
        with("model_config", json!({"reasoning_effort": {"default": "high"}})),
        with("model_config", json!({"reasoning_effort": {"default": "high", "max": "low"}})),
        with("model_config", json!({"reasoning_effort": {"default": "huge", "max": "max"}})),
    ];
    for body in refused {
        side.post(OWNER, MODELS, body).await;
    }
    side.post(MEMBER, MODELS, body("one")).await;
    let mut one = with(
        "model_config",
        json!({"max_output_tokens": 32, "unknown": 1, "reasoning_effort": {"default": "low", "max": "high"}}),
    );
    one["display_name"] = json!("One");
    one["is_default"] = json!(false);
    let one = side.post(OWNER, MODELS, one).await.text("id");
    let two = side.post(OWNER, MODELS, body("two")).await.text("id");
    side.post(OWNER, MODELS, body("two")).await;
    side.get(OWNER, MODELS).await;
    side.get(MEMBER, MODELS).await;
    let (one, two) = (format!("{MODELS}/{one}"), format!("{MODELS}/{two}"));
    let changes = [
        (&two, json!({"is_default": true})),
        (&one, json!({"is_default": true})),
        (&one, json!({"is_default": false})),
        (&two, json!({"model": "", "display_name": "", "compression_threshold": 5})),
        (&two, json!({"ai_provider_id": disabled})),
        (&two, json!({"context_limit": 0})),
        (&one, json!({"model_config": {}})),
        (&one, json!({"enabled": false, "display_name": "First", "model": "first"})),
    ];
    for (path, change) in changes {
        side.patch(OWNER, path, change).await;
        side.get(OWNER, MODELS).await;
    }
    side.patch(MEMBER, &one, json!({"enabled": true})).await;
    side.patch(OWNER, &format!("{MODELS}/{STRANGER}"), json!({"enabled": true})).await;
    side.patch(OWNER, &format!("{MODELS}/no"), json!({})).await;
    side.delete(MEMBER, &one).await;
    side.patch(OWNER, &format!("{PROVIDERS}/anthropic"), json!({"enabled": false})).await;
    side.patch(OWNER, &one, json!({"model": "again"})).await;
    side.patch(OWNER, &one, json!({"enabled": true})).await;
    side.delete(OWNER, &two).await;
    side.delete(OWNER, &two).await;
    side.get(OWNER, MODELS).await;
    side.get(MEMBER, MODELS).await;
    for model in side.get(OWNER, MODELS).await.body.as_array().unwrap().clone() {
        side.delete(OWNER, &format!("{MODELS}/{}", model["id"].as_str().unwrap())).await;
    }
    for name in ["anthropic", "off"] {
        side.delete(OWNER, &format!("{PROVIDERS}/{name}")).await;
    }
}

/// Only what the client reads: the rest is long and other for each server.
pub(super) async fn server_config(side: &mut Side) {
    let path = "/api/v2/deployment/config";
    side.get(MEMBER, path).await;
    let shown = side.unrecorded(OWNER, path).await;
    let providers = shown["config"]["ai"]["bridge"]["providers"].as_array().map_or(0, Vec::len);
    let options = shown["options"].as_array().unwrap().iter();
    let is_seed = |it: &&Value| {
        let env = it["env"].as_str().unwrap_or_default();
        let is_set = ["flag", "env", "yaml"].contains(&it["value_source"].as_str().unwrap_or_default());
        is_set
            && env.ends_with("_KEY")
            && (env.starts_with("CODER_AI_GATEWAY_") || env.starts_with("CODER_AIBRIDGE_"))
    };
    side.transcript.note("seeded AI providers", &json!([providers, options.filter(is_seed).count()]));
}
