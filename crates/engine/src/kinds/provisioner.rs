//! External provisioner daemons: what a provisioner needs beyond its key ([`provisioner_keys`](crate::secrets)).
//!
//! [`reconcile`](reconcile::reconcile) runs the stages of one reconcile. [`gate`] decides whether the deployment may have daemons,
//! [`children`] are the objects that the manifest declares, [`daemons`] counts the daemons that coderd sees, and [`report`] is the
//! status.

pub mod children;
mod compared;
pub mod daemons;
pub mod gate;
mod keeper;
pub mod keys;
pub mod ledger;
pub mod names;
mod observed;
pub mod patience;
mod plan;
pub mod reach;
pub mod reconcile;
pub mod status;
pub mod subject;
mod workload;

use api::{CoderControlPlane, CoderProvisioner, ProvisionerKeyState, Reason};
use kube::ResourceExt as _;

use crate::{
    kinds::control_plane::version,
    objects::Keeper as _,
    pipeline::{outcome::Blocked, remote_name::RemoteName},
    secrets::{Holder, SecretPlace, Verified, holders::KeyHolder, mirror::of_status},
};

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

/// The objects of the deployment that a provisioner refers to.
pub fn refs(provisioner: &CoderProvisioner) -> Vec<RemoteName> {
    vec![RemoteName::Organization(provisioner.spec.organization().to_owned())]
}

/// Whether a provisioner refers to a Secret, so that a change there is worth a reconcile.
pub fn refers_to_secret(provisioner: &CoderProvisioner, name: &str) -> bool {
    let bootstrap = provisioner.spec.bootstrap.as_ref().map(|it| it.token().0);
    let recorded = provisioner.status.as_ref().and_then(|it| it.key.secret_ref.as_ref());
    bootstrap == Some(name) || secret(provisioner).name == name || recorded.is_some_and(|it| it.name == name)
}

impl KeyHolder for CoderProvisioner {
    fn keys(&self) -> Option<&ProvisionerKeyState> {
        self.status.as_ref().map(|it| &it.key)
    }

    fn is_in(&self, secret: &str) -> bool {
        refers_to_secret(self, secret)
    }
}

/// The object that has the keys of a provisioner.
pub fn holder(provisioner: &CoderProvisioner) -> Holder {
    let labels = names::labels(&provisioner.name_any());
    Holder { verified: verified(provisioner), ..Holder::new(provisioner, labels, Some(provisioner.owner())) }
}

/// The Secret in which the value of the key was last verified, by the status.
fn verified(provisioner: &CoderProvisioner) -> Option<Verified> {
    let status = provisioner.status.as_ref()?;
    Some(Verified {
        place: of_status(&status.key, "").secret?,
        version: status.secret_version.clone()?,
        checksum: status.key.provisioner_key_checksum.clone()?,
    })
}

/// The image of the daemons, if they may have it now: a control plane has it first.
pub fn image(provisioner: &CoderProvisioner, plane: &CoderControlPlane) -> Result<String, Blocked> {
    let status = plane.status.as_ref();
    let image = chosen(provisioner, plane);
    if provisioner.spec.image().is_none() && plane.spec.external.is_none() {
        let database = status.and_then(|it| it.database_version.as_deref());
        version::check(&image, database).map_err(|_| Blocked {
            reason: Reason::ControlPlaneNotReady,
            message: format!(
                "control plane {} refuses {image}, and so do its daemons: its own status says more",
                plane.name_any()
            ),
        })?;
    }
    version::check_daemon(&image, status.and_then(|it| it.version.as_deref()))?;
    Ok(image)
}

/// The declared image, the control plane's, or for one that runs elsewhere the published one of its version.
fn chosen(provisioner: &CoderProvisioner, plane: &CoderControlPlane) -> String {
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

    fn pair(declared: &Value, plane: &Value, version: Option<&str>) -> (CoderProvisioner, CoderControlPlane) {
        let provisioner = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "metadata": {"name": "a"},
            "spec": {"controlPlaneRef": {"name": "main"}, "image": declared}});
        let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main"},
            "spec": plane, "status": {"version": version, "databaseVersion": version}});
        (serde_json::from_value(provisioner).unwrap(), serde_json::from_value(plane).unwrap())
    }

    fn of(declared: &Value, plane: &Value, version: Option<&str>) -> Result<String, Blocked> {
        let (provisioner, plane) = pair(declared, plane, version);
        image(&provisioner, &plane)
    }

    #[test]
    fn daemons_have_the_declared_image_or_the_control_planes_or_the_published_one_of_its_build() {
        let ours = json!({"image": "mirror.example.com/coder:v2.36.0"});
        let external =
            json!({"external": {"url": "https://coder.example.com", "credentialsSecretRef": {"name": "t"}}});
        let image = |declared: &Value, plane: &Value, version| of(declared, plane, version).unwrap();
        assert_eq!(image(&json!("own:v1"), &ours, None), "own:v1");
        assert_eq!(image(&Value::Null, &ours, Some("v2.36.0+abc")), "mirror.example.com/coder:v2.36.0");
        let published = api::published_image("v2.36.0");
        assert_eq!(image(&Value::Null, &external, Some("v2.36.0+abc")), published);
        assert_eq!(image(&Value::Null, &external, None), api::published_image("latest"));
    }

    #[test]
    fn daemons_do_not_go_where_their_control_plane_is_not_yet_or_does_not_go() {
        let at = |tag: &str| json!({"image": format!("mirror.example.com/coder:{tag}")});
        for (tag, word) in [("v2.37.0", "is as new"), ("v2.35.0", "main refuses")] {
            let held = of(&Value::Null, &at(tag), Some("v2.36.0+abc")).unwrap_err();
            assert_eq!(held.reason, Reason::ControlPlaneNotReady);
            assert!(held.message.contains(word) && held.message.contains(tag), "{}", held.message);
        }
        let older = of(&json!("own:v2.35.0"), &at("v2.36.0"), Some("v2.36.0+abc"));
        assert_eq!(older.as_deref(), Ok("own:v2.35.0"), "a person may say another one");
    }
}
