//! Patches: JSON merge patches, and server-side apply as far as the product uses it.

use std::collections::BTreeSet;

use engine::objects::FIELD_MANAGER;
use serde_json::{Map, Value, json};

/// Applies a JSON merge patch (RFC 7386).
pub(super) fn merge_patch(into: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, field) in fields {
        if field.is_null() {
            into.as_object_mut().map(|it| it.remove(name));
        } else {
            merge_patch(&mut into[name], field);
        }
    }
}

/// Applies an object for our field manager, with force. Fields that were applied before and are not any more are removed;
/// lists are replaced as a whole.
pub(super) fn apply(now: Option<&Value>, object: &Value) -> Value {
    let mut next = now.cloned().unwrap_or_else(|| json!({}));
    let fields = managed(object);
    let entries = next["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let is_ours = |it: &Value| it["manager"] == FIELD_MANAGER && it["operation"] == "Apply";
    for entry in entries.iter().filter(|it| is_ours(it)) {
        remove_given_up(&mut next, &entry["fieldsV1"], &fields);
    }
    overlay(&mut next, object);
    let mut entries: Vec<Value> = entries.into_iter().filter(|it| !is_ours(it)).collect();
    entries.push(json!({"manager": FIELD_MANAGER, "operation": "Apply", "fieldsType": "FieldsV1",
        "fieldsV1": fields}));
    next["metadata"]["managedFields"] = entries.into();
    next
}

/// Removes the fields of an object that are in the first tree and not in the second.
fn remove_given_up(object: &mut Value, before: &Value, after: &Value) {
    let (Some(object), Some(before)) = (object.as_object_mut(), before.as_object()) else { return };
    for (field, below) in before {
        let Some(name) = field.strip_prefix("f:") else { continue };
        match after.get(field) {
            None => drop(object.remove(name)),
            Some(after) => {
                if let Some(value) = object.get_mut(name) {
                    remove_given_up(value, below, after);
                }
            }
        }
    }
}

fn overlay(into: &mut Value, object: &Value) {
    match (into, object) {
        (Value::Object(into), Value::Object(fields)) => {
            for (name, field) in fields {
                overlay(into.entry(name.clone()).or_insert(Value::Null), field);
            }
        }
        (into, object) => *into = object.clone(),
    }
}

/// The fields of an object that is applied, as the API server records them.
fn managed(object: &Value) -> Value {
    let without = |value: &Value, names: &[&str]| -> Map<String, Value> {
        let fields = value.as_object().into_iter().flatten();
        fields
            .filter(|(name, _)| !names.contains(&name.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    };
    let mut owned = without(object, &["apiVersion", "kind", "metadata"]);
    let identity = ["name", "namespace", "uid", "resourceVersion"];
    owned.insert("metadata".to_owned(), without(&object["metadata"], &identity).into());
    tree(&owned.into())
}

fn tree(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (format!("f:{name}"), tree(field))).collect()
        }
        Value::Array(items) => {
            let names: BTreeSet<&str> = items.iter().filter_map(|it| it["name"].as_str()).collect();
            if names.len() < items.len() {
                return json!({});
            }
            let key = |it: &Value| format!("k:{}", json!({"name": it["name"]}));
            items.iter().map(|it| (key(it), tree(it))).collect()
        }
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_patch_removes_what_is_null_and_keeps_what_is_absent() {
        let mut object = json!({"a": {"b": 1, "c": 2}, "d": [1, 2]});
        merge_patch(&mut object, &json!({"a": {"b": null, "e": {"f": 3}}, "d": [3], "g": null}));
        assert_eq!(object, json!({"a": {"c": 2, "e": {"f": 3}}, "d": [3]}));
    }

    #[test]
    fn applied_fields_that_are_given_up_are_removed_and_others_stay() {
        let first = json!({"kind": "Service", "metadata": {"name": "a", "labels": {"x": "1", "y": "2"}},
            "spec": {"type": "NodePort", "ports": [{"name": "http"}]}});
        let mut stored = apply(None, &first);
        stored["metadata"]["labels"]["theirs"] = "3".into();
        let second = json!({"kind": "Service", "metadata": {"name": "a", "labels": {"x": "1"}},
            "spec": {"ports": [{"name": "https"}]}});
        let next = apply(Some(&stored), &second);
        assert_eq!(next["metadata"]["labels"], json!({"x": "1", "theirs": "3"}));
        assert_eq!(next["spec"], json!({"ports": [{"name": "https"}]}));
        assert_eq!(next["metadata"]["managedFields"].as_array().map(Vec::len), Some(1));
        let again = apply(Some(&next), &second);
        assert_eq!(again, next);
    }
}
