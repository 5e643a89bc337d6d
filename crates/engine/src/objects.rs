//! Objects of the cluster that we keep for somebody: a control plane, or provisioner daemons.
//!
//! [`plan`] compares the objects that should be with those that are, and [`rollout`] says what became of pods. Both are pure;
//! whoever carries a plan out does its effects and nothing else. What differs between those for whom objects are kept is a
//! [`Keeper`].

mod carry_out;
mod compare;
mod crash;
mod fields;
pub(crate) mod hardening;
mod keep;
pub mod last_lines;
pub mod migrate;
pub mod ownership;
pub mod plan;
mod pod_logs;
pub(crate) mod pods;
mod prune;
mod quantity;
pub mod references;
pub mod rollout;

use std::collections::BTreeMap;

use api::Reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference};
use serde::Serialize;
use serde_json::Value;

pub use crate::ports::object::{Key, Live};
pub(crate) use carry_out::carry_out;
pub use carry_out::{May, News};
pub use keep::{Compared, Comparison, Run, compare, deployment, scale_to_zero, seen};
pub use plan::{ChildEffect, ObjectsSituation, Planned, leave_out, plan};

/// The Role that gives the operator rights in a namespace that takes workspaces.
pub const WORKSPACES_ROLE: &str = "deploy/rbac/workspaces.yaml";

/// The manager of every field that we apply. One name for all of them, for ever: the fields of another one would stay
/// when they are no longer declared.
pub const FIELD_MANAGER: &str = "coder-operator";

/// A manifest that has objects in the cluster.
pub trait Keeper {
    /// What says that an object is this very manifest's.
    fn owner(&self) -> OwnerReference;

    /// The labels by which an object is known whose owner reference is lost.
    fn labels(&self, key: &Key) -> BTreeMap<String, String>;

    /// Whether an object that can have no owner reference is recorded as ours in another way.
    fn is_recorded(&self, _key: &Key, _live: &ObjectMeta) -> bool {
        false
    }

    /// What a person can do about an object of somebody else, other than delete it.
    fn instead(&self, key: &Key) -> &'static str;

    /// Whether the number of pods is somebody else's business.
    fn leaves_replicas(&self) -> bool {
        false
    }

    /// The Deployment that an earlier release made under another name. It goes once its successor is rolled out.
    fn former_deployment(&self) -> Option<String> {
        None
    }

    /// Whether an account that we made stays when it is no longer declared.
    fn releases_account(&self) -> bool {
        false
    }
}

/// Whether the name of an object was taken, by the conditions of the last reconcile.
pub(crate) fn was_taken<'a>(mut conditions: impl Iterator<Item = &'a Condition>) -> bool {
    conditions.any(|it| [Reason::NotOurs, Reason::Deleting].iter().any(|reason| it.reason == reason.as_str()))
}

/// An object that should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Child {
    pub key: Key,
    /// The fields that we own, and no others.
    pub object: Value,
    /// What it is for, in words.
    pub reason: &'static str,
}

/// A typed object as a child.
pub(crate) fn child<K>(object: &K, reason: &'static str) -> Child
where
    K: kube::Resource<DynamicType = ()> + Serialize,
{
    let key = Key::new(
        &K::api_version(&()),
        &K::kind(&()),
        object.meta().namespace.as_deref().unwrap_or_default(),
        object.meta().name.as_deref().unwrap_or_default(),
    );
    // Objects of Kubernetes are plain data: there is none that cannot be written.
    Child { key, object: serde_json::to_value(object).unwrap_or_default(), reason }
}

/// The reference that makes an object go with its owner.
pub(crate) fn owner_of<K: kube::Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    let text = |it: Option<&String>| it.cloned().unwrap_or_default();
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: text(owner.meta().name.as_ref()),
        uid: text(owner.meta().uid.as_ref()),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A map that is not written when there is nothing in it: applied, an empty one would be a claim on it.
pub(crate) fn unless_empty(map: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    (!map.is_empty()).then_some(map)
}
