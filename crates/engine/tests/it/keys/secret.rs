//! Secrets with keys, as people and other tools change them.

use api::annotation;
use engine::secrets::Record;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use serde_json::{Value, json};

use super::model::{KIND, OBJECT};

/// The values in a Secret.
pub(super) fn entries(secret: &Value) -> Vec<(String, String)> {
    let secret: Secret = serde_json::from_value(secret.clone()).unwrap();
    let text = |(key, it): (String, ByteString)| (key, String::from_utf8(it.0).unwrap());
    secret.data.into_iter().flatten().map(text).collect()
}

/// The value under that key.
pub(super) fn entry(secret: &Value, key: &str) -> Option<String> {
    entries(secret).into_iter().find(|it| it.0 == key).map(|it| it.1)
}

pub(super) fn set_entry(secret: &mut Value, key: &str, value: Option<&str>) {
    match value {
        Some(value) => secret["data"][key] = json!(ByteString(value.as_bytes().to_vec())),
        None => drop(secret["data"].as_object_mut().map(|it| it.remove(key))),
    }
}

/// The record beside the value.
pub(super) fn record_of(secret: &Value) -> Option<Record> {
    let text = secret["metadata"]["annotations"][annotation::PROVISIONER_KEY].as_str()?;
    serde_json::from_str(text).ok()
}

pub(super) fn set_record(secret: &mut Value, record: Option<&Record>) {
    let annotations = &mut secret["metadata"]["annotations"];
    match record {
        Some(record) => {
            annotations[annotation::PROVISIONER_KEY] = serde_json::to_string(record).unwrap().into();
        }
        None => drop(annotations.as_object_mut().map(|it| it.remove(annotation::PROVISIONER_KEY))),
    }
}

/// Whether the object with that uid owns a Secret.
pub(super) fn is_owned(secret: &Value, uid: &str) -> bool {
    secret["metadata"]["ownerReferences"].as_array().into_iter().flatten().any(|it| it["uid"] == uid)
}

/// Gives a Secret to the object with that uid. `None` takes it from whomever has it.
pub(super) fn set_owner(secret: &mut Value, uid: Option<&str>) {
    let owner =
        |uid: &str| json!({"apiVersion": "coder.com/v1alpha1", "kind": KIND, "name": OBJECT, "uid": uid});
    secret["metadata"]["ownerReferences"] = uid.map(owner).into_iter().collect();
}
