//! Coder's `model_config` object, compared as Coder keeps it. Pure.

use serde_json::{Map, Value};

/// The settings that Coder 2.34 to 2.36 keep; all others are dropped.
pub(super) const KNOWN: [&str; 9] = [
    "cost",
    "frequency_penalty",
    "max_output_tokens",
    "presence_penalty",
    "provider_options",
    "reasoning_effort",
    "temperature",
    "top_k",
    "top_p",
];

/// The first setting that Coder does not know.
pub(super) fn unknown(config: &Map<String, Value>) -> Option<&str> {
    config.keys().map(String::as_str).find(|it| !KNOWN.contains(it))
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
        assert_eq!(unknown(&config(json!({"temperature": 1, "temprature": 2}))), Some("temprature"));
        assert_eq!(unknown(&config(json!({"cost": {}}))), None);
    }
}
