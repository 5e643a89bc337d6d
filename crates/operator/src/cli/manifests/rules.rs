//! A manifest against the CEL rules of its kind, offline.
//!
//! The rules are those of the definitions that a cluster gets, evaluated one by one; none of them is written down here a
//! second time. Rules about a change (`oldSelf`) need what was there before, and are the API server's alone.

use std::collections::HashMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube_cel::{CompiledSchema, ErrorKind, ValidationError, compile_schema, validate_compiled};
use serde_json::{Value, json};

use super::misfit::Misfit;

/// The key under which a schema holds its rules.
const RULES: &str = "x-kubernetes-validations";

/// The rules of one kind, ready to be asked.
pub(super) struct Rules {
    compiled: CompiledSchema,
    /// What each rule says to a person.
    messages: HashMap<String, String>,
}

impl Rules {
    pub(super) fn new(schema: &JSONSchemaProps) -> Self {
        // A schema is plain data: there is nothing in it that cannot be written.
        let mut schema = serde_json::to_value(schema).unwrap_or_default();
        let mut messages = HashMap::new();
        prepare(&mut schema, &mut messages);
        Self { compiled: compile_schema(&schema), messages }
    }

    /// Every rule that a manifest breaks. The manifest has to fit the schema: rules count on that.
    pub(super) fn check(&self, manifest: &Value) -> Vec<Misfit> {
        let broken = validate_compiled(&self.compiled, manifest, None).err();
        broken.into_iter().flatten().map(|it| self.misfit(it)).collect()
    }

    fn misfit(&self, error: ValidationError) -> Misfit {
        let path = if error.field_path.is_empty() { "metadata.name".to_owned() } else { error.field_path };
        // What cannot be evaluated (a text that is no regular expression) breaks the rule as well, in the rule's words.
        let message = match error.kind {
            ErrorKind::EvaluationError => self.messages.get(&error.rule).cloned(),
            _ => None,
        };
        Misfit::new(path, message.unwrap_or(error.message))
    }
}

/// Makes rules of patterns, which are rules with fewer words, and collects what the rules say.
fn prepare(schema: &mut Value, messages: &mut HashMap<String, String>) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(pattern) = fields.get("pattern").and_then(Value::as_str) {
        let rule = json!({"rule": format!("self.matches({})", literal(pattern)), "message": format!("must match {pattern}")});
        match fields.get_mut(RULES).and_then(Value::as_array_mut) {
            Some(rules) => rules.insert(0, rule),
            None => drop(fields.insert(RULES.to_owned(), json!([rule]))),
        }
    }
    for rule in fields.get(RULES).and_then(Value::as_array).into_iter().flatten() {
        if let (Some(rule), Some(message)) = (rule["rule"].as_str(), rule["message"].as_str()) {
            messages.insert(rule.to_owned(), message.to_owned());
        }
    }
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|it| prepare(it, messages));
    }
    for inner in ["items", "additionalProperties"] {
        fields.get_mut(inner).into_iter().for_each(|it| prepare(it, messages));
    }
}

/// A text as CEL writes it.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::{super::schema::Definitions, *};

    fn told(definitions: &mut Definitions, kind: &str, name: &str, spec: &Value) -> Vec<String> {
        let mut manifest = json!({"metadata": {"name": name}, "spec": spec});
        if kind != "CoderControlPlane" {
            manifest["spec"]["controlPlaneRef"] = json!({"name": "main"});
        }
        definitions.check(kind, &manifest).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_rule_can_be_evaluated() {
        for crd in api::crds() {
            let versions = crd.spec.versions.iter().filter_map(|it| it.schema.as_ref());
            for schema in versions.filter_map(|it| it.open_api_v3_schema.as_ref()) {
                assert!(!Rules::new(schema).compiled.has_errors(), "{}", crd.spec.names.kind);
            }
        }
    }

    #[test]
    fn what_the_api_server_would_refuse_is_refused_at_the_same_field_and_in_the_same_words() {
        let definitions = &mut Definitions::default();
        let url = |url: &str| json!({"external": {"url": url, "credentialsSecretRef": {"name": "token"}}});
        let everyone = json!({"name": "Everyone", "members": []});
        let banner = json!({"announcementBanners": [{"message": "x", "backgroundColor": "green"}]});
        for (kind, spec, path, words) in [
            ("CoderOrganization", json!({"name": "team alpha"}), "name", "single hyphens"),
            ("CoderOrganization", json!({"name": "new"}), "name", "which Coder reserves"),
            ("CoderGroup", json!({"displayName": "ä".repeat(33)}), "displayName", "64 bytes"),
            ("CoderGroup", json!({"displayName": " x"}), "displayName", "without blanks at its ends"),
            ("CoderGroup", everyone, "members", "everybody in the organization is in it"),
            ("CoderGroup", json!({"interval": "9s"}), "interval", "must be at least 10s"),
            ("CoderGroup", json!({"interval": "5 minutes"}), "interval", "must match ^"),
            ("CoderGroupSync", json!({"regexFilter": "^(/a"}), "regexFilter", "must be a regular expression"),
            ("CoderGroupSync", json!({"mapping": {"/a": ["a b"]}}), "mapping./a[0]", "must match ^"),
            ("CoderAppearance", banner, "announcementBanners[0].backgroundColor", "six hexadecimal digits"),
            (
                "CoderControlPlane",
                url("coder.example.com"),
                "external.url",
                "begins with http:// or https://",
            ),
            ("CoderControlPlane", url("https://me:word@x.example"), "external.url", "an address alone"),
            (
                "CoderControlPlane",
                json!({"licenseSecretRef": {"name": "a"}, "licenseSecretRefs": [{"name": "a"}]}),
                "licenseSecretRefs",
                "must name every licence once",
            ),
            ("CoderProvisioner", json!({"tags": {"owner": "x"}}), "tags", "is set by Coder"),
            ("CoderProvisioner", json!({"tags": {"zone": ""}}), "tags", "drops those that are empty"),
            ("CoderProvisioner", json!({"key": {"name": "PSK"}}), "key.name", "keys of Coder itself"),
            ("CoderProvisioner", json!({"key": {"name": "schlüssel"}}), "key.name", "ASCII"),
            ("CoderProvisionerKey", json!({"name": "schlüssel"}), "name", "must be letters and digits"),
            ("CoderProvisioner", json!({"extraArgs": ["-O", "a"]}), "extraArgs", "the key decides"),
            (
                "CoderProvisionerKey",
                json!({"rotation": {"every": "1h"}}),
                "rotation.overlap",
                "longer than every",
            ),
        ] {
            let told = told(definitions, kind, "mistake", &spec);
            let fits = |it: &String| it.starts_with(&format!("spec.{path}: ")) && it.contains(words);
            assert!(told.iter().any(fits), "{kind} {spec}: {told:?}");
        }
    }

    #[test]
    fn an_object_whose_own_name_cannot_be_coders_must_say_another() {
        let definitions = &mut Definitions::default();
        let told_of = told(definitions, "CoderOrganization", "team.alpha", &json!({}));
        assert!(
            matches!(&told_of[..], [one] if one.starts_with("metadata.name: ") && one.contains("set spec.name")),
            "{told_of:?}"
        );
        assert_eq!(told(definitions, "CoderOrganization", "team.alpha", &json!({"name": "alpha"})), [""; 0]);
    }

    #[test]
    fn a_rule_about_a_change_says_nothing_without_what_was_there_before() {
        let definitions = &mut Definitions::default();
        assert_eq!(told(definitions, "CoderGroup", "a", &json!({"organization": "alpha"})), [""; 0]);
    }
}
