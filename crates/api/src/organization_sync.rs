//! `CoderOrganizationSync`: the organization IdP sync settings of a deployment. One per control plane.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::{policy::Policy, reference::ControlPlaneRef, rules, schema, status::Status};

/// The organization IdP sync settings of a deployment: how a claim of the identity provider maps to organizations. One per
/// control plane. Fields that are absent are not changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderOrganizationSync",
    doc = "The organization IdP sync settings of a deployment",
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
    /// The control plane. Immutable.
    #[x_kube(validation = rules::immutable_control_plane())]
    pub control_plane_ref: ControlPlaneRef,
    #[serde(flatten)]
    pub policy: Policy,
    /// The claim that is read at login; empty disables the sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Whether every user is also a member of the default organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assign_default: Option<bool>,
    /// The organizations for each value of the claim, by name. The mapping is complete: other entries are removed, and `{}`
    /// removes all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::mapping")]
    pub mapping: Option<BTreeMap<String, Vec<String>>>,
}
