//! A manifest against the definition of its kind, offline: fields nobody knows, wrong types, words that are not among
//! those allowed, and then its rules.
//!
//! It reads the same definitions that a cluster gets, so there is one place that says what a manifest may hold.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

use super::{misfit::Misfit, rules::Rules, suggestion};

/// The definitions of all kinds. Rules are made ready when the first manifest of their kind comes.
pub(super) struct Definitions {
    kinds: BTreeMap<String, Definition>,
}

struct Definition {
    schema: JSONSchemaProps,
    rules: Option<Rules>,
}

impl Default for Definitions {
    fn default() -> Self {
        let schemas = api::crds().into_iter().filter_map(|crd| {
            let schema = crd.spec.versions.into_iter().next()?.schema?.open_api_v3_schema?;
            Some((crd.spec.names.kind, Definition { schema, rules: None }))
        });
        Self { kinds: schemas.collect() }
    }
}

impl Definitions {
    /// The kinds that there are.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.kinds.keys().map(String::as_str)
    }

    /// Everything in a manifest that its kind's definition does not allow.
    pub(super) fn check(&mut self, kind: &str, manifest: &Value) -> Vec<Misfit> {
        let Some(definition) = self.kinds.get_mut(kind) else { return Vec::new() };
        let mut misfits = Vec::new();
        if let Some(spec) = definition.schema.properties.as_ref().and_then(|it| it.get("spec")) {
            walk(spec, manifest.get("spec").unwrap_or(&Value::Null), "spec", &mut misfits);
        }
        if manifest.pointer("/metadata/name").and_then(Value::as_str).is_none_or(str::is_empty) {
            misfits.push(Misfit::new("metadata.name", "is missing"));
        }
        if !misfits.is_empty() {
            return misfits;
        }
        definition.rules.get_or_insert_with(|| Rules::new(&definition.schema)).check(manifest)
    }
}

fn walk(schema: &JSONSchemaProps, value: &Value, path: &str, misfits: &mut Vec<Misfit>) {
    let mut complain = |message: String| misfits.push(Misfit::new(path, message));
    let expected = schema.type_.as_deref().unwrap_or_default();
    if !expected.is_empty() && !is_a(expected, value) {
        let found = if value.is_null() { "nothing".to_owned() } else { value.to_string() };
        complain(format!("expected {}, found {}", article(expected), shorten(&found)));
        return;
    }
    if let Some(words) = &schema.enum_ {
        let words: Vec<&str> = words.iter().filter_map(|it| it.0.as_str()).collect();
        if let Some(word) = value.as_str().filter(|it| !words.contains(it)) {
            complain(format!("expected one of {}, found {word:?}", words.join(", ")));
        }
    }
    out_of_bounds(schema, value).into_iter().for_each(complain);
    if let (Some(list), Some(JSONSchemaPropsOrArray::Schema(items))) = (value.as_array(), &schema.items) {
        for (index, item) in list.iter().enumerate() {
            walk(items, item, &format!("{path}[{index}]"), misfits);
        }
    }
    if let Some(map) = value.as_object() {
        walk_object(schema, map, path, misfits);
    }
}

fn walk_object(
    schema: &JSONSchemaProps,
    map: &serde_json::Map<String, Value>,
    path: &str,
    misfits: &mut Vec<Misfit>,
) {
    for required in schema.required.iter().flatten().filter(|it| !map.contains_key(*it)) {
        misfits.push(Misfit::new(format!("{path}.{required}"), "is missing"));
    }
    let others = match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(others)) => Some(&**others),
        _ => None,
    };
    for (key, value) in map {
        let path = format!("{path}.{key}");
        let known = schema.properties.as_ref().and_then(|it| it.get(key)).or(others);
        if let Some(known) = known {
            walk(known, value, &path, misfits);
            continue;
        }
        if schema.x_kubernetes_preserve_unknown_fields == Some(true) {
            continue;
        }
        let known: Vec<&str> = schema.properties.iter().flatten().map(|(key, _)| key.as_str()).collect();
        let suggestion = suggestion::of(key, &known);
        let message = format!("is not a field of this kind; there are {}{suggestion}", known.join(", "));
        misfits.push(Misfit::new(path, message));
    }
}

fn out_of_bounds(schema: &JSONSchemaProps, value: &Value) -> Vec<String> {
    let mut messages = Vec::new();
    if let Some(text) = value.as_str() {
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(most) = schema.max_length.filter(|most| length > *most) {
            messages.push(format!("has {length} characters, and {most} are allowed"));
        }
        if let Some(least) = schema.min_length.filter(|least| length < *least) {
            messages.push(format!("has {length} characters, and {least} are needed"));
        }
    }
    if let Some(number) = value.as_f64() {
        if let Some(most) = schema.maximum.filter(|most| number > *most) {
            messages.push(format!("is {value}, and {most} is the most"));
        }
        if let Some(least) = schema.minimum.filter(|least| number < *least) {
            messages.push(format!("is {value}, and {least} is the least"));
        }
    }
    if let Some(items) = value.as_array() {
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        if let Some(most) = schema.max_items.filter(|most| length > *most) {
            messages.push(format!("has {length} items, and {most} are allowed"));
        }
        if let Some(least) = schema.min_items.filter(|least| length < *least) {
            messages.push(format!("has {length} items, and {least} are needed"));
        }
    }
    messages
}

fn is_a(expected: &str, value: &Value) -> bool {
    match expected {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn article(kind: &str) -> String {
    match kind {
        "array" => "a list".to_owned(),
        "object" => "a map".to_owned(),
        "integer" => "a whole number".to_owned(),
        "string" => "text".to_owned(),
        "boolean" => "true or false".to_owned(),
        other => other.to_owned(),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(spec: &Value) -> Vec<String> {
        let manifest = json!({"metadata": {"name": "a"}, "spec": spec});
        Definitions::default().check("CoderGroup", &manifest).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_field_that_nobody_knows_is_told_with_those_there_are() {
        let told = told(&json!({"controlPlaneRef": {"name": "main"}, "quota": 3}));
        assert!(
            matches!(&told[..], [one] if one.starts_with("spec.quota: is not a field") && one.contains("quotaAllowance")),
            "{told:?}"
        );
    }

    #[test]
    fn types_words_bounds_and_what_is_missing_are_told_with_their_path() {
        let told = told(
            &json!({"quotaAllowance": "many", "mode": "Watch", "members": ["a", 1], "displayName": "x".repeat(65)}),
        );
        assert_eq!(
            told,
            [
                "spec.controlPlaneRef: is missing",
                "spec.displayName: has 65 characters, and 64 are allowed",
                "spec.members[1]: expected text, found 1",
                "spec.mode: expected one of Enforce, Observe, found \"Watch\"",
                "spec.quotaAllowance: expected a whole number, found \"many\"",
            ]
        );
    }

    #[test]
    fn a_manifest_that_fits_has_no_misfit() {
        assert_eq!(
            told(&json!({"controlPlaneRef": {"name": "main"}, "members": [], "interval": "5m"})),
            [""; 0]
        );
    }
}
