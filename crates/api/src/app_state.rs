//! What all app-state kinds have in common, for code that serves every one of them.

use std::{borrow::Cow, fmt::Debug};

use k8s_openapi::NamespaceResourceScope;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    policy::{DeletionPolicy, Policy},
    status::Status,
};

/// A manifest of one of our kinds.
pub trait Manifest:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

/// A manifest with the policy and the status that all kinds have.
pub trait AppState: Manifest {
    /// The name of the control plane, which is in the same namespace. A control plane has its own.
    fn control_plane(&self) -> &str;
    fn policy(&self) -> Cow<'_, Policy>;
    fn status(&self) -> Option<&Status>;
    fn set_status(&mut self, status: Status);
    /// Takes over the whole status of another version of the same manifest.
    fn take_status(&mut self, from: &Self);
}

/// A status with the part that every app-state kind reports.
pub trait CommonStatus: Default {
    fn common(&self) -> &Status;
    /// Replaces the common part. What a kind reports beyond it stays as it is.
    fn set_common(&mut self, common: Status);
}

impl CommonStatus for Status {
    fn common(&self) -> &Status {
        self
    }

    fn set_common(&mut self, common: Status) {
        *self = common;
    }
}

/// Implements [`AppState`] for a kind whose policy is made from its spec by an expression.
macro_rules! app_state_of {
    ($kind:ident, $spec:ident => $policy:expr) => {
        app_state_of!($kind, it => &it.spec.control_plane_ref.name, $spec => $policy);
    };
    ($kind:ident, $manifest:ident => $control_plane:expr, $spec:ident => $policy:expr) => {
        impl AppState for crate::$kind {
            fn control_plane(&self) -> &str {
                let $manifest = self;
                $control_plane
            }

            fn policy(&self) -> Cow<'_, Policy> {
                let $spec = &self.spec;
                $policy
            }

            fn status(&self) -> Option<&Status> {
                self.status.as_ref().map(CommonStatus::common)
            }

            fn set_status(&mut self, status: Status) {
                self.status.get_or_insert_default().set_common(status);
            }

            fn take_status(&mut self, from: &Self) {
                self.status.clone_from(&from.status);
            }
        }
    };
}

macro_rules! app_state {
    ($($module:ident: $kind:ident => $driver:ident),+ $(,)?; $($with_pods:ident: $other:ident),+ $(,)?) => {
        $(app_state_of!($kind, spec => Cow::Borrowed(&spec.policy));)+
        $(impl Manifest for crate::$kind {})+
        $(impl Manifest for crate::$other {})+
    };
}

for_each_kind!(app_state);

// The keys of a provisioner go with it.
app_state_of!(CoderProvisioner, spec => Cow::Owned(Policy {
    suspend: spec.suspend,
    interval: spec.interval,
    deletion_policy: Some(DeletionPolicy::Delete),
    ..spec.changes.policy()
}));

// What the operator made for a control plane goes with it.
app_state_of!(CoderControlPlane, plane => plane.metadata.name.as_deref().unwrap_or_default(), spec => Cow::Owned(Policy {
    suspend: spec.suspend,
    interval: spec.interval,
    deletion_policy: Some(DeletionPolicy::Delete),
    ..spec.changes.policy()
}));
