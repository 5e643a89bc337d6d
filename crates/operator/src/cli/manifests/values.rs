//! Secrets among the manifests: a source of values for what refers to them. Nothing here shows one.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use secrecy::SecretSlice;
use serde::Deserialize as _;
use serde_json::Value;

use super::{Mistake, Place, read::Document};

/// A Secret that stands in a file.
pub(crate) struct FileSecret {
    pub(crate) values: BTreeMap<String, SecretSlice<u8>>,
    pub(super) place: Place,
}

#[cfg(test)]
impl FileSecret {
    pub(crate) fn of(values: BTreeMap<String, SecretSlice<u8>>) -> Self {
        Self { values, place: Place::default() }
    }
}

/// Reads a Secret as the API server does: `stringData` is text and wins over `data`, which is base64.
pub(super) fn secret(document: &Document) -> Result<FileSecret, Vec<Mistake>> {
    let mut mistakes = Vec::new();
    let mut values = BTreeMap::new();
    for (field, decode) in [("data", base64 as fn(&Value) -> Option<Vec<u8>>), ("stringData", text)] {
        let entries = document.value.get(field).and_then(Value::as_object);
        for (key, value) in entries.into_iter().flatten() {
            if let Some(decoded) = decode(value) {
                values.insert(key.clone(), SecretSlice::from(decoded));
            } else {
                let path = format!("{field}.{key}");
                let message = format!("{path}: is not {}", if field == "data" { BASE64 } else { "text" });
                mistakes.push(Mistake { place: document.place(&path), message });
            }
        }
    }
    if mistakes.is_empty() { Ok(FileSecret { values, place: document.place("") }) } else { Err(mistakes) }
}

const BASE64: &str = "base64; plain text goes under stringData";

fn base64(value: &Value) -> Option<Vec<u8>> {
    ByteString::deserialize(value).ok().map(|it| it.0)
}

fn text(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|it| it.as_bytes().to_vec())
}
