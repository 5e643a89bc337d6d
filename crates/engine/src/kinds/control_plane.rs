//! A control plane: what it needs beyond the stages that every kind has.
//!
//! Every one needs access ([`access`]), licences ([`license`]) and a look at what they cover ([`entitlements`]). One that
//! we run is also a set of objects in the cluster. In the order in which a reconcile uses it:
//! [`references`] says which Secrets and `ConfigMap`s have to be read, [`facts`] reads them, [`children`] makes of the manifest
//! and these facts the objects that should be; [`workload`] compares them with those that are and applies them. Objects and licences are a
//! [`Kind`](crate::Kind) each over the same manifest: the controller reaches the deployment between the two.
//!
//! Names, labels and finalizers are those of coder-k8s, so that what it installed is taken over where it stands.

pub mod access;
pub mod account;
pub mod children;
pub mod entitlements;
pub mod facts;
pub mod identity;
mod keeper;
mod ledger;
pub mod license;
mod names;
pub mod status;
pub mod token_record;
pub mod token_secret;
mod unlooked;
pub mod version;
pub mod workload;
pub mod workspace_roles;

pub use children::{Desired, PlaneFacts, check_rule, consents, desire};
pub use ledger::{leaves, ledger};
pub use names::{admin_job as admin_job_name, operator_token_secret, selector, workspace_selector};
pub use workload::{PlaneObjects, Workload};

use api::CoderControlPlane;

use self::{access::OperatorAccess, license::Licenses};
use crate::{Kind as _, Ref};

/// Everything that a control plane refers to: its objects, its access and its licences.
pub fn refs(plane: &CoderControlPlane) -> Vec<Ref> {
    let (objects, access) = (PlaneObjects::refs(plane), OperatorAccess::refs(plane));
    objects.into_iter().chain(access).chain(Licenses::refs(plane)).collect()
}

/// The kinds of the objects that a control plane has in every cluster: group, version, kind.
pub const KINDS: [(&str, &str, &str); 6] = [
    ("", "v1", "ServiceAccount"),
    ("", "v1", "Service"),
    ("apps", "v1", "Deployment"),
    ("networking.k8s.io", "v1", "Ingress"),
    ("rbac.authorization.k8s.io", "v1", "Role"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
];
