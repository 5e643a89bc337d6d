//! What all app-state kinds have in common, for code that serves every one of them.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use serde::{Serialize, de::DeserializeOwned};

use crate::{policy::Policy, status::Status};

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

/// A kind that declares state behind a control plane's API.
pub trait AppState: Manifest {
    /// The name of the control plane, which is in the same namespace.
    fn control_plane(&self) -> &str;
    fn policy(&self) -> &Policy;
    fn status(&self) -> Option<&Status>;
    fn set_status(&mut self, status: Status);
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

macro_rules! app_state {
    ($($module:ident: $kind:ident => $driver:ident),+ $(,)?; $($with_pods:ident: $other:ident),+ $(,)?) => {$(
        impl AppState for crate::$kind {
            fn control_plane(&self) -> &str {
                &self.spec.control_plane_ref.name
            }

            fn policy(&self) -> &Policy {
                &self.spec.policy
            }

            fn status(&self) -> Option<&Status> {
                self.status.as_ref().map(CommonStatus::common)
            }

            fn set_status(&mut self, status: Status) {
                self.status.get_or_insert_default().set_common(status);
            }
        }
    )+
        $(impl Manifest for crate::$kind {})+
        $(impl Manifest for crate::$other {})+
    };
}

for_each_kind!(app_state);
