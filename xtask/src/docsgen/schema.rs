//! The fields of a schema, one row each, with type, constraints and description.

use serde_json::Value;

use super::markdown::{Table, code};

/// Fields whose type is Kubernetes' own; its documentation describes them.
const KUBERNETES: [(&str, &str); 14] = [
    ("affinity", "Affinity"),
    ("conditions", "[]Condition"),
    ("envFrom", "[]EnvFromSource"),
    ("extraEnv", "[]EnvVar"),
    ("extraRules", "[]PolicyRule"),
    ("imagePullSecrets", "[]LocalObjectReference"),
    ("podSecurityContext", "PodSecurityContext"),
    ("resources", "ResourceRequirements"),
    ("securityContext", "SecurityContext"),
    ("tolerations", "[]Toleration"),
    ("topologySpreadConstraints", "[]TopologySpreadConstraint"),
    ("volumeMounts", "[]VolumeMount"),
    ("volumes", "[]Volume"),
    ("nodeSelector", "map[string]string"),
];

/// A table with every field below `schema`, which is at `path`.
pub(super) fn table(path: &str, schema: &Value) -> String {
    let mut table = Table::new(&["field", "type", "constraints", "description"]);
    fields(&mut table, path, schema);
    table.finish()
}

/// What CEL rules on the object as a whole say.
pub(super) fn rules(schema: &Value) -> Vec<String> {
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    rules.filter_map(|it| it["message"].as_str().map(str::to_owned)).collect()
}

fn fields(table: &mut Table, path: &str, schema: &Value) {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let foreign = KUBERNETES.iter().find(|(it, _)| it == name).map(|(_, kind)| *kind);
        let kind = foreign.map_or_else(|| type_of(field), str::to_owned);
        let description = field["description"].as_str().unwrap_or_default().to_owned();
        let constraints = constraints(field, required.contains(&name.as_str()), foreign.is_some());
        table.row([code(&path), code(&kind), constraints.join("; "), description]);
        if foreign.is_none() {
            below(table, &path, field);
        }
    }
}

/// The fields of an object, of the objects in a list, and of the objects in a map.
fn below(table: &mut Table, path: &str, field: &Value) {
    fields(table, path, field);
    fields(table, &format!("{path}[]"), &field["items"]);
    fields(table, &format!("{path}.<name>"), &field["additionalProperties"]);
}

fn type_of(schema: &Value) -> String {
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("array"), _) => format!("[]{}", type_of(&schema["items"])),
        (Some("object"), _) if schema["additionalProperties"].is_object() => {
            format!("map[string]{}", type_of(&schema["additionalProperties"]))
        }
        (Some("string"), Some("date-time")) => "time".to_owned(),
        (Some(kind), _) => kind.to_owned(),
        (None, _) => "any".to_owned(),
    }
}

fn constraints(field: &Value, is_required: bool, is_foreign: bool) -> Vec<String> {
    let mut all = Vec::new();
    if is_required {
        all.push("required".to_owned());
    }
    if let Some(values) = field["enum"].as_array() {
        let values: Vec<String> = values.iter().filter_map(Value::as_str).map(code).collect();
        all.push(values.join(", "));
    }
    if !field["default"].is_null() {
        all.push(format!("default `{}`", field["default"]));
    }
    all.extend(range(field, "minimum", "maximum", ""));
    all.extend(range(field, "minLength", "maxLength", " characters"));
    all.extend(range(field, "minItems", "maxItems", " items"));
    all.extend(range(field, "minProperties", "maxProperties", " entries"));
    all.extend(field["pattern"].as_str().map(code));
    if !is_foreign {
        all.extend(rules(field));
    }
    all
}

fn range(field: &Value, least: &str, most: &str, unit: &str) -> Option<String> {
    let number = |name: &str| field[name].as_f64();
    match (number(least), number(most)) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}{unit}")),
        (Some(least), None) => Some(format!("at least {least}{unit}")),
        (None, Some(most)) => Some(format!("at most {most}{unit}")),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_field_has_a_row_with_its_type_and_constraints() {
        let schema = json!({"required": ["name"], "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 32, "description": "The name.",
                "x-kubernetes-validations": [{"rule": "true", "message": "must be a name"}]},
            "mapping": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
            "steps": {"type": "array", "items": {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}},
            "affinity": {"type": "object", "properties": {"nodeAffinity": {"type": "object"}}},
        }});
        let table = table("spec", &schema);
        for row in [
            "| `spec.name` | `string` | required; 1 to 32 characters; must be a name | The name. |",
            "| `spec.mapping` | `map[string][]string` |  |  |",
            "| `spec.steps[].at` | `time` |  |  |",
            "| `spec.affinity` | `Affinity` |  |  |",
        ] {
            assert!(table.contains(row), "{row} is missing in\n{table}");
        }
        assert!(!table.contains("nodeAffinity"), "{table}");
    }
}
