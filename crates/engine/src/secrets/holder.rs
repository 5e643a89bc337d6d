//! The object that has keys.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{Resource, ResourceExt as _};

use super::record::SecretPlace;
use crate::{pipeline::short::fnv, ports::object::Key};

/// The object that has keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Holder {
    pub kind: Cow<'static, str>,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The labels of a new Secret.
    pub labels: BTreeMap<String, String>,
    /// The owner of a new Secret. Without one it stays when the object goes, and the record in it says whose it is.
    pub owner: Option<OwnerReference>,
    /// The Secret in which the value of the key was last verified. `None` where the status does not say so.
    pub verified: Option<Verified>,
}

/// A Secret whose value was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub place: SecretPlace,
    /// Its uid and its version at that time.
    pub version: String,
    /// The checksum of the value.
    pub checksum: String,
}

impl Holder {
    pub fn new<K: Resource<DynamicType = ()>>(
        object: &K,
        labels: BTreeMap<String, String>,
        owner: Option<OwnerReference>,
    ) -> Self {
        Self {
            kind: K::kind(&()),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            labels,
            owner,
            verified: None,
        }
    }

    /// Stands for the uid of an object of a file that is in no cluster.
    pub fn uid_of_file(kind: &str, namespace: &str, name: &str) -> String {
        let object = format!("{kind}/{namespace}/{name}");
        // Names of keys begin with the first characters: those of two objects differ.
        format!("{}:file:{object}", fnv(&[object.as_bytes()]))
    }

    /// Stands for this object where its manifest was applied from a file.
    pub(super) fn of_file(&self) -> String {
        Self::uid_of_file(&self.kind, &self.namespace, &self.name)
    }

    /// The object, for those who tell people of it.
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(format!("{}/{}", api::GROUP, api::VERSION)),
            kind: Some(self.kind.to_string()),
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }

    /// The object itself.
    pub(super) fn key(&self) -> Key {
        Key::new(&format!("{}/{}", api::GROUP, api::VERSION), &self.kind, &self.namespace, &self.name)
    }
}
