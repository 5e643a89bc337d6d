//! What all app-state kinds have in common, for code that serves every one of them.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use serde::{Serialize, de::DeserializeOwned};

use crate::{policy::Policy, status::Status};

/// A kind that declares state behind a control plane's API.
pub trait AppState:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// The name of the control plane, which is in the same namespace.
    fn control_plane(&self) -> &str;
    fn policy(&self) -> &Policy;
    fn status(&self) -> Option<&Status>;
    fn set_status(&mut self, status: Status);
}

macro_rules! app_state {
    ($($kind:ident $(with $common:ident)?),+ $(,)?) => {$(
        impl AppState for crate::$kind {
            fn control_plane(&self) -> &str {
                &self.spec.control_plane_ref.name
            }

            fn policy(&self) -> &Policy {
                &self.spec.policy
            }

            fn status(&self) -> Option<&Status> {
                self.status.as_ref()$(.map(|it| &it.$common))?
            }

            fn set_status(&mut self, status: Status) {
                app_state!(@set self.status, status $(, $common)?);
            }
        }
    )+};
    (@set $place:expr, $status:ident) => {
        $place = Some($status)
    };
    // What a kind reports beyond the common part stays as it is.
    (@set $place:expr, $status:ident, $common:ident) => {
        $place.get_or_insert_default().$common = $status
    };
}

app_state!(
    CoderAppearance,
    CoderGroup,
    CoderGroupSync,
    CoderOrganization,
    CoderOrganizationSync,
    CoderProvisionerKey with common,
    CoderRoleSync,
);
