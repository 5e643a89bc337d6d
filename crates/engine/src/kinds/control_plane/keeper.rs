//! What is particular about the objects of a control plane: rights for workspaces may be in other namespaces, where no owner
//! reference can be.

use std::collections::BTreeMap;

use api::{CoderControlPlane, annotation, label};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt as _;

use super::{children::service_account_name, names};
use crate::{
    objects::{Keeper, owner_of},
    ports::object::Key,
};

impl Keeper for CoderControlPlane {
    fn owner(&self) -> OwnerReference {
        owner_of(self)
    }

    fn labels(&self, key: &Key) -> BTreeMap<String, String> {
        if !is_workspaces(key) {
            return names::labels(&self.name_any());
        }
        let mut labels = names::workspace_labels(&self.name_any(), &self.namespace().unwrap_or_default());
        // The two that name the control plane are enough, and older ones have no others.
        labels.retain(|name, _| {
            [label::CONTROL_PLANE, label::CONTROL_PLANE_NAMESPACE].contains(&name.as_str())
        });
        labels
    }

    fn is_recorded(&self, key: &Key, live: &ObjectMeta) -> bool {
        let mut annotations = live.annotations.iter().flatten();
        let recorded = annotations.find(|(name, _)| *name == annotation::WORKSPACE_RBAC_OWNER);
        is_workspaces(key)
            && match recorded {
                Some((_, recorded)) => Some(recorded) == self.metadata.uid.as_ref(),
                // Before coder-k8s recorded it, the name alone told whose it was.
                None => self.namespace().as_deref() != Some(&key.namespace) && is_expected(self, key),
            }
    }

    fn instead(&self, key: &Key) -> &'static str {
        match key.kind.as_str() {
            "Secret" => "set another operatorAccess.generatedTokenSecretName",
            "ServiceAccount" => {
                "use it as it is with serviceAccount.disableCreate, or set another serviceAccount.name"
            }
            _ => "give the control plane another name",
        }
    }

    fn leaves_replicas(&self) -> bool {
        self.spec.replicas.is_none()
    }

    fn releases_account(&self) -> bool {
        self.spec.service_account.as_ref().is_some_and(|it| !it.is_created())
    }
}

fn is_workspaces(key: &Key) -> bool {
    ["Role", "RoleBinding"].contains(&key.kind.as_str())
}

fn is_expected(plane: &CoderControlPlane, key: &Key) -> bool {
    let (account, name) = (service_account_name(plane), plane.name_any());
    let namespace = plane.namespace().unwrap_or_default();
    let expected = match key.kind.as_str() {
        "Role" => names::workspace_role(&account, &name, &namespace),
        _ => names::workspace_binding(&account, &name, &namespace),
    };
    key.name == expected
}

#[cfg(test)]
mod tests;
