//! What cases, properties and the bed have in common.

use std::sync::Arc;

use engine::{Assessment, Coder, Door, Report, Subject, coder::Promises, kinds};
use jiff::Timestamp;
use serde_json::{Value, json};
use sim::MemoryCluster;

/// An empty cluster.
pub(crate) fn cluster() -> MemoryCluster {
    MemoryCluster::new(Arc::new(Timestamp::now), 1)
}

/// A Secret with these values, in the namespace of the examples.
pub(crate) fn secret(name: &str, values: &Value) -> Value {
    let bytes = |it: &Value| json!(k8s_openapi::ByteString(it.as_str().unwrap().as_bytes().to_vec()));
    let data: serde_json::Map<String, Value> =
        values.as_object().unwrap().iter().map(|(key, it)| (key.clone(), bytes(it))).collect();
    json!({"apiVersion": "v1", "kind": "Secret", "data": data, "metadata": {"name": name, "namespace": "platform"}})
}

/// A manifest of whatever kind it says.
pub(crate) fn subject(manifest: &Value) -> Box<dyn Subject> {
    let kind = manifest["kind"].as_str().unwrap();
    let parsed = kinds::subject(kind, manifest).unwrap_or_else(|| panic!("{kind} cannot be compared"));
    parsed.unwrap_or_else(|error| panic!("{kind}: {error}"))
}

/// The manifest with that id in its status, as the controller records it.
pub(crate) fn holding(manifest: &Value, id: impl Into<String>) -> Value {
    let mut manifest = manifest.clone();
    manifest["status"] = json!({"id": id.into()});
    manifest
}

/// What the manifests promise each other.
pub(crate) fn promises<'a>(manifests: impl IntoIterator<Item = &'a Value>) -> Promises {
    let mut promises = Promises::default();
    for manifest in manifests {
        subject(manifest).promise(&mut promises);
    }
    promises
}

/// What one pass of the controller finds out.
pub(crate) async fn assess(manifest: &Value, coder: &Coder) -> Assessment {
    subject(manifest).assess(coder, Door::Controller).await
}

/// One whole pass of the controller.
pub(crate) async fn pass(manifest: &Value, coder: &Coder) -> Report {
    let mut subject = subject(manifest);
    let assessment = subject.assess(coder, Door::Controller).await;
    subject.carry_out(&assessment, coder).await
}
