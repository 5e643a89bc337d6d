//! An object of the cluster, and which one it is.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicObject, TypeMeta};
use serde_json::Value;

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// As `apps/v1`.
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let [api_version, kind, namespace, name] = [api_version, kind, namespace, name].map(str::to_owned);
        Self { api_version, kind, namespace, name }
    }

    /// The key of an object as the API server has it. Items of a typed list have no kind, so whoever lists fills that in.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |at: &str| object.pointer(at).and_then(Value::as_str);
        Some(Self::new(
            text("/apiVersion")?,
            text("/kind")?,
            text("/metadata/namespace")?,
            text("/metadata/name")?,
        ))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// An object as the API server has it, `managedFields` included: without them everything would look like somebody else's.
#[derive(Clone)]
pub struct Live {
    pub key: Key,
    pub object: Value,
    metadata: ObjectMeta,
}

impl fmt::Debug for Live {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may be a Secret.
        write!(formatter, "{} in version {:?}", self.key, self.metadata.resource_version)
    }
}

impl Live {
    pub fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    /// An object of a list or a watch, which does not say what it is.
    pub fn of(mut object: DynamicObject, resource: &ApiResource) -> Option<Self> {
        let (api_version, kind) = (resource.api_version.clone(), resource.kind.clone());
        object.types = Some(TypeMeta { api_version, kind });
        Self::new(serde_json::to_value(object).ok()?)
    }

    /// An object of a known type.
    pub fn typed<K: kube::Resource<DynamicType = ()> + serde::Serialize>(object: &K) -> Option<Self> {
        let mut value = serde_json::to_value(object).ok()?;
        value["apiVersion"] = K::api_version(&()).into();
        value["kind"] = K::kind(&()).into();
        Self::new(value)
    }

    /// Reads an object. `None` where it is none, or names no namespace.
    pub fn new(object: Value) -> Option<Self> {
        Self::with_key(Key::of(&object)?, object)
    }

    /// Reads an object that has this key, as one of a file that names no namespace. `None` where it is none.
    pub fn with_key(key: Key, object: Value) -> Option<Self> {
        let metadata = serde_json::from_value(object.get("metadata")?.clone()).ok()?;
        Some(Self { key, object, metadata })
    }
}
