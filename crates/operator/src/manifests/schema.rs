//! A manifest against the schema of its kind, offline: fields nobody knows, wrong types, words that are not among those allowed.
//!
//! It reads the same definitions that a cluster gets, so there is one place that says what a manifest may hold. Rules in
//! CEL are the API server's; what they keep out and Coder would refuse, the engine refuses too.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::Value;

/// Something that does not fit, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    path: Vec<String>,
    message: String,
}

impl Misfit {
    /// The keys on the way there.
    pub(super) fn path(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path.join("."), self.message)
    }
}

/// Everything in a manifest that its kind's schema does not allow.
pub(super) fn check(kind: &str, manifest: &Value) -> Vec<Misfit> {
    let mut misfits = Vec::new();
    for crd in api::crds().into_iter().filter(|it| it.spec.names.kind == kind) {
        let schema = crd.spec.versions.into_iter().next().and_then(|it| it.schema?.open_api_v3_schema);
        let spec = schema.and_then(|it| it.properties?.remove("spec"));
        if let Some(spec) = spec {
            let mut path = vec!["spec".to_owned()];
            walk(&spec, manifest.get("spec").unwrap_or(&Value::Null), &mut path, &mut misfits);
        }
    }
    if manifest.pointer("/metadata/name").and_then(Value::as_str).is_none_or(str::is_empty) {
        misfits.push(Misfit {
            path: vec!["metadata".to_owned(), "name".to_owned()],
            message: "is missing".to_owned(),
        });
    }
    misfits
}

fn walk(schema: &JSONSchemaProps, value: &Value, path: &mut Vec<String>, misfits: &mut Vec<Misfit>) {
    let mut complain =
        |path: &[String], message: String| misfits.push(Misfit { path: path.to_owned(), message });
    let expected = schema.type_.as_deref().unwrap_or_default();
    if !expected.is_empty() && !is_a(expected, value) {
        let found = if value.is_null() { "nothing".to_owned() } else { value.to_string() };
        complain(path, format!("expected {}, found {}", article(expected), shorten(&found)));
        return;
    }
    if let Some(words) = &schema.enum_ {
        let words: Vec<&str> = words.iter().filter_map(|it| it.0.as_str()).collect();
        if let Some(word) = value.as_str().filter(|it| !words.contains(it)) {
            complain(path, format!("expected one of {}, found {word:?}", words.join(", ")));
        }
    }
    for message in out_of_bounds(schema, value) {
        complain(path, message);
    }
    if let (Some(list), Some(JSONSchemaPropsOrArray::Schema(items))) = (value.as_array(), &schema.items) {
        for (index, item) in list.iter().enumerate() {
            within(path, format!("[{index}]"), |path| walk(items, item, path, misfits));
        }
    }
    if let Some(map) = value.as_object() {
        walk_object(schema, map, path, misfits);
    }
}

fn walk_object(
    schema: &JSONSchemaProps,
    map: &serde_json::Map<String, Value>,
    path: &mut Vec<String>,
    misfits: &mut Vec<Misfit>,
) {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrBool;
    for required in schema.required.iter().flatten().filter(|it| !map.contains_key(*it)) {
        let path = [path.as_slice(), std::slice::from_ref(required)].concat();
        misfits.push(Misfit { path, message: "is missing".to_owned() });
    }
    let others = match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(others)) => Some(&**others),
        _ => None,
    };
    for (key, value) in map {
        let known = schema.properties.as_ref().and_then(|it| it.get(key)).or(others);
        if let Some(known) = known {
            within(path, key.clone(), |path| walk(known, value, path, misfits));
            continue;
        }
        let known: Vec<&str> = schema.properties.iter().flatten().map(|(key, _)| key.as_str()).collect();
        let path = [path.as_slice(), std::slice::from_ref(key)].concat();
        let message = format!("is not a field of this kind; there are {}", known.join(", "));
        misfits.push(Misfit { path, message });
    }
}

fn within(path: &mut Vec<String>, key: String, walk: impl FnOnce(&mut Vec<String>)) {
    path.push(key);
    walk(path);
    path.pop();
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
        check("CoderGroup", &manifest).iter().map(ToString::to_string).collect()
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
                "spec.members.[1]: expected text, found 1",
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
