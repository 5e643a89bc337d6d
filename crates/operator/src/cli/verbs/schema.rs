//! `schema`: JSON schemas of the kinds, made of the definitions that a cluster gets.

use std::fs;

use anyhow::{Context as _, anyhow};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};

use crate::{
    args::Schema,
    cli::{
        exit::{Exit, Failure},
        terminal::print,
    },
};

/// The dialect of the schemas: the newest that editors and kubeconform both read.
const DIALECT: &str = "http://json-schema.org/draft-07/schema#";

pub(super) fn schema(args: &Schema) -> Result<Exit, Failure> {
    let kinds = kinds();
    if let Some(folder) = &args.folder {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        let write = |name: String, schema: &Value| {
            let path = folder.join(name);
            fs::write(&path, text(schema)).with_context(|| format!("write {}", path.display()))
        };
        for (kind, schema) in &kinds {
            write(format!("{}_{}.json", kind.to_lowercase(), api::VERSION), schema)?;
        }
        write("all.json".to_owned(), &all(&kinds))?;
        return Ok(Exit::Success);
    }
    let schema = match &args.kind {
        None => all(&kinds),
        Some(wanted) => {
            let found = kinds.iter().find(|(kind, _)| kind.eq_ignore_ascii_case(wanted));
            let known: Vec<&str> = kinds.iter().map(|(kind, _)| kind.as_str()).collect();
            let unknown = || Failure::usage(format!("no kind {wanted}: there are {}", known.join(", ")));
            found.ok_or_else(unknown)?.1.clone()
        }
    };
    print(&text(&schema)).map_err(|error| anyhow!(error))?;
    Ok(Exit::Success)
}

fn text(schema: &Value) -> String {
    format!("{schema:#}\n")
}

/// Every kind with its schema.
fn kinds() -> Vec<(String, Value)> {
    api::crds().iter().filter_map(of_kind).collect()
}

fn of_kind(crd: &CustomResourceDefinition) -> Option<(String, Value)> {
    let version = crd.spec.versions.first()?;
    let schema = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
    let kind = crd.spec.names.kind.clone();
    let mut schema = serde_json::to_value(schema).ok()?;
    convert(&mut schema);
    // The status is the operator's: a manifest has none.
    let fields = schema.get_mut("properties")?.as_object_mut()?;
    fields.remove("status");
    fields.insert("apiVersion".to_owned(), json!({"const": format!("{}/{}", crd.spec.group, version.name)}));
    fields.insert("kind".to_owned(), json!({"const": kind}));
    fields.insert("metadata".to_owned(), json!({"type": "object", "required": ["name"]}));
    schema["required"] = json!(["apiVersion", "kind", "metadata", "spec"]);
    schema["$schema"] = json!(DIALECT);
    schema["title"] = json!(kind);
    Some((kind, schema))
}

/// One schema for manifests of every kind. Documents of other groups pass: files hold them, too.
fn all(kinds: &[(String, Value)]) -> Value {
    let group = format!("{}/{}", api::GROUP, api::VERSION);
    let names: Vec<&String> = kinds.iter().map(|(kind, _)| kind).collect();
    let mut rules = vec![json!({
        "if": {"properties": {"apiVersion": {"const": group}}, "required": ["apiVersion"]},
        "then": {"properties": {"kind": {"enum": names}}},
    })];
    let mut definitions = Map::new();
    for (kind, schema) in kinds {
        let is_it = json!({"properties": {"apiVersion": {"const": group}, "kind": {"const": kind}}, "required": ["apiVersion", "kind"]});
        rules.push(json!({"if": is_it, "then": {"$ref": format!("#/definitions/{kind}")}}));
        let mut schema = schema.clone();
        schema.as_object_mut().map(|it| it.remove("$schema"));
        definitions.insert(kind.clone(), schema);
    }
    json!({
        "$schema": DIALECT,
        "title": format!("Manifests of {group}"),
        "type": "object",
        "allOf": rules,
        "definitions": definitions,
    })
}

/// Makes a JSON schema of a schema of Kubernetes: without its extensions, and strict about fields that are not known, as the
/// API server is.
fn convert(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    let is_open = fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    if fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        fields.insert("type".to_owned(), json!(["integer", "string"]));
    }
    fields.retain(|key, _| !key.starts_with("x-kubernetes-") && key != "nullable");
    // Only dates are checked by the formats that editors know.
    fields.remove("format");
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(convert);
        if !is_open && !fields.contains_key("additionalProperties") {
            fields.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
    }
    for inner in ["items", "additionalProperties"] {
        fields.get_mut(inner).into_iter().for_each(convert);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_of_a_kind_has_its_fields_and_no_extension() {
        let kinds = kinds();
        assert_eq!(kinds.len(), api::crds().len());
        for (kind, schema) in &kinds {
            let text = schema.to_string();
            assert!(!text.contains("x-kubernetes-"), "{kind}");
            assert_eq!(schema["properties"]["kind"]["const"], **kind);
            assert_eq!(schema["properties"]["spec"]["additionalProperties"], false, "{kind}");
            assert_eq!(schema["properties"].get("status"), None, "{kind}");
        }
    }

    #[test]
    fn schema_for_all_kinds_refers_to_every_kind() {
        let kinds = kinds();
        let all = all(&kinds);
        for (kind, _) in &kinds {
            assert!(all["definitions"].get(kind).is_some(), "{kind}");
            assert!(all["allOf"].to_string().contains(&format!("#/definitions/{kind}\"")), "{kind}");
        }
    }
}
