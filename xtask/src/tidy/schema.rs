//! Compares a definition with a released one: whatever an existing manifest or client could notice.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// A change that is not additive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Break {
    /// The definition and the field, as `codergroups.coder.com .spec.name`.
    pub(super) place: String,
    /// What changed.
    pub(super) change: String,
}

/// Bounds that must not shrink, and whether a larger value is the wider one.
const BOUNDS: [(&str, bool); 8] = [
    ("maximum", true),
    ("maxLength", true),
    ("maxItems", true),
    ("maxProperties", true),
    ("minimum", false),
    ("minLength", false),
    ("minItems", false),
    ("minProperties", false),
];
/// Keywords that may go and must neither come nor change.
const RESTRICTIONS: [&str; 9] = [
    "pattern",
    "format",
    "multipleOf",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "not",
    "oneOf",
    "anyOf",
    "allOf",
];
/// Keywords that must stay as they are: they decide how values are stored and merged.
const FIXED: [&str; 7] = [
    "type",
    "default",
    "nullable",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
];
const PRESERVES: &str = "x-kubernetes-preserve-unknown-fields";
const RULES: &str = "x-kubernetes-validations";

/// What a client would notice between two definitions of one name.
pub(super) fn compare(released: &Value, current: &Value) -> Vec<Break> {
    let name = released.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let mut found = Found { name: name.to_owned(), breaks: Vec::new() };
    for at in ["/spec/group", "/spec/scope", "/spec/names/kind", "/spec/names/plural", "/spec/names/singular"]
    {
        if released.pointer(at) != current.pointer(at) {
            found.add("", format!("{at} changed"));
        }
    }
    found.removed(
        "",
        "short name",
        list(released, "/spec/names/shortNames"),
        list(current, "/spec/names/shortNames"),
    );
    for version in list(released, "/spec/versions") {
        let name = version.get("name");
        let now = list(current, "/spec/versions").iter().find(|it| it.get("name") == name);
        match now.filter(|it| it.get("served") == Some(&Value::Bool(true))) {
            Some(now) => found.version(version, now),
            None => found.add("", format!("version {} removed", text(name))),
        }
    }
    found.breaks
}

struct Found {
    name: String,
    breaks: Vec<Break>,
}

impl Found {
    fn add(&mut self, path: &str, change: String) {
        let place = if path.is_empty() { self.name.clone() } else { format!("{} {path}", self.name) };
        self.breaks.push(Break { place, change });
    }

    /// Reports what is in the first list and not in the second.
    fn removed(&mut self, path: &str, what: &str, released: &[Value], current: &[Value]) {
        for value in released.iter().filter(|it| !current.contains(it)) {
            self.add(path, format!("{what} {} removed", text(Some(value))));
        }
    }

    fn version(&mut self, released: &Value, current: &Value) {
        let (before, now) = (map(released, "/subresources"), map(current, "/subresources"));
        for subresource in before.keys().filter(|it| !now.contains_key(*it)) {
            self.add("", format!("subresource {subresource} removed"));
        }
        let (before, now) = (list(released, "/selectableFields"), list(current, "/selectableFields"));
        self.removed("", "selectable field", before, now);
        let at = "/schema/openAPIV3Schema";
        self.schema("", &map(released, at), &map(current, at));
    }

    fn schema(&mut self, path: &str, released: &Map<String, Value>, current: &Map<String, Value>) {
        self.restrictions(path, released, current);
        let was_open = released.get(PRESERVES).is_some();
        let is_open = current.get(PRESERVES).is_some();
        if was_open && !is_open {
            self.add(path, "unknown fields are no longer kept".to_owned());
        }
        let properties = |of: &Map<String, Value>| object(of.get("properties"));
        let now = properties(current);
        for (name, before) in properties(released) {
            let path = format!("{path}.{name}");
            match now.get(&name) {
                Some(now) => self.schema(&path, &object(Some(&before)), &object(Some(now))),
                None if is_open => {}
                None => self.add(&path, "field removed".to_owned()),
            }
        }
        for (keyword, path) in [("items", format!("{path}[]")), ("additionalProperties", format!("{path}.*"))]
        {
            match (released.get(keyword), current.get(keyword)) {
                (Some(before), Some(now)) => self.schema(&path, &object(Some(before)), &object(Some(now))),
                (Some(_), None) => self.add(&path, format!("{keyword} removed")),
                (None, _) => {}
            }
        }
    }

    fn restrictions(&mut self, path: &str, released: &Map<String, Value>, current: &Map<String, Value>) {
        for keyword in FIXED {
            let (before, now) = (released.get(keyword), current.get(keyword));
            if before != now {
                self.add(path, format!("{keyword} changed from {} to {}", text(before), text(now)));
            }
        }
        for keyword in RESTRICTIONS {
            let (before, now) = (released.get(keyword), current.get(keyword));
            if now.is_some() && before != now {
                self.add(path, format!("{keyword} {} added", text(now)));
            }
        }
        for (keyword, is_upper) in BOUNDS {
            let number = |of: &Map<String, Value>| of.get(keyword).and_then(Value::as_f64);
            let (before, now) = (number(released), number(current));
            let is_narrower = now.is_some_and(|now| match before {
                Some(before) => {
                    if is_upper {
                        now < before
                    } else {
                        now > before
                    }
                }
                None => is_upper || now > 0.0 || keyword == "minimum",
            });
            if is_narrower {
                let (before, now) = (released.get(keyword), current.get(keyword));
                self.add(path, format!("{keyword} narrowed from {} to {}", text(before), text(now)));
            }
        }
        let values = |of: &Map<String, Value>, keyword: &str| {
            of.get(keyword).and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let (before, now) = (values(released, "enum"), values(current, "enum"));
        if before.is_empty() && !now.is_empty() {
            self.add(path, "enum added".to_owned());
        } else if !now.is_empty() {
            self.removed(path, "enum value", &before, &now);
        }
        let (before, now) = (values(released, "required"), values(current, "required"));
        for field in now.iter().filter(|it| !before.contains(it)) {
            self.add(path, format!("field {} is required now", text(Some(field))));
        }
        let rules = |of: &[Value]| -> BTreeSet<String> { of.iter().map(|it| text(it.get("rule"))).collect() };
        let (before, now) = (rules(&values(released, RULES)), rules(&values(current, RULES)));
        for rule in now.difference(&before) {
            self.add(path, format!("rule added: {rule}"));
        }
    }
}

fn list<'a>(of: &'a Value, at: &str) -> &'a [Value] {
    of.pointer(at).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn map(of: &Value, at: &str) -> Map<String, Value> {
    object(of.pointer(at))
}

fn object(value: Option<&Value>) -> Map<String, Value> {
    value.and_then(Value::as_object).cloned().unwrap_or_default()
}

/// A value for a person: a text without its quotes, and `none` where there is no value.
fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(spec: &Value) -> Value {
        json!({"metadata": {"name": "things.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "shortNames": ["th"]},
            "versions": [{"name": "v1", "served": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
    }

    fn changes(before: &Value, now: &Value) -> Vec<String> {
        let found = compare(&definition(before), &definition(now));
        found.into_iter().map(|it| format!("{}: {}", it.place, it.change)).collect()
    }

    /// The same of one field of the spec.
    fn of_field(before: &Value, now: &Value) -> Vec<String> {
        let spec = |field: &Value| json!({"type": "object", "properties": {"a": field}});
        let found = changes(&spec(before), &spec(now));
        found.into_iter().map(|it| it.replace("things.example.com .spec.a: ", "")).collect()
    }

    #[test]
    fn what_is_added_or_widened_is_no_break() {
        let before = json!({"type": "object", "required": ["a"], "properties": {
            "a": {"type": "string", "maxLength": 5, "minLength": 2, "pattern": "x", "enum": ["one"]}}});
        let now = json!({"type": "object", "description": "More.", "properties": {
            "a": {"type": "string", "maxLength": 9, "minLength": 1, "enum": ["one", "two"]},
            "b": {"type": "object", "required": ["c"], "properties": {"c": {"type": "integer", "maximum": 3}}}}});
        assert_eq!(changes(&before, &now), [""; 0]);
        assert_eq!(changes(&before, &before), [""; 0]);
    }

    #[test]
    fn removed_fields_and_new_required_ones_are_found_at_any_depth() {
        let before = json!({"type": "object", "properties": {
            "gone": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"gone": {"type": "string"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"gone": {}}}}}});
        let now = json!({"type": "object", "required": ["new"], "properties": {
            "new": {"type": "string"},
            "list": {"type": "array", "items": {"type": "object"}},
            "map": {"type": "object", "additionalProperties": {"type": "object"}}}});
        let all = changes(&before, &now);
        let at = |path: &str, change: &str| format!("things.example.com .spec{path}: {change}");
        assert_eq!(
            all,
            [
                at("", "field new is required now"),
                at(".gone", "field removed"),
                at(".list[].gone", "field removed"),
                at(".map.*.gone", "field removed"),
            ]
        );
    }

    #[test]
    fn changed_types_and_narrower_values_are_found() {
        let text = json!({"type": "string"});
        assert_eq!(of_field(&text, &json!({"type": "integer"})), ["type changed from string to integer"]);
        assert_eq!(of_field(&text, &json!({"type": "string", "pattern": "^x$"})), ["pattern ^x$ added"]);
        assert_eq!(of_field(&text, &json!({"type": "string", "enum": ["x"]})), ["enum added"]);
        assert_eq!(
            of_field(
                &json!({"type": "string", "enum": ["x", "y"]}),
                &json!({"type": "string", "enum": ["x"]})
            ),
            ["enum value y removed"]
        );
        assert_eq!(
            of_field(&json!({"type": "string", "maxLength": 9}), &json!({"type": "string", "maxLength": 8})),
            ["maxLength narrowed from 9 to 8"]
        );
        assert_eq!(
            of_field(&text, &json!({"type": "string", "maxLength": 8})),
            ["maxLength narrowed from none to 8"]
        );
        assert_eq!(
            of_field(&json!({"type": "integer", "minimum": 0}), &json!({"type": "integer", "minimum": 1})),
            ["minimum narrowed from 0 to 1"]
        );
        assert_eq!(of_field(&text, &json!({"type": "string", "minLength": 0})), [""; 0]);
    }

    #[test]
    fn added_rules_and_other_ways_to_merge_are_found() {
        let rules = |rules: &[&str]| {
            let rules: Vec<Value> = rules.iter().map(|it| json!({"rule": it, "message": "m"})).collect();
            json!({"type": "string", "x-kubernetes-validations": rules})
        };
        assert_eq!(of_field(&rules(&["a"]), &rules(&["a", "b"])), ["rule added: b"]);
        assert_eq!(of_field(&rules(&["a", "b"]), &rules(&["a"])), [""; 0]);
        let merged = |how: &str| json!({"type": "array", "x-kubernetes-list-type": how});
        assert_eq!(
            of_field(&merged("atomic"), &merged("set")),
            ["x-kubernetes-list-type changed from atomic to set"]
        );
        let open = json!({"type": "object", PRESERVES: true, "properties": {"b": {"type": "string"}}});
        assert_eq!(of_field(&open, &json!({"type": "object", PRESERVES: true})), [""; 0]);
        let closed = of_field(&open, &json!({"type": "object"}));
        assert!(closed.contains(&"unknown fields are no longer kept".to_owned()), "{closed:?}");
    }

    #[test]
    fn changed_names_versions_and_subresources_are_found() {
        let before = definition(&json!({}));
        let found = |change: &dyn Fn(&mut Value)| {
            let mut now = before.clone();
            change(&mut now);
            compare(&before, &now).into_iter().map(|it| it.change).collect::<Vec<_>>()
        };
        assert_eq!(found(&|it| it["spec"]["names"]["plural"] = json!("x")), ["/spec/names/plural changed"]);
        assert_eq!(found(&|it| it["spec"]["names"]["shortNames"] = json!([])), ["short name th removed"]);
        assert_eq!(found(&|it| it["spec"]["versions"][0]["served"] = json!(false)), ["version v1 removed"]);
        assert_eq!(
            found(&|it| it["spec"]["versions"][0]["subresources"] = json!({})),
            ["subresource status removed"]
        );
    }
}
