//! What is particular about the objects of a provisioner.

use std::collections::BTreeMap;

use api::CoderProvisioner;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;

use super::names;
use crate::{
    objects::{Keeper, owner_of},
    ports::object::Key,
};

impl Keeper for CoderProvisioner {
    fn owner(&self) -> OwnerReference {
        owner_of(self)
    }

    fn labels(&self, _key: &Key) -> BTreeMap<String, String> {
        names::labels(&self.name_any())
    }

    fn former_deployment(&self) -> Option<String> {
        names::former_workload(self)
    }

    fn instead(&self, key: &Key) -> &'static str {
        match key.kind.as_str() {
            "ServiceAccount" => "use it as it is with serviceAccountName",
            _ => "give the provisioner another name",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        objects::{Child, ChildEffect, ObjectsSituation, plan},
        ports::object::Live,
    };

    fn deployment(name: &str, uid: &str) -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "platform", "uid": "9",
            "ownerReferences": [{"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "name": "x", "uid": uid,
                "controller": true}]}})
    }

    #[test]
    fn deployment_of_release_0_1_0_goes_once_its_successor_runs() {
        let name = format!("{}-{}", "a".repeat(41), "b".repeat(15));
        let provisioner: CoderProvisioner =
            serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
                "metadata": {"name": name, "namespace": "platform", "uid": "1"},
                "spec": {"controlPlaneRef": {"name": "main"}}}))
            .unwrap();
        let (now, former) = (names::workload(&provisioner), names::former_workload(&provisioner).unwrap());
        let child = |name: &str| Child {
            key: Key::new("apps/v1", "Deployment", "platform", name),
            object: deployment(name, "1"),
            reason: "the pods",
        };
        let deleted = |uid: &str, rolled_out: bool| {
            let live = [Live::new(deployment(&former, uid)).unwrap()];
            let children = [child(&now)];
            let planned = plan(&ObjectsSituation {
                keeper: &provisioner,
                children: &children,
                live: &live,
                rolled_out,
            });
            let deleted = planned.plan.steps.into_iter().filter_map(|it| match it.effect {
                ChildEffect::Delete { key, .. } => Some(key.name),
                _ => None,
            });
            deleted.collect::<Vec<_>>()
        };
        assert_eq!(deleted("1", true), std::slice::from_ref(&former));
        assert_eq!(deleted("1", false), [""; 0], "its daemons work until the others do");
        assert_eq!(deleted("2", true), [""; 0], "somebody else's");
    }
}
