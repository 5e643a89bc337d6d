//! Request bodies as Go reads them: any case of the keys, null as absent, and wrong types refused in Go's words.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::answer::Answer;

/// The fields of a request body.
#[derive(Debug)]
pub(crate) struct Fields {
    /// The name of coderd's own type, which refusals contain.
    type_name: &'static str,
    /// By the names in lower case, without nulls.
    values: BTreeMap<String, Value>,
}

impl Fields {
    pub(crate) fn read(type_name: &'static str, body: &[u8]) -> Result<Self, Answer> {
        if body.trim_ascii().is_empty() {
            return Err(not_json("EOF"));
        }
        // Go reads the first value and ignores what follows.
        let first = serde_json::Deserializer::from_slice(body).into_iter::<Value>().next();
        let value = first.unwrap_or(Ok(Value::Null)).map_err(|error| {
            let detail = if error.is_eof() { "unexpected EOF".to_owned() } else { error.to_string() };
            not_json(&detail)
        })?;
        let object = match value {
            Value::Object(object) => object,
            Value::Null => Map::new(),
            other => {
                let detail = format!(
                    "json: cannot unmarshal {} into Go value of type codersdk.{type_name}",
                    kind(&other)
                );
                return Err(not_json(&detail));
            }
        };
        let values = object.into_iter().filter(|(_, value)| !value.is_null());
        Ok(Self { type_name, values: values.map(|(key, value)| (key.to_lowercase(), value)).collect() })
    }

    fn wrong_type(&self, field: &str, value: &Value, wanted: &str) -> Answer {
        let kind = kind(value);
        let type_name = self.type_name;
        not_json(&format!(
            "json: cannot unmarshal {kind} into Go struct field {type_name}.{field} of type {wanted}"
        ))
    }

    pub(crate) fn text(&self, field: &str) -> Result<Option<String>, Answer> {
        match self.values.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong_type(field, other, "string")),
        }
    }

    /// A text that is empty where it is absent.
    pub(crate) fn plain(&self, field: &str) -> Result<String, Answer> {
        Ok(self.text(field)?.unwrap_or_default())
    }

    /// Whether a field was sent, and not as null.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.values.contains_key(field)
    }

    pub(crate) fn flag(&self, field: &str) -> Result<bool, Answer> {
        match self.values.get(field) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.wrong_type(field, other, "bool")),
        }
    }

    /// A number; `go_type` is Go's name for its type.
    pub(crate) fn integer(&self, field: &str, go_type: &str) -> Result<Option<i64>, Answer> {
        match self.values.get(field) {
            None => Ok(None),
            Some(value) => match value.as_i64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong_type(field, value, go_type)),
            },
        }
    }

    /// A list of texts; `go_type` is Go's name for the type of one.
    pub(crate) fn texts(&self, field: &str, go_type: &str) -> Result<Option<Vec<String>>, Answer> {
        let Some(value) = self.values.get(field) else { return Ok(None) };
        let items = value.as_array().ok_or_else(|| self.wrong_type(field, value, &format!("[]{go_type}")))?;
        let text = |it: &Value| match it {
            Value::String(text) => Ok(text.clone()),
            Value::Null => Ok(String::new()),
            other => Err(self.wrong_type(field, other, go_type)),
        };
        items.iter().map(text).collect::<Result<_, _>>().map(Some)
    }

    pub(crate) fn uuids(&self, field: &str) -> Result<Vec<Uuid>, Answer> {
        let texts = self.texts(field, "uuid.UUID")?.unwrap_or_default();
        texts.iter().map(|it| uuid(it).map_err(|why| not_json(&why))).collect()
    }

    pub(crate) fn text_map(&self, field: &str) -> Result<BTreeMap<String, String>, Answer> {
        let Some(value) = self.values.get(field) else { return Ok(BTreeMap::new()) };
        let object = value.as_object().ok_or_else(|| self.wrong_type(field, value, "map[string]string"))?;
        let entry = |(key, value): (&String, &Value)| match value {
            Value::String(text) => Ok((key.clone(), text.clone())),
            Value::Null => Ok((key.clone(), String::new())),
            other => Err(self.wrong_type(field, other, "string")),
        };
        object.iter().map(entry).collect()
    }

    /// A map of lists, in which null is not an empty list. `item` is Go's name for the type of the items.
    pub(crate) fn mapping(&self, field: &str, item: &str) -> Result<Map<String, Value>, Answer> {
        let Some(value) = self.values.get(field) else { return Ok(Map::new()) };
        let whole = format!("map[string][]{item}");
        let object = value.as_object().ok_or_else(|| self.wrong_type(field, value, &whole))?;
        for list in object.values().filter(|it| !it.is_null()) {
            let items = list.as_array().ok_or_else(|| self.wrong_type(field, list, &format!("[]{item}")))?;
            for entry in items {
                let text = entry.as_str().ok_or_else(|| self.wrong_type(field, entry, item))?;
                if item == "uuid.UUID" {
                    uuid(text).map_err(|why| not_json(&why))?;
                }
            }
        }
        Ok(object.clone())
    }

    /// A list of objects as they were sent; `go_type` is Go's name for the type of one.
    pub(crate) fn objects(&self, field: &str, go_type: &str) -> Result<Vec<Map<String, Value>>, Answer> {
        let Some(value) = self.values.get(field) else { return Ok(Vec::new()) };
        let items = value.as_array().ok_or_else(|| self.wrong_type(field, value, &format!("[]{go_type}")))?;
        let object = |it: &Value| match it {
            Value::Object(object) => Ok(object.clone()),
            Value::Null => Ok(Map::new()),
            other => Err(self.wrong_type(field, other, go_type)),
        };
        items.iter().map(object).collect()
    }

    /// A value of any kind. `None` where it is absent or null.
    pub(crate) fn any(&self, field: &str) -> Option<&Value> {
        self.values.get(field)
    }

    pub(crate) fn object(&self, field: &str) -> Map<String, Value> {
        self.values.get(field).and_then(Value::as_object).cloned().unwrap_or_default()
    }
}

/// A rule by the name that refusals contain.
type Rule = (&'static str, fn(&str) -> bool);

/// The rules that coderd checks before a handler runs; all complaints are in one refusal.
#[derive(Debug, Default)]
pub(crate) struct Validations(Vec<(&'static str, &'static str, String)>);

impl Validations {
    /// A field that must not be empty, and then passes the rule.
    pub(crate) fn required(&mut self, field: &'static str, value: &str, rule: Option<Rule>) {
        if value.is_empty() {
            self.0.push((field, "required", String::new()));
        } else if let Some((tag, is_valid)) = rule {
            self.check(field, value, tag, is_valid(value));
        }
    }

    pub(crate) fn check(&mut self, field: &'static str, value: &str, tag: &'static str, is_valid: bool) {
        if !is_valid {
            self.0.push((field, tag, value.to_owned()));
        }
    }

    pub(crate) fn done(self) -> Result<(), Answer> {
        if self.0.is_empty() {
            return Ok(());
        }
        let refusal = Answer::message(400, "Validation failed.");
        Err(self.0.into_iter().fold(refusal, |refusal, (field, tag, value)| {
            refusal.field(field, format!("Validation failed for tag \"{tag}\" with value: \"{value}\""))
        }))
    }
}

pub(crate) fn not_json(detail: &str) -> Answer {
    Answer::message(400, "Request body must be valid JSON.").detail(detail)
}

/// Reads an id, and refuses in Go's words.
pub(crate) fn uuid(text: &str) -> Result<Uuid, String> {
    text.parse().map_err(|_| match text.len() {
        32 | 36 | 38 | 45 => "invalid UUID format".to_owned(),
        length => format!("invalid UUID length: {length}"),
    })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
