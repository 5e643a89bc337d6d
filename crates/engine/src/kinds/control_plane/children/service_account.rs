//! The `ServiceAccount` of the pods.

use api::CoderControlPlane;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt as _;

use super::{Child, child, metadata, unless_empty};

/// Its name, whoever made it.
pub(in crate::kinds::control_plane) fn name(plane: &CoderControlPlane) -> String {
    let declared = plane.spec.service_account.as_ref().and_then(api::ServiceAccountSpec::name);
    declared.map_or_else(|| plane.name_any(), str::to_owned)
}

/// Nothing when it is somebody else's.
pub(super) fn desire(plane: &CoderControlPlane) -> Option<Child> {
    let spec = plane.spec.service_account.clone().unwrap_or_default();
    if !spec.is_created() {
        return None;
    }
    let mut metadata = metadata(plane);
    metadata.name = Some(name(plane));
    metadata.labels.get_or_insert_default().extend(spec.labels.unwrap_or_default());
    metadata.annotations = spec.annotations.and_then(unless_empty);
    Some(child(&ServiceAccount { metadata, ..ServiceAccount::default() }, "the account of the pods"))
}
