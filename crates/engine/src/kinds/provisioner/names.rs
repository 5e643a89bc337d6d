//! Names and labels of what runs for a provisioner, as coder-k8s has them: other ones would leave its objects behind.

use std::collections::{BTreeMap, BTreeSet};

use api::{CoderProvisioner, label};
use kube::{
    ResourceExt as _,
    core::{Expression, Selector},
};

use crate::pipeline::short::{cut, fnv};

/// The longest label, and the longest name that coder-k8s gives to anything but a Secret.
const LABEL: usize = 63;
/// The longest name of a Secret.
const NAME: usize = 253;
const PREFIX: &str = "provisioner-";
const ACCOUNT: &str = "-provisioner";
const SECRET: &str = "-provisioner-key";

/// The Deployment, the Role and the `RoleBinding`.
pub fn workload(provisioner: &CoderProvisioner) -> String {
    format!("{PREFIX}{}", object_name(&provisioner.name_any(), LABEL - PREFIX.len()))
}

/// The Deployment that release 0.1.0 of this operator made, where it cut a long name elsewhere.
pub fn former_workload(provisioner: &CoderProvisioner) -> Option<String> {
    let former = format!("{PREFIX}{}", trimmed(&provisioner.name_any(), LABEL - PREFIX.len()));
    (former != workload(provisioner)).then_some(former)
}

/// The account that we make.
pub(super) fn account(name: &str) -> String {
    format!("{}{ACCOUNT}", object_name(name, LABEL - ACCOUNT.len()))
}

/// The Secret with the key.
pub(crate) fn secret(name: &str) -> String {
    format!("{}{SECRET}", object_name(name, NAME - SECRET.len()))
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

/// Finds the objects of a provisioner that have the labels of now.
pub fn selector(provisioner: &CoderProvisioner) -> String {
    let labels = labels(&provisioner.name_any());
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// The same, and those that release 0.1.0 of this operator labelled otherwise.
pub fn wide_selector(provisioner: &CoderProvisioner) -> Selector {
    let name = provisioner.name_any();
    let instances = BTreeSet::from([fitting(&name, LABEL), trimmed(&name, LABEL)]);
    let mut selector = all_selector();
    selector.extend([Expression::In(label::INSTANCE.to_owned(), instances)]);
    selector
}

/// Finds the objects of all provisioners, whichever release labelled them.
pub fn all_selector() -> Selector {
    let mut labels = labels("");
    labels.remove(label::INSTANCE);
    labels.into_iter().collect()
}

/// A name, or its beginning with a hash where it is longer.
fn fitting(name: &str, longest: usize) -> String {
    if name.len() <= longest {
        return name.to_owned();
    }
    let hash = fnv(&[name.as_bytes()]);
    format!("{}-{hash}", cut(name, longest - hash.len() - 1))
}

/// The same for the name of an object, where nothing may follow a dot but a letter or a digit. coder-k8s has no object whose
/// name is cut there: the API server refuses it.
fn object_name(name: &str, longest: usize) -> String {
    let fitting = fitting(name, longest);
    if fitting.contains(".-") { trimmed(name, longest) } else { fitting }
}

/// The same without hyphens and dots where the name is cut, as release 0.1.0 of this operator had it.
fn trimmed(name: &str, longest: usize) -> String {
    if name.len() <= longest {
        return name.to_owned();
    }
    let hash = fnv(&[name.as_bytes()]);
    format!("{}-{hash}", cut(name, longest - hash.len() - 1).trim_end_matches(['-', '.']))
}

/// What the plan of a provisioner is about.
pub(super) fn target(provisioner: &CoderProvisioner) -> String {
    let name = provisioner.name_any();
    // Provisioners of the same name in two namespaces are two.
    let name = provisioner.namespace().map_or_else(|| name.clone(), |it| format!("{it}/{name}"));
    format!("provisioner {name}")
}

#[cfg(test)]
mod tests {
    use kube::core::SelectorExt as _;

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

    fn named(name: &str) -> CoderProvisioner {
        serde_json::from_value(
            serde_json::json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
            "metadata": {"name": name}, "spec": {"controlPlaneRef": {"name": "main"}}}),
        )
        .unwrap()
    }

    #[test]
    fn long_names_are_cut_where_coder_k8s_cuts_them() {
        // The 42nd character, at which names of Deployments and accounts are cut, is a hyphen.
        let name = format!("{}-{}", "a".repeat(41), "b".repeat(15));
        let hash = fnv(&[name.as_bytes()]);
        assert_eq!(workload(&named(&name)), format!("provisioner-{}--{hash}", "a".repeat(41)));
        assert_eq!(account(&name), format!("{}--{hash}-provisioner", "a".repeat(41)));
        assert_eq!(labels(&name)[label::INSTANCE], name, "a label has room for it");
        // The 54th, at which labels are.
        let name = format!("{}-{}", "a".repeat(53), "b".repeat(20));
        let hash = fnv(&[name.as_bytes()]);
        assert_eq!(labels(&name)[label::INSTANCE], format!("{}--{hash}", "a".repeat(53)));
        // A label may be cut after a dot, a name may not.
        let dotted = format!("{}.{}.{}", "a".repeat(41), "b".repeat(11), "c".repeat(20));
        let hash = fnv(&[dotted.as_bytes()]);
        assert_eq!(workload(&named(&dotted)), format!("provisioner-{}-{hash}", "a".repeat(41)));
        let label = format!("{}.{}.-{hash}", "a".repeat(41), "b".repeat(11));
        assert_eq!(labels(&dotted)[label::INSTANCE], label);
        // The 228th, at which names of Secrets are.
        let name = format!("{}-{}", "a".repeat(227), "b".repeat(20));
        let hash = fnv(&[name.as_bytes()]);
        assert_eq!(secret(&name), format!("{}--{hash}-provisioner-key", "a".repeat(227)));
    }

    #[test]
    fn objects_of_release_0_1_0_are_found_under_their_names() {
        for short in ["alpha", &"a".repeat(63), &format!("{}-b", "a".repeat(40))] {
            assert_eq!(former_workload(&named(short)), None);
            assert!(wide_selector(&named(short)).matches(&labels(short)));
        }
        let name = format!("{}-{}-{}", "a".repeat(41), "b".repeat(11), "c".repeat(20));
        let hash = fnv(&[name.as_bytes()]);
        assert_eq!(former_workload(&named(&name)), Some(format!("provisioner-{}-{hash}", "a".repeat(41))));
        let start = format!("{}-{}", "a".repeat(41), "b".repeat(11));
        let both = wide_selector(&named(&name));
        for (instance, is_found) in
            [(format!("{start}--{hash}"), true), (format!("{start}-{hash}"), true), (start.clone(), false)]
        {
            let mut labels = labels(&name);
            labels.insert(label::INSTANCE.to_owned(), instance);
            assert_eq!(both.matches(&labels), is_found, "{labels:?}");
            labels.insert(label::NAME.to_owned(), "coder-control-plane".to_owned());
            assert!(!both.matches(&labels));
        }
    }
}
