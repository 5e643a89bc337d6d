//! `CoderOrganization`: an organization.

use kube::{CustomResource, KubeSchema, core::Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{policy::Policy, reference::ControlPlaneRef, rules, status::Status};

/// An organization of a Coder deployment. Fields that are absent are not changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderOrganization",
    doc = "An organization of a Coder deployment",
    namespaced,
    status = "Status",
    shortname = "corg",
    printcolumn = r#"{"name":"Organization","type":"string","jsonPath":".spec.name"}"#,
    category = "coder",
    selectable = ".spec.controlPlaneRef.name",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.conditions[?(@.type==\"Drifted\")].status"}"#,
    printcolumn = r#"{"name":"Control plane","type":"string","priority":1,"jsonPath":".spec.controlPlaneRef.name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = rules::metadata_name(32),
    validation = default_organization_stays()
)]
#[serde(rename_all = "camelCase")]
pub struct CoderOrganizationSpec {
    /// The control plane. Immutable.
    #[x_kube(validation = rules::immutable_control_plane())]
    pub control_plane_ref: ControlPlaneRef,
    #[serde(flatten)]
    pub policy: Policy,
    /// The organization's name. Defaults to `metadata.name`. `default` is the default organization, whatever its name.
    /// A change renames the organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = rules::name(), validation = rules::not_reserved())]
    pub name: Option<String>,
    /// The display name. Coder cannot remove it again, so that it cannot be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = rules::display_name())]
    pub display_name: Option<String>,
    /// The description; empty removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The path or URL of an image, as `/emojis/1f98a.png`; empty removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// Whose workspaces can be shared with other members of the organization. Every value but `everyone` removes the existing
    /// shares that it does not allow, at once and for good, and so needs `allowDestructive` or an approval. Needs Coder 2.32.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_sharing: Option<WorkspaceSharing>,
}

/// Whose workspaces can be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceSharing {
    None,
    Everyone,
    ServiceAccounts,
}

impl WorkspaceSharing {
    /// Coder's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Everyone => "everyone",
            Self::ServiceAccounts => "service_accounts",
        }
    }
}

impl CoderOrganization {
    /// The organization's name in Coder, or `default` for the default one.
    pub fn remote_name(&self) -> &str {
        self.spec.name.as_deref().or(self.metadata.name.as_deref()).unwrap_or_default()
    }
}

/// The default organization, which Coder refuses to delete.
fn default_organization_stays() -> Rule {
    let name = "(has(self.spec.name) ? self.spec.name : self.metadata.name)";
    Rule::new(format!(
        "{name} != 'default' || !has(self.spec.deletionPolicy) || self.spec.deletionPolicy != 'Delete'"
    ))
    .message("the default organization cannot be deleted: leave deletionPolicy out, or set it to Retain")
    .field_path(".spec.deletionPolicy")
}
