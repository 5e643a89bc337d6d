//! Coder's `model_config` object, compared as Coder keeps it. Pure.

use serde_json::{Map, Value};

/// The settings that Coder keeps; all others are dropped without a word. What is behind `*` is free.
const KNOWN: [&str; 78] = [
    "cost.cache_read_price_per_million_tokens",
    "cost.cache_write_price_per_million_tokens",
    "cost.input_price_per_million_tokens",
    "cost.output_price_per_million_tokens",
    "frequency_penalty",
    "max_output_tokens",
    "presence_penalty",
    "provider_options.anthropic.allowed_domains",
    "provider_options.anthropic.blocked_domains",
    "provider_options.anthropic.context_1m_enabled",
    "provider_options.anthropic.disable_parallel_tool_use",
    "provider_options.anthropic.send_reasoning",
    "provider_options.anthropic.thinking.budget_tokens",
    "provider_options.anthropic.thinking_display",
    "provider_options.anthropic.web_search_enabled",
    "provider_options.google.cached_content",
    "provider_options.google.safety_settings.category",
    "provider_options.google.safety_settings.threshold",
    "provider_options.google.thinking_config.include_thoughts",
    "provider_options.google.thinking_config.thinking_budget",
    "provider_options.google.threshold",
    "provider_options.google.web_search_enabled",
    "provider_options.openai.allowed_domains",
    "provider_options.openai.include",
    "provider_options.openai.instructions",
    "provider_options.openai.log_probs",
    "provider_options.openai.logit_bias.*",
    "provider_options.openai.max_completion_tokens",
    "provider_options.openai.max_tool_calls",
    "provider_options.openai.metadata.*",
    "provider_options.openai.parallel_tool_calls",
    "provider_options.openai.prediction.*",
    "provider_options.openai.prompt_cache_key",
    "provider_options.openai.reasoning_summary",
    "provider_options.openai.safety_identifier",
    "provider_options.openai.search_context_size",
    "provider_options.openai.service_tier",
    "provider_options.openai.store",
    "provider_options.openai.strict_json_schema",
    "provider_options.openai.structured_outputs",
    "provider_options.openai.text_verbosity",
    "provider_options.openai.top_log_probs",
    "provider_options.openai.user",
    "provider_options.openai.web_search_enabled",
    "provider_options.openaicompat.user",
    "provider_options.openrouter.extra_body.*",
    "provider_options.openrouter.include_usage",
    "provider_options.openrouter.log_probs",
    "provider_options.openrouter.logit_bias.*",
    "provider_options.openrouter.parallel_tool_calls",
    "provider_options.openrouter.provider.allow_fallbacks",
    "provider_options.openrouter.provider.data_collection",
    "provider_options.openrouter.provider.ignore",
    "provider_options.openrouter.provider.only",
    "provider_options.openrouter.provider.order",
    "provider_options.openrouter.provider.quantizations",
    "provider_options.openrouter.provider.require_parameters",
    "provider_options.openrouter.provider.sort",
    "provider_options.openrouter.reasoning.enabled",
    "provider_options.openrouter.reasoning.exclude",
    "provider_options.openrouter.reasoning.max_tokens",
    "provider_options.openrouter.user",
    "provider_options.vercel.extra_body.*",
    "provider_options.vercel.logit_bias.*",
    "provider_options.vercel.logprobs",
    "provider_options.vercel.parallel_tool_calls",
    "provider_options.vercel.providerOptions.models",
    "provider_options.vercel.providerOptions.order",
    "provider_options.vercel.reasoning.enabled",
    "provider_options.vercel.reasoning.exclude",
    "provider_options.vercel.reasoning.max_tokens",
    "provider_options.vercel.top_logprobs",
    "provider_options.vercel.user",
    "reasoning_effort.default",
    "reasoning_effort.max",
    "temperature",
    "top_k",
    "top_p",
];

/// The settings of the first level.
pub(super) fn known() -> Vec<&'static str> {
    let mut known: Vec<&str> = KNOWN.iter().filter_map(|it| it.split('.').next()).collect();
    known.dedup();
    known
}

/// The path of the first setting that Coder does not know.
pub(super) fn unknown(config: &Map<String, Value>) -> Option<String> {
    unknown_below("", config)
}

fn unknown_below(path: &str, settings: &Map<String, Value>) -> Option<String> {
    settings.iter().find_map(|(key, value)| {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let rest = |it: &&str| it.strip_prefix(path.as_str()).map(str::to_owned);
        let known: Vec<String> =
            KNOWN.iter().filter_map(rest).filter(|it| it.is_empty() || it.starts_with('.')).collect();
        if known.is_empty() {
            return Some(path);
        }
        if known == [".*"] {
            return None;
        }
        match value {
            Value::Object(below) => unknown_below(&path, below),
            Value::Array(items) => {
                items.iter().filter_map(Value::as_object).find_map(|it| unknown_below(&path, it))
            }
            _ => None,
        }
    })
}

/// Whether both are the same to Coder: without what is null or empty, and with prices as decimals in texts.
pub(super) fn is_same(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    is_same_object(one, other)
}

fn is_same_object(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    let keys = one.keys().chain(other.keys());
    keys.into_iter().all(|it| {
        let (one, other) = (one.get(it).unwrap_or(&Value::Null), other.get(it).unwrap_or(&Value::Null));
        is_same_value(one, other)
    })
}

fn is_same_value(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => is_same_object(one, other),
        (Value::Object(fields), Value::Null) | (Value::Null, Value::Object(fields)) => {
            is_same_object(fields, &Map::new())
        }
        (Value::Array(items), Value::Null) | (Value::Null, Value::Array(items)) => items.is_empty(),
        (Value::Number(_), Value::Number(_) | Value::String(_)) | (Value::String(_), Value::Number(_)) => {
            number(one).is_some() && number(one) == number(other)
        }
        (one, other) => one == other,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn same(one: &Value, other: &Value) -> bool {
        is_same(one.as_object().unwrap(), other.as_object().unwrap())
    }

    #[test]
    fn settings_are_the_same_as_coder_keeps_them() {
        let declared = json!({"temperature": 1, "cost": {"input_price_per_million_tokens": 3.5}, "top_p": null,
            "provider_options": {"anthropic": {}}});
        let found = json!({"temperature": 1.0, "cost": {"input_price_per_million_tokens": "3.5"}});
        assert!(same(&declared, &found) && same(&found, &declared));
        assert!(same(&json!({}), &json!({})));
        for other in [json!({"temperature": 2}), json!({}), json!({"temperature": 1, "top_k": 3})] {
            assert!(!same(&declared, &other), "{other}");
        }
    }

    #[test]
    fn unknown_setting_is_found() {
        let config = |it: Value| it.as_object().unwrap().clone();
        for (settings, path) in [
            (json!({"temperature": 1, "temprature": 2}), Some("temprature")),
            (
                json!({"cost": {}, "provider_options": {"openai": {"metadata": {"team": {"name": "a"}}}}}),
                None,
            ),
            (
                json!({"provider_options": {"anthropic": {"thinking": {"budget": 1}}}}),
                Some("provider_options.anthropic.thinking.budget"),
            ),
            (
                json!({"provider_options": {"google": {"safety_settings": [{"category": "a"}, {"level": 1}]}}}),
                Some("provider_options.google.safety_settings.level"),
            ),
            (json!({"temperature": {"value": 1}}), Some("temperature.value")),
            (json!({"top": 1}), Some("top")),
        ] {
            assert_eq!(unknown(&config(settings)).as_deref(), path);
        }
        assert!(known().contains(&"provider_options") && known().len() == 9);
    }
}
