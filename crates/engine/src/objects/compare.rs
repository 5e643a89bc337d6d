//! What applying an object would change. Nothing when it is as it should be: then it is not applied.
//!
//! Three things make a difference: a declared field that has another value, a declared field that is not ours (somebody else
//! took it, or it is new), and a field that is ours and no longer declared. Fields of others are not looked at.

use serde_json::{Map, Value, json};

use super::{
    fields::{has_keys, keys, label},
    quantity,
};
use crate::pipeline::plan::Change;

/// Fields that say which object it is. Nobody manages them.
const IDENTITY: [&str; 2] = ["name", "namespace"];
/// Fields that are quantities, and maps of them.
const QUANTITIES: [&str; 2] = ["divisor", "sizeLimit"];
const MAPS_OF_QUANTITIES: [&str; 2] = ["limits", "requests"];
/// What stands for a value that may be a secret: a variable or an argument can hold a password.
const HIDDEN: &str = "(hidden)";

/// What applying `desired` would change in `live`, when `owned` are the fields that we have applied before.
pub(super) fn differences(desired: &Value, live: &Value, owned: Option<&Value>) -> Vec<Change> {
    let mut desired = desired.clone();
    if let Some(fields) = desired.as_object_mut() {
        fields.retain(|key, _| key != "apiVersion" && key != "kind");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|key, _| !IDENTITY.contains(&key.as_str()));
        }
    }
    let mut found = Vec::new();
    let nothing = Value::Object(Map::new());
    walk(&Place::root(), &desired, Some(live), owned.unwrap_or(&nothing), &mut found);
    found
}

/// Where we are in an object.
struct Place<'a> {
    path: String,
    /// The field around, and the field itself.
    within: &'a str,
    name: &'a str,
}

impl<'a> Place<'a> {
    fn root() -> Self {
        Self { path: String::new(), within: "", name: "" }
    }

    fn field(&self, name: &'a str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self { path, within: self.name, name }
    }

    fn item(&self, label: &str) -> Self {
        Self { path: format!("{}[{label}]", self.path), within: self.within, name: self.name }
    }

    fn is_quantity(&self) -> bool {
        QUANTITIES.contains(&self.name) || MAPS_OF_QUANTITIES.contains(&self.within)
    }

    fn change(&self, before: Option<&Value>, after: Option<&Value>) -> Change {
        let shown = |value: Option<&Value>| value.map_or(Value::Null, |it| self.shown(it));
        let change = Change::new(&self.path, shown(before), shown(after));
        let is_hidden =
            [before, after].into_iter().flatten().any(|value| self.shown(value) != *value) && before != after;
        if is_hidden { change.hiding(&json!([before, after])) } else { change }
    }

    fn shown(&self, value: &Value) -> Value {
        let is_secret = self.name == "args" || (self.name == "value" && self.within == "env");
        if is_secret { Value::from(HIDDEN) } else { hide(self.name, value) }
    }
}

/// A value without what may be secret in it.
fn hide(name: &str, value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let shown = fields.iter().map(|(key, field)| {
                let is_secret = key == "args" || (name == "env" && key == "value");
                (key.clone(), if is_secret { Value::from(HIDDEN) } else { hide(key, field) })
            });
            Value::Object(shown.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(|it| hide(name, it)).collect()),
        other => other.clone(),
    }
}

fn walk(place: &Place<'_>, desired: &Value, live: Option<&Value>, owned: &Value, found: &mut Vec<Change>) {
    let Some(owned) = owned.as_object().filter(|it| !it.is_empty() || place.path.is_empty()) else {
        // The tree ends here, so this is one value.
        if !same(place, desired, live) {
            found.push(place.change(live, Some(desired)));
        }
        return;
    };
    match desired {
        Value::Object(fields) => walk_object(place, fields, live, owned, found),
        Value::Array(items) => walk_list(place, items, live, owned, found),
        scalar => {
            if !same(place, scalar, live) {
                found.push(place.change(live, Some(scalar)));
            }
        }
    }
}

fn walk_object(
    place: &Place<'_>,
    desired: &Map<String, Value>,
    live: Option<&Value>,
    owned: &Map<String, Value>,
    found: &mut Vec<Change>,
) {
    for (name, field) in desired {
        let place = place.field(name);
        let live = live.and_then(|it| it.get(name));
        match owned.get(&format!("f:{name}")) {
            Some(owned) => walk(&place, field, live, owned, found),
            None => found.push(place.change(live, Some(field))),
        }
    }
    for name in owned.keys().filter_map(|it| it.strip_prefix("f:")) {
        if !desired.contains_key(name) {
            found.push(place.field(name).change(live.and_then(|it| it.get(name)), None));
        }
    }
}

/// A list that is merged item by item.
fn walk_list(
    place: &Place<'_>,
    desired: &[Value],
    live: Option<&Value>,
    owned: &Map<String, Value>,
    found: &mut Vec<Change>,
) {
    let live_items = live.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let entries: Vec<(Map<String, Value>, &Value)> =
        owned.iter().filter_map(|(name, owned)| Some((keys(name)?, owned))).collect();
    let mut last = None;
    for (index, item) in desired.iter().enumerate() {
        let Some((keys, owned)) = entries.iter().find(|(keys, _)| has_keys(item, keys)) else {
            found.push(place.item(&index.to_string()).change(None, Some(item)));
            continue;
        };
        let place = place.item(&label(keys));
        let at = live_items.iter().position(|it| has_keys(it, keys));
        walk(&place, item, at.and_then(|it| live_items.get(it)), owned, found);
        // A variable is seen only by those after it, so the order counts.
        if at < last {
            found.push(Change::new(&place.path, "in another place", "in its place"));
        }
        last = at.max(last);
    }
    for (keys, _) in entries.iter().filter(|(keys, _)| !desired.iter().any(|it| has_keys(it, keys))) {
        let live = live_items.iter().find(|it| has_keys(it, keys));
        found.push(place.item(&label(keys)).change(live, None));
    }
}

/// Whether the live value is the declared one. What the API server adds by itself is no difference, and what it leaves out
/// because it is zero is none either.
fn same(place: &Place<'_>, desired: &Value, live: Option<&Value>) -> bool {
    match (desired, live) {
        (desired, None) => is_zero(desired),
        (Value::Object(desired), Some(Value::Object(live))) => {
            desired.iter().all(|(name, field)| same(&place.field(name), field, live.get(name)))
        }
        (Value::Array(desired), Some(Value::Array(live))) => {
            let pairs = desired.iter().zip(live);
            desired.len() == live.len() && pairs.clone().all(|(one, other)| same(place, one, Some(other)))
        }
        (Value::String(desired), Some(Value::String(live))) => {
            desired == live || (place.is_quantity() && quantity::equal(desired, live))
        }
        (desired, Some(live)) => desired == live,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is) => !is,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

#[cfg(test)]
mod tests;
