//! Whose an object of the cluster is. Nothing that is somebody else's is written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::{Keeper, Key, migrate};

/// Whose an object is, seen from one manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// Nobody's: it does not exist.
    Free,
    /// This manifest's, and we keep it.
    Ours,
    /// This manifest's, and coder-k8s kept it last.
    Predecessors,
    /// It is being deleted; there is nothing to do but wait.
    Leaving,
    /// Somebody else's, in words.
    Foreign(String),
}

/// Whose an object is. An owner reference decides where there is one, and the labels where there is none.
pub fn holder(keeper: &impl Keeper, key: &Key, live: Option<&ObjectMeta>) -> Ownership {
    let Some(live) = live else { return Ownership::Free };
    if live.deletion_timestamp.is_some() {
        return Ownership::Leaving;
    }
    if let Some(owner) = controller(live)
        && owner.uid != keeper.owner().uid
    {
        return Ownership::Foreign(belongs_to(keeper, key, owner));
    }
    if !is_held(keeper, key, live) && !has_labels(keeper, key, live) {
        return Ownership::Foreign(format!(
            "{key} exists and is not owned by this object: nothing of it was changed. Delete it, or {}",
            keeper.instead(key)
        ));
    }
    let entries = live.managed_fields.as_deref().unwrap_or_default();
    if entries.iter().any(migrate::is_predecessors) { Ownership::Predecessors } else { Ownership::Ours }
}

/// Whether an object is recorded as this very manifest's. Labels prove nothing here: anybody can set them, and what
/// is held may be deleted.
pub(crate) fn is_held(keeper: &impl Keeper, key: &Key, live: &ObjectMeta) -> bool {
    let uid = keeper.owner().uid;
    !uid.is_empty()
        && (controller(live).is_some_and(|it| it.uid == uid)
            || (keeper.is_recorded(key, live) && has_labels(keeper, key, live)))
}

fn controller(live: &ObjectMeta) -> Option<&OwnerReference> {
    live.owner_references.iter().flatten().find(|it| it.controller == Some(true))
}

fn has_labels(keeper: &impl Keeper, key: &Key, live: &ObjectMeta) -> bool {
    let found = live.labels.clone().unwrap_or_default();
    keeper.labels(key).iter().all(|(name, value)| found.get(name) == Some(value))
}

fn belongs_to(keeper: &impl Keeper, key: &Key, owner: &OwnerReference) -> String {
    let (OwnerReference { kind, name, uid, .. }, ours) = (owner, keeper.owner());
    if *kind == ours.kind && *name == ours.name {
        return format!(
            "{key} belongs to an earlier {kind} {name} (uid {uid}): nothing of it was changed. It is deleted with \
             that owner; to keep it, remove its owner reference"
        );
    }
    format!(
        "{key} belongs to {kind} {name}: nothing of it was changed. Delete it, or {}",
        keeper.instead(key)
    )
}
