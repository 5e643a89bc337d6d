//! Who manages which field of an object, as the API server keeps it.
//!
//! Fields are a tree: `f:name` is a field, `k:{…}` an item of a list that is merged by these keys, `v:…` an item that is
//! its own key, `.` the thing itself. Where the tree ends the rest is one value. So the tree also says how a list is
//! merged, and nobody needs a table of that.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Map, Value};

use super::FIELD_MANAGER;

/// The fields that we apply; nothing where we have not applied any.
pub(super) fn ours(entries: &[ManagedFieldsEntry]) -> Option<&Value> {
    entries.iter().find(|it| is_ours(it)).and_then(|it| it.fields_v1.as_ref()).map(|it| &it.0)
}

pub(super) fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(FIELD_MANAGER)
        && entry.operation.as_deref() == Some("Apply")
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// Adds the fields of one tree to another.
pub(super) fn unite(into: &mut Value, from: &Value) {
    let Value::Object(from) = from else { return };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let Value::Object(into) = into else { return };
    for (key, children) in from {
        unite(into.entry(key.clone()).or_insert_with(|| Value::Object(Map::new())), children);
    }
}

/// Takes a field away, and what holds nothing else. Whether it was there.
pub(super) fn take(from: &mut Value, path: &[&str]) -> bool {
    let (Value::Object(fields), [name, rest @ ..]) = (from, path) else { return false };
    let key = format!("f:{name}");
    if rest.is_empty() {
        return fields.remove(&key).is_some();
    }
    let Some(child) = fields.get_mut(&key) else { return false };
    let taken = take(child, rest);
    if taken && child.as_object().is_some_and(Map::is_empty) {
        fields.remove(&key);
    }
    taken
}

/// The keys by which an item of a list is known.
pub(super) fn keys(name: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(name.strip_prefix("k:")?).ok()
}

/// Whether an item is the one with these keys.
pub(super) fn has_keys(item: &Value, keys: &Map<String, Value>) -> bool {
    keys.iter().all(|(key, value)| item.get(key) == Some(value))
}

/// An item for people: its keys' values.
pub(super) fn label(keys: &Map<String, Value>) -> String {
    let values = keys.values().map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned));
    values.collect::<Vec<_>>().join("/")
}
