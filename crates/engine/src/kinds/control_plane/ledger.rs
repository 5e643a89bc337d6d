//! The ledger of a control plane: what the operator made for it in its deployment and in other namespaces. Pure.

use api::{CoderControlPlane, LicenseDeletionPolicy};

use super::{license, operator_token_secret, workspace_roles};
use crate::pipeline::ledger::{Entry, Leaves, Ledger};

/// What the deletion of a control plane has to take back.
pub fn ledger(plane: &CoderControlPlane) -> Ledger {
    let secret = operator_token_secret(plane);
    let mut ledger = Ledger::new([
        // They need its address and its credentials: a control plane goes last.
        Entry::Dependents,
        Entry::Token { secret: secret.clone() },
        Entry::SecretFinalizer { secret },
    ]);
    let namespaces: Vec<String> = workspace_roles::recorded(plane).into_iter().collect();
    let is_managed = plane.spec.external.is_none();
    if is_managed {
        ledger.add(Entry::JobAccount);
    }
    if is_managed || !namespaces.is_empty() {
        ledger.add(Entry::Roles(namespaces));
    }
    if let Some(licenses) = license::entry(&license::recorded(plane)) {
        ledger.add(licenses);
    }
    ledger
}

/// What the deletion of a control plane leaves.
pub fn leaves(plane: &CoderControlPlane) -> Leaves {
    let licenses = plane.spec.license_deletion_policy() != LicenseDeletionPolicy::Delete;
    Leaves { object: false, licenses }
}
