//! `CoderOrganizationSync`: which organizations the identity provider puts people into. One per control plane.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::{policy::Policy, reference::ControlPlaneRef, rules, schema, status::Status};

/// How a claim of the identity provider decides who is in which organization. One per control plane. A field that is
/// absent is left as it is found.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderOrganizationSync",
    doc = "How a claim of the identity provider decides who is in which organization",
    namespaced,
    status = "Status",
    shortname = "corgsync",
    printcolumn = r#"{"name":"Field","type":"string","jsonPath":".spec.field"}"#,
    category = "coder",
    selectable = ".spec.controlPlaneRef.name",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.conditions[?(@.type==\"Drifted\")].status"}"#,
    printcolumn = r#"{"name":"Control plane","type":"string","priority":1,"jsonPath":".spec.controlPlaneRef.name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct CoderOrganizationSyncSpec {
    /// The control plane to which this belongs. It cannot be changed.
    #[x_kube(validation = rules::immutable_control_plane())]
    pub control_plane_ref: ControlPlaneRef,
    #[serde(flatten)]
    pub policy: Policy,
    /// The claim that is read at login; empty switches the synchronization off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Whether everybody is also put into the default organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assign_default: Option<bool>,
    /// For each value of the claim, the organizations by name. This is the whole mapping: an entry that is not here is
    /// removed, and `{}` removes all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::mapping")]
    pub mapping: Option<BTreeMap<String, Vec<String>>>,
}
