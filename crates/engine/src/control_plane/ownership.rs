//! Whose an object of the cluster is. Nothing that is somebody else's is written.

use api::{CoderControlPlane, annotation, label};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource as _, ResourceExt as _};

use super::{Key, migrate, names};

/// Whose an object is, seen from one control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// Nobody's: it does not exist.
    Free,
    /// This control plane's, and we keep it.
    Ours,
    /// This control plane's, and coder-k8s kept it last.
    Predecessors,
    /// It is being deleted; there is nothing to do but wait.
    Leaving,
    /// Somebody else's, in words.
    Foreign(String),
}

/// Whose an object is. An owner reference decides where there is one, and the labels where there is none.
pub fn holder(plane: &CoderControlPlane, key: &Key, live: Option<&ObjectMeta>) -> Holder {
    let Some(live) = live else { return Holder::Free };
    if live.deletion_timestamp.is_some() {
        return Holder::Leaving;
    }
    if let Some(owner) = controller(live)
        && Some(&owner.uid) != plane.meta().uid.as_ref()
    {
        return Holder::Foreign(belongs_to(plane, key, owner));
    }
    if !is_held(plane, key, live) && !has_labels(plane, key, live) {
        return Holder::Foreign(format!(
            "{key} exists and is not ours: nothing of it was changed. Delete it, or {}",
            instead(key)
        ));
    }
    let entries = live.managed_fields.as_deref().unwrap_or_default();
    if entries.iter().any(migrate::is_predecessors) { Holder::Predecessors } else { Holder::Ours }
}

/// Whether an object is recorded as this very control plane's. Labels prove nothing here: anybody can set them, and what
/// is held may be deleted.
pub(super) fn is_held(plane: &CoderControlPlane, key: &Key, live: &ObjectMeta) -> bool {
    let Some(uid) = plane.uid() else { return false };
    if controller(live).is_some_and(|it| it.uid == uid) {
        return true;
    }
    let recorded =
        live.annotations.iter().flatten().find(|(name, _)| *name == annotation::WORKSPACE_RBAC_OWNER);
    let is_ours = match recorded {
        Some((_, recorded)) => *recorded == uid,
        // Before coder-k8s recorded it, the name alone told whose it was.
        None => is_elsewhere(plane, key) && is_expected(plane, key),
    };
    is_workspaces(key) && is_ours && has_labels(plane, key, live)
}

fn controller(live: &ObjectMeta) -> Option<&OwnerReference> {
    live.owner_references.iter().flatten().find(|it| it.controller == Some(true))
}

fn is_workspaces(key: &Key) -> bool {
    ["Role", "RoleBinding"].contains(&key.kind.as_str())
}

fn is_elsewhere(plane: &CoderControlPlane, key: &Key) -> bool {
    plane.namespace().as_deref() != Some(&key.namespace)
}

fn is_expected(plane: &CoderControlPlane, key: &Key) -> bool {
    let (account, name) = (super::children::service_account_name(plane), plane.name_any());
    let namespace = plane.namespace().unwrap_or_default();
    let expected = match key.kind.as_str() {
        "Role" => names::workspace_role(&account, &name, &namespace),
        _ => names::workspace_binding(&account, &name, &namespace),
    };
    key.name == expected
}

/// Whether it carries the labels of this control plane's objects.
fn has_labels(plane: &CoderControlPlane, key: &Key, live: &ObjectMeta) -> bool {
    let mut expected = if is_workspaces(key) {
        names::workspace_labels(&plane.name_any(), &plane.namespace().unwrap_or_default())
    } else {
        names::labels(&plane.name_any())
    };
    if is_workspaces(key) {
        // The two that name the control plane are enough, and older ones have no others.
        expected.retain(|name, _| {
            [label::CONTROL_PLANE, label::CONTROL_PLANE_NAMESPACE].contains(&name.as_str())
        });
    }
    let found = live.labels.clone().unwrap_or_default();
    expected.iter().all(|(name, value)| found.get(name) == Some(value))
}

fn belongs_to(plane: &CoderControlPlane, key: &Key, owner: &OwnerReference) -> String {
    let OwnerReference { kind, name, uid, .. } = owner;
    let is_namesake = *kind == CoderControlPlane::kind(&()) && *name == plane.name_any();
    if is_namesake {
        return format!(
            "{key} belongs to an earlier {kind} {name} (uid {uid}): nothing of it was changed. It goes with that one; to keep \
             it, remove its owner reference"
        );
    }
    format!("{key} belongs to {kind} {name}: nothing of it was changed. Delete it, or {}", instead(key))
}

/// What a person can do other than delete it.
fn instead(key: &Key) -> &'static str {
    match key.kind.as_str() {
        "Secret" => "set another operatorAccess.generatedTokenSecretName",
        "ServiceAccount" => {
            "use it as it is with serviceAccount.disableCreate, or set another serviceAccount.name"
        }
        _ => "give the control plane another name",
    }
}

#[cfg(test)]
mod tests;
