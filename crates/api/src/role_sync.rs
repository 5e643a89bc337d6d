//! `CoderRoleSync`: the role IdP sync settings of an organization. One per organization.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::{
    DEFAULT_ORGANIZATION, policy::Policy, reference::ControlPlaneRef, rules, schema, status::Status,
};

/// The role IdP sync settings of an organization: how a claim of the identity provider maps to roles. One per
/// organization. Fields that are absent are not changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderRoleSync",
    doc = "The role IdP sync settings of an organization",
    namespaced,
    status = "Status",
    shortname = "crolesync",
    printcolumn = r#"{"name":"Organization","type":"string","jsonPath":".spec.organization"}"#,
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
#[x_kube(validation = rules::immutable_organization())]
pub struct CoderRoleSyncSpec {
    /// The control plane. Immutable.
    #[x_kube(validation = rules::immutable_control_plane())]
    pub control_plane_ref: ControlPlaneRef,
    #[serde(flatten)]
    pub policy: Policy,
    /// The organization, by name. Defaults to `default`, the default organization whatever its name. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = rules::name())]
    pub organization: Option<String>,
    /// The claim that is read at login; empty disables the sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The roles of this organization for each value of the claim, by name: built-in roles such as `organization-admin`,
    /// and custom roles. The mapping is complete: other entries are removed, and `{}` removes all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::mapping")]
    pub mapping: Option<BTreeMap<String, Vec<String>>>,
}

impl CoderRoleSync {
    /// The organization's name, or `default` for the default one.
    pub fn organization(&self) -> &str {
        self.spec.organization.as_deref().unwrap_or(DEFAULT_ORGANIZATION)
    }
}
