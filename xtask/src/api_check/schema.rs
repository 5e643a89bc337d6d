//! Two schemas side by side: every property of ours must be one of theirs.
//!
//! Ours is JSON Schema, theirs Swagger 2.0; what both share is enough: references, properties, lists, maps.

use serde_json::{Map, Value};

/// Deeper than anything that is documented; only a type that holds itself gets there.
const DEEPEST: usize = 16;

/// A schema, by what is inside it.
enum Shape<'a> {
    Object(Vec<(&'a String, &'a Value)>),
    List(&'a Value),
    Map(&'a Value),
    /// A single value, or something that says nothing about its inside.
    Plain,
}

/// Complaints about what ours has and theirs does not. `document` is what their references point into.
pub(super) fn compare(place: &str, ours: &Value, document: &Value, theirs: &Value) -> Vec<String> {
    let mut pair = Pair { ours, theirs: document, complaints: Vec::new() };
    pair.compare(place, ours, theirs, 0);
    pair.complaints
}

struct Pair<'a> {
    ours: &'a Value,
    theirs: &'a Value,
    complaints: Vec<String>,
}

impl<'a> Pair<'a> {
    fn compare(&mut self, place: &str, ours: &'a Value, theirs: &'a Value, depth: usize) {
        if depth > DEEPEST {
            return;
        }
        match (shape(self.ours, ours), shape(self.theirs, theirs)) {
            (Shape::Plain, _) => {}
            (Shape::Object(ours), Shape::Object(theirs)) => {
                for (name, inner) in ours {
                    match theirs.iter().find(|(it, _)| *it == name) {
                        Some((_, their)) => self.compare(&format!("{place}.{name}"), inner, their, depth + 1),
                        None => self.complaints.push(format!("{place}: `{name}` is not documented")),
                    }
                }
            }
            (Shape::List(ours), Shape::List(theirs)) => {
                self.compare(&format!("{place}[]"), ours, theirs, depth + 1);
            }
            (Shape::Map(ours), Shape::Map(theirs)) => {
                self.compare(&format!("{place}{{}}"), ours, theirs, depth + 1);
            }
            (_, Shape::List(inner)) => {
                self.complaints.push(format!("{place}: is documented as a list"));
                // What is inside may still be what we take it for.
                self.compare(place, ours, inner, depth + 1);
            }
            (_, Shape::Object(_) | Shape::Map(_)) => {
                self.complaints.push(format!("{place}: is documented as an object of another kind"));
            }
            (_, Shape::Plain) => self.complaints.push(format!("{place}: is documented as a plain value")),
        }
    }
}

fn shape<'a>(root: &'a Value, schema: &'a Value) -> Shape<'a> {
    let schema = resolve(root, schema);
    if let Some(items) = schema.get("items") {
        return Shape::List(items);
    }
    let mut properties = Vec::new();
    collect(root, schema, &mut properties);
    if !properties.is_empty() {
        return Shape::Object(properties);
    }
    match schema.get("additionalProperties") {
        Some(values @ Value::Object(_)) => Shape::Map(values),
        _ => Shape::Plain,
    }
}

fn collect<'a>(root: &'a Value, schema: &'a Value, properties: &mut Vec<(&'a String, &'a Value)>) {
    let schema = resolve(root, schema);
    properties.extend(schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::iter));
    for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        collect(root, part, properties);
    }
}

/// Follows references, and takes the one side of "this or null".
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..DEEPEST {
        let target = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|it| root.pointer(it.trim_start_matches('#')));
        let choices = schema.get("anyOf").and_then(Value::as_array);
        let choice = choices.and_then(|it| it.iter().find(|it| it["type"] != "null"));
        match target.or(choice) {
            Some(next) => schema = next,
            None => break,
        }
    }
    schema
}
