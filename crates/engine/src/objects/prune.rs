//! What is ours and no longer declared.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Keeper, Key, ownership};

/// Kinds of which one may be too many. A Service never is, and of Deployments only one that an earlier release named otherwise:
/// a manifest without them is none.
const KINDS: [&str; 5] = ["Ingress", "HTTPRoute", "Role", "RoleBinding", "ServiceAccount"];

/// What becomes of an object that is no longer declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Going {
    Delete,
    /// It stays, and is nobody's.
    Release,
    /// It is needed by pods that are still there.
    Later,
}

/// What becomes of an object; nothing when it stays as it is: it is declared, or not ours.
pub(super) fn going(
    keeper: &impl Keeper,
    declared: &[&Key],
    key: &Key,
    live: &ObjectMeta,
    rolled_out: bool,
) -> Option<Going> {
    let is_former = key.kind == "Deployment" && keeper.former_deployment().as_ref() == Some(&key.name);
    let is_candidate = (is_former || KINDS.contains(&key.kind.as_str())) && !declared.contains(&key);
    if !is_candidate || live.deletion_timestamp.is_some() || !ownership::is_held(keeper, key, live) {
        return None;
    }
    if key.kind == "ServiceAccount" && keeper.releases_account() {
        return Some(Going::Release);
    }
    // After another account was declared, the pods of the former one still work with its rights.
    let has_successor = declared.iter().any(|it| it.kind == key.kind && it.namespace == key.namespace);
    let is_used = is_former || ["Role", "RoleBinding", "ServiceAccount"].contains(&key.kind.as_str());
    let is_used = is_used && has_successor;
    Some(if is_used && !rolled_out { Going::Later } else { Going::Delete })
}
