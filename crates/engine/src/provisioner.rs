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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(declared: &Value, plane: &Value, version: Option<&str>) -> String {
        let provisioner = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "metadata": {"name": "a"},
            "spec": {"controlPlaneRef": {"name": "main"}, "image": declared}});
        let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main"},
            "spec": plane, "status": {"version": version}});
        image(&serde_json::from_value(provisioner).unwrap(), &serde_json::from_value(plane).unwrap())
    }

    #[test]
    fn daemons_have_the_declared_image_or_the_control_planes_or_the_published_one_of_its_build() {
        let ours = json!({"image": "mirror.example.com/coder:v2.36.0"});
        let external =
            json!({"external": {"url": "https://coder.example.com", "credentialsSecretRef": {"name": "t"}}});
        assert_eq!(of(&json!("own:v1"), &ours, None), "own:v1");
        assert_eq!(of(&Value::Null, &ours, Some("v2.37.0")), "mirror.example.com/coder:v2.36.0");
        let published = api::published_image("v2.36.0");
        assert_eq!(of(&Value::Null, &external, Some("v2.36.0+abc")), published);
        assert_eq!(of(&Value::Null, &external, None), api::published_image("latest"));
    }
}
