//! Names and labels of what runs for a provisioner, as coder-k8s has them: other ones would leave its objects behind.

use std::collections::BTreeMap;

use api::{CoderProvisioner, label};
use kube::ResourceExt as _;

use crate::short::{cut, fnv};

/// The longest label, and the longest name that coder-k8s gives to anything but a Secret.
const LABEL: usize = 63;
/// The longest name of a Secret.
const NAME: usize = 253;
const PREFIX: &str = "provisioner-";
const ACCOUNT: &str = "-provisioner";
const SECRET: &str = "-provisioner-key";

/// The Deployment, the Role and the `RoleBinding`.
pub fn workload(provisioner: &CoderProvisioner) -> String {
    format!("{PREFIX}{}", fitting(&provisioner.name_any(), LABEL - PREFIX.len()))
}

/// The account that we make.
pub(super) fn account(name: &str) -> String {
    format!("{}{ACCOUNT}", fitting(name, LABEL - ACCOUNT.len()))
}

/// The Secret with the key.
pub(crate) fn secret(name: &str) -> String {
    format!("{}{SECRET}", fitting(name, NAME - SECRET.len()))
}

/// The labels of every object. Those of the pods can never change: a Deployment's selector is fixed.
pub fn labels(name: &str) -> BTreeMap<String, String> {
    let labels = [
        (label::NAME, "coder-provisioner".to_owned()),
        (label::INSTANCE, fitting(name, LABEL)),
        (label::MANAGED_BY, "coder-k8s".to_owned()),
    ];
    labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Finds the objects of a provisioner.
pub fn selector(provisioner: &CoderProvisioner) -> String {
    let labels = labels(&provisioner.name_any());
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// A name, or its beginning with a hash where it is longer.
fn fitting(name: &str, longest: usize) -> String {
    if name.len() <= longest {
        return name.to_owned();
    }
    let hash = fnv(&[name.as_bytes()]);
    format!("{}-{hash}", cut(name, longest - hash.len() - 1).trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_coder_k8s_and_long_ones_fit() {
        let provisioner = |name: &str| {
            serde_json::from_value(
                serde_json::json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
                "metadata": {"name": name}, "spec": {"controlPlaneRef": {"name": "main"}}}),
            )
            .unwrap()
        };
        assert_eq!(workload(&provisioner("alpha")), "provisioner-alpha");
        assert_eq!(account("alpha"), "alpha-provisioner");
        assert_eq!(secret("alpha"), "alpha-provisioner-key");
        let long = "a".repeat(100);
        let hash = fnv(&[long.as_bytes()]);
        assert_eq!(workload(&provisioner(&long)), format!("provisioner-{}-{hash}", "a".repeat(42)));
        assert_eq!(account(&long), format!("{}-{hash}-provisioner", "a".repeat(42)));
        assert_eq!(labels(&long)[label::INSTANCE].len(), 63);
        assert!(secret(&"a".repeat(253)).len() == 253);
        assert_eq!(
            selector(&provisioner("alpha")),
            "app.kubernetes.io/instance=alpha,app.kubernetes.io/managed-by=coder-k8s,app.kubernetes.io/name=coder-provisioner"
        );
    }
}
