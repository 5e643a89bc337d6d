//! Models of Coder Agents. Exactly one is the default, and coderd moves that by itself.

use std::cmp::Reverse;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    answer::{Answer, Handled, forbidden, not_found},
    body::{Fields, not_json, uuid},
    call::Call,
    rights::Right,
    state::{AiProvider, ModelConfig, State},
};

/// The settings that are kept.
const SETTINGS: [&str; 9] = [
    "max_output_tokens",
    "temperature",
    "top_p",
    "top_k",
    "presence_penalty",
    "frequency_penalty",
    "cost",
    "reasoning_effort",
    "provider_options",
];
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
const THRESHOLD: i64 = 70;

pub(crate) fn list(call: &mut Call<'_>) -> Handled {
    let sees_all = call.may(Right::ReadDeploymentConfig);
    let sorted = sorted(call.state);
    let visible = sorted.into_iter().filter(|it| sees_all || is_usable(call.state, it));
    Ok(Answer::ok(visible.map(shown).collect()))
}

pub(crate) fn create(call: &mut Call<'_>) -> Handled {
    if !call.may(Right::ManageDeployment) {
        return Err(forbidden());
    }
    let fields = call.fields("CreateChatModelConfigRequest")?;
    let Some(provider) = provider_id(&fields)? else {
        return Err(Answer::message(400, "AI provider ID is required."));
    };
    check_provider(call, provider)?;
    let model = fields.plain("model")?.trim().to_owned();
    if model.is_empty() {
        return Err(Answer::message(400, "Model is required."));
    }
    let context_limit = fields.integer("context_limit", "int64")?.unwrap_or_default();
    if context_limit <= 0 {
        return Err(Answer::message(400, "Context limit is required.")
            .detail("context_limit must be greater than zero."));
    }
    let is_default = flag(&fields, "is_default")?.unwrap_or_default();
    let mut created = ModelConfig {
        id: call.ids().uuid(),
        ai_provider_id: provider,
        model,
        display_name: fields.plain("display_name")?.trim().to_owned(),
        enabled: flag(&fields, "enabled")?.unwrap_or(true),
        is_default: false,
        context_limit,
        compression_threshold: threshold(&fields, THRESHOLD)?,
        model_config: settings(&fields)?.unwrap_or_default(),
        created_at: call.now,
        updated_at: call.now,
    };
    if is_default || !call.state.model_configs.values().any(|it| it.is_default) {
        unset_default(call.state);
        created.is_default = true;
    }
    let after = shown(&created);
    call.changed("chat_model_config", (created.id, &created.model), Value::Null, after.clone());
    call.state.model_configs.insert(created.id, created);
    Ok(Answer::created(after))
}

pub(crate) fn update(call: &mut Call<'_>) -> Handled {
    if !call.may(Right::ManageDeployment) {
        return Err(forbidden());
    }
    let id = path_id(call)?;
    let existing = call.state.model_configs.get(&id).cloned().ok_or_else(not_found)?;
    let fields = call.fields("UpdateChatModelConfigRequest")?;
    let provider = provider_id(&fields)?;
    if let Some(provider) = provider {
        check_provider(call, provider)?;
    }
    let text = |field: &str| -> Result<Option<String>, Answer> {
        let text = fields.plain(field)?.trim().to_owned();
        Ok(Some(text).filter(|it| !it.is_empty()))
    };
    let (model, display_name) = (text("model")?, text("display_name")?);
    let context_limit = fields.integer("context_limit", "int64")?;
    if context_limit.is_some_and(|it| it <= 0) {
        return Err(Answer::message(400, "Context limit must be greater than zero."));
    }
    let compression_threshold = threshold(&fields, existing.compression_threshold)?;
    let model_config = settings(&fields)?;
    let is_default = flag(&fields, "is_default")?;
    let provider_id = provider.unwrap_or(existing.ai_provider_id);
    if provider.is_some() || model.is_some() {
        let usable = call.state.ai_providers.get(&provider_id).is_some_and(|it| !it.deleted && it.enabled);
        if !usable {
            let detail = "execute transaction: chat provider is not configured";
            return Err(Answer::message(412, "Chat provider is not configured.").detail(detail));
        }
    }
    let before = shown(&existing);
    let mut changed = ModelConfig {
        ai_provider_id: provider_id,
        model: model.unwrap_or(existing.model),
        display_name: display_name.unwrap_or(existing.display_name),
        enabled: flag(&fields, "enabled")?.unwrap_or(existing.enabled),
        context_limit: context_limit.unwrap_or(existing.context_limit),
        compression_threshold,
        model_config: model_config.unwrap_or(existing.model_config),
        updated_at: call.now,
        ..existing
    };
    let was_default = changed.is_default;
    changed.is_default = is_default.unwrap_or(was_default);
    if changed.is_default && !was_default {
        unset_default(call.state);
    }
    call.state.model_configs.insert(id, changed);
    ensure_default(call, (was_default && is_default == Some(false)).then_some(id));
    let changed = call.state.model_configs.get(&id).cloned().ok_or_else(not_found)?;
    let after = shown(&changed);
    call.changed("chat_model_config", (id, &changed.model), before, after.clone());
    Ok(Answer::ok(after))
}

pub(crate) fn delete(call: &mut Call<'_>) -> Handled {
    if !call.may(Right::ManageDeployment) {
        return Err(forbidden());
    }
    let id = path_id(call)?;
    let deleted = call.state.model_configs.remove(&id).ok_or_else(not_found)?;
    call.changed("chat_model_config", (id, &deleted.model), shown(&deleted), Value::Null);
    ensure_default(call, None);
    Ok(Answer::empty(204))
}

fn path_id(call: &Call<'_>) -> Result<Uuid, Answer> {
    let wanted = call.parameter("modelConfig");
    uuid(wanted).map_err(|why| Answer::message(400, "Invalid chat model config ID.").detail(why))
}

fn provider_id(fields: &Fields) -> Result<Option<Uuid>, Answer> {
    let text = fields.text("ai_provider_id")?;
    text.map(|it| uuid(&it).map_err(|why| not_json(&why))).transpose()
}

fn flag(fields: &Fields, field: &str) -> Result<Option<bool>, Answer> {
    fields.has(field).then(|| fields.flag(field)).transpose()
}

fn check_provider(call: &Call<'_>, provider: Uuid) -> Result<(), Answer> {
    match call.state.ai_providers.get(&provider).filter(|it| !it.deleted) {
        None => Err(Answer::message(412, "AI provider is not configured.")),
        Some(AiProvider { enabled: false, .. }) => Err(Answer::message(412, "AI provider is disabled.")),
        Some(_) => Ok(()),
    }
}

fn threshold(fields: &Fields, fallback: i64) -> Result<i64, Answer> {
    let wanted = fields.integer("compression_threshold", "int32")?.unwrap_or(fallback);
    if (0..=100).contains(&wanted) {
        return Ok(wanted);
    }
    Err(Answer::message(400, "Invalid compression threshold.")
        .detail("context_compression_threshold must be between 0 and 100"))
}

/// The settings that were sent, without those that coderd does not know.
fn settings(fields: &Fields) -> Result<Option<Map<String, Value>>, Answer> {
    if !fields.has("model_config") {
        return Ok(None);
    }
    let mut sent = fields.object("model_config");
    sent.retain(|key, value| SETTINGS.contains(&key.as_str()) && !value.is_null());
    if let Some(effort) = sent.get("reasoning_effort") {
        check_effort(effort).map_err(|why| Answer::message(400, "Invalid model config.").detail(why))?;
    }
    Ok(Some(sent))
}

fn check_effort(effort: &Value) -> Result<(), String> {
    let place = |field: &str| effort.get(field).and_then(Value::as_str);
    let (Some(default), Some(max)) = (place("default"), place("max")) else {
        return Err("reasoning_effort.default and reasoning_effort.max must both be set".to_owned());
    };
    let known = |field: &str, value: &str| {
        let found = EFFORTS.iter().position(|it| *it == value);
        found.ok_or_else(|| {
            format!("reasoning_effort.{field} \"{value}\" must be one of {}", EFFORTS.join(", "))
        })
    };
    if known("default", default)? <= known("max", max)? {
        return Ok(());
    }
    Err("reasoning_effort.default must not exceed reasoning_effort.max".to_owned())
}

fn unset_default(state: &mut State) {
    state.model_configs.values_mut().for_each(|it| it.is_default = false);
}

fn is_usable(state: &State, model: &ModelConfig) -> bool {
    let provider = state.ai_providers.get(&model.ai_provider_id);
    model.enabled && provider.is_some_and(|it| it.enabled && !it.deleted)
}

/// Makes another model the default where none is: one that can be used, if there is one.
fn ensure_default(call: &mut Call<'_>, excluded: Option<Uuid>) {
    if call.state.model_configs.values().any(|it| it.is_default) {
        return;
    }
    let sorted = sorted(call.state);
    let allowed = || sorted.iter().filter(|it| Some(it.id) != excluded);
    let chosen = allowed()
        .find(|it| is_usable(call.state, it))
        .or_else(|| allowed().next())
        .or_else(|| sorted.first());
    let chosen = chosen.map(|it| it.id);
    let now = call.now;
    if let Some(model) = chosen.and_then(|it| call.state.model_configs.get_mut(&it)) {
        model.is_default = true;
        model.updated_at = now;
    }
}

/// All models in coderd's order.
fn sorted(state: &State) -> Vec<&ModelConfig> {
    let mut models: Vec<&ModelConfig> = state.model_configs.values().collect();
    models.sort_by_key(|it| {
        let provider = state.ai_providers.get(&it.ai_provider_id).map(|it| it.provider_type.clone());
        (provider, it.model.clone(), Reverse(it.updated_at), Reverse(it.id))
    });
    models
}

fn shown(model: &ModelConfig) -> Value {
    let mut shown = json!({
        "id": model.id,
        "ai_provider_id": model.ai_provider_id,
        "model": model.model,
        "display_name": model.display_name,
        "enabled": model.enabled,
        "is_default": model.is_default,
        "context_limit": model.context_limit,
        "compression_threshold": model.compression_threshold,
        "created_at": model.created_at,
        "updated_at": model.updated_at,
    });
    if !model.model_config.is_empty() {
        shown["model_config"] = json!(model.model_config);
    }
    let max = model.model_config.get("reasoning_effort").and_then(|it| it["max"].as_str());
    if let Some(last) = max.and_then(|max| EFFORTS.iter().position(|it| *it == max)) {
        shown["reasoning_efforts"] = json!(EFFORTS[..=last]);
    }
    shown
}
