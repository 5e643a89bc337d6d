//! `CoderGroupSync`: the group IdP sync settings of an organization. One per organization.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema, core::Rule};
use serde::{Deserialize, Serialize};

use crate::{
    DEFAULT_ORGANIZATION, policy::Policy, reference::ControlPlaneRef, rules, schema, status::Status,
};

/// The group IdP sync settings of an organization: how a claim of the identity provider maps to groups. One per
/// organization. Fields that are absent are not changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderGroupSync",
    doc = "The group IdP sync settings of an organization",
    namespaced,
    status = "Status",
    shortname = "cgroupsync",
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
pub struct CoderGroupSyncSpec {
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
    /// A regular expression (RE2). Values of the claim that do not match are ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = is_regular_expression())]
    pub regex_filter: Option<String>,
    /// Whether Coder creates a group for a value of the claim that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_create_missing_groups: Option<bool>,
    /// The groups of this organization for each value of the claim, by name. The mapping is complete: other entries are
    /// removed, and `{}` removes all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::mapping")]
    pub mapping: Option<BTreeMap<String, Vec<String>>>,
}

impl CoderGroupSync {
    /// The organization's name, or `default` for the default one.
    pub fn organization(&self) -> &str {
        self.spec.organization.as_deref().unwrap_or(DEFAULT_ORGANIZATION)
    }
}

/// True of every expression that can be read. One that cannot be is an error on both sides, and the API server then
/// says what is wrong with it. It reads what Coder reads: both are written in Go.
fn is_regular_expression() -> Rule {
    Rule::new("''.matches(self) || !''.matches(self)").message("must be a regular expression (RE2)")
}
