//! External provisioner daemons: what a provisioner needs beyond its key ([`provisioner_keys`](crate::provisioner_keys)).
//!
//! [`gate`] says whether the deployment may have them, [`children`] makes of the manifest and what is known the objects that
//! should be, [`daemons`] counts those that coderd sees, and [`report`] tells all of it in a status.

pub mod children;
pub mod daemons;
pub mod gate;
mod keeper;
pub mod names;
pub mod report;

use api::{CoderControlPlane, CoderProvisioner};
use kube::ResourceExt as _;

use crate::provisioner_keys::SecretPlace;

/// The kinds of the objects that a provisioner has: group, version, kind.
pub const KINDS: [(&str, &str, &str); 4] = [
    ("", "v1", "ServiceAccount"),
    ("rbac.authorization.k8s.io", "v1", "Role"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    ("apps", "v1", "Deployment"),
];

/// Where the value of the key is, or should be.
pub fn secret(provisioner: &CoderProvisioner) -> SecretPlace {
    let name = provisioner.spec.secret_name();
    SecretPlace {
        name: name.map_or_else(|| names::secret(&provisioner.name_any()), str::to_owned),
        key: provisioner.spec.secret_key().to_owned(),
    }
}

/// The image of the daemons: the declared one, the control plane's, or for one that runs elsewhere the published one of its
/// version.
pub fn image(provisioner: &CoderProvisioner, plane: &CoderControlPlane) -> String {
    if let Some(declared) = provisioner.spec.image() {
        return declared.to_owned();
    }
    if plane.spec.external.is_none() {
        return plane.spec.image().to_owned();
    }
    let version = plane.status.as_ref().and_then(|it| it.version.as_deref());
    // What comes after `+` tells builds apart; no tag has it.
    let tag = version.and_then(|it| it.split('+').next()).filter(|it| it.starts_with('v'));
    api::published_image(tag.unwrap_or("latest"))
}
