//! The kinds, one file each, and the one place that lists them.

pub mod appearance;
pub mod group;
pub mod group_sync;
mod mapping;
pub mod organization;
pub mod organization_sync;
pub mod provisioner_key;
pub mod role_sync;

pub use appearance::Appearance;
pub use group::Group;
pub use group_sync::GroupSync;
pub use organization::Organization;
pub use organization_sync::OrganizationSync;
pub use provisioner_key::ProvisionerKey;
pub use role_sync::RoleSync;

use api::CoderProvisioner;
use kube::Resource as _;
use serde_json::Value;

use crate::{
    assess::{Object, Subject},
    kind::Kind,
    provisioner::subject::Provisioner,
};

/// Somebody who does the same with every kind.
pub trait Visitor {
    fn visit<K: Kind>(&mut self);
}

/// Reads a manifest of any kind that can be compared, kinds with objects of their own included. `None` for other kinds.
pub fn subject(kind: &str, manifest: &Value) -> Option<Result<Box<dyn Subject>, serde_json::Error>> {
    if kind == CoderProvisioner::kind(&()) {
        return Some(Provisioner::parse(manifest).map(|it| Box::new(it) as Box<dyn Subject>));
    }
    parse(kind, manifest)
}

/// Registers kinds: a line for each makes it one that every door knows.
macro_rules! register {
    ($($kind:ident),+ $(,)?) => {
        /// The names of the registered kinds.
        pub fn names() -> Vec<String> {
            vec![$(<$kind as Kind>::Manifest::kind(&()).into_owned()),+]
        }

        /// Shows every registered kind to a visitor, with its type.
        pub fn visit(visitor: &mut impl Visitor) {
            $(visitor.visit::<$kind>();)+
        }

        /// Reads a manifest of a registered kind; nothing when its kind is not one.
        pub fn parse(kind: &str, manifest: &Value) -> Option<Result<Box<dyn Subject>, serde_json::Error>> {
            $(if kind == <$kind as Kind>::Manifest::kind(&()) {
                return Some(Object::<$kind>::parse(manifest).map(|it| Box::new(it) as Box<dyn Subject>));
            })+
            None
        }
    };
}

register!(Appearance, Group, GroupSync, Organization, OrganizationSync, ProvisionerKey, RoleSync);
