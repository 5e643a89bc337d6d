//! What is particular about the objects of a provisioner.

use std::collections::BTreeMap;

use api::CoderProvisioner;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt as _;

use super::names;
use crate::objects::{Keeper, Key, owner_of};

impl Keeper for CoderProvisioner {
    fn owner(&self) -> OwnerReference {
        owner_of(self)
    }

    fn labels(&self, _key: &Key) -> BTreeMap<String, String> {
        names::labels(&self.name_any())
    }

    fn instead(&self, key: &Key) -> &'static str {
        match key.kind.as_str() {
            "ServiceAccount" => "use it as it is with serviceAccountName",
            _ => "give the provisioner another name",
        }
    }
}
