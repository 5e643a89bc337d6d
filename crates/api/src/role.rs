//! `CoderRole`: a custom role of an organization.

use kube::{CustomResource, KubeSchema, core::Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    DEFAULT_ORGANIZATION, policy::Policy, reference::ControlPlaneRef, rules, schema, status::Status,
};

/// A custom role of an organization: the permissions that it gives there. Fields that are absent are not changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderRole",
    doc = "A custom role of an organization",
    namespaced,
    status = "Status",
    shortname = "crole",
    printcolumn = r#"{"name":"Organization","type":"string","jsonPath":".spec.organization"}"#,
    printcolumn = r#"{"name":"Role","type":"string","jsonPath":".spec.name"}"#,
    category = "coder",
    selectable = ".spec.controlPlaneRef.name",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.conditions[?(@.type==\"Drifted\")].status"}"#,
    printcolumn = r#"{"name":"Control plane","type":"string","priority":1,"jsonPath":".spec.controlPlaneRef.name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = rules::metadata_name(32),
    validation = name_stays()
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::immutable_organization())]
pub struct CoderRoleSpec {
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
    /// The role's name. Defaults to `metadata.name`. Immutable: Coder cannot rename a role. The names of built-in roles, such as
    /// `auditor` and `organization-admin`, are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = rules::name(), validation = rules::not_reserved(), validation = not_built_in())]
    pub name: Option<String>,
    /// The display name; empty removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::display_name())]
    pub display_name: Option<String>,
    /// The permissions in the organization. The list is complete: other permissions are removed, and `[]` removes all. The
    /// account that writes a role must have every permission itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::permissions")]
    pub permissions: Option<Vec<Permission>>,
}

/// What a role may do with one type of resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// The type of resource, as `template`.
    pub resource: String,
    /// The actions, as `read` and `view_insights`.
    pub actions: Vec<String>,
}

/// The roles that Coder has itself, of deployments and of organizations.
pub const BUILT_IN_ROLES: [&str; 14] = [
    "owner",
    "member",
    "auditor",
    "template-admin",
    "user-admin",
    "organization-admin",
    "organization-member",
    "organization-service-account",
    "organization-auditor",
    "organization-template-admin",
    "organization-user-admin",
    "organization-workspace-creation-ban",
    "organization-workspace-access",
    "agents-access",
];

impl CoderRole {
    /// The role's name in Coder.
    pub fn remote_name(&self) -> &str {
        self.spec.name.as_deref().or(self.metadata.name.as_deref()).unwrap_or_default()
    }

    /// The organization's name, or `default` for the default one.
    pub fn organization(&self) -> &str {
        self.spec.organization.as_deref().unwrap_or(DEFAULT_ORGANIZATION)
    }
}

fn not_built_in() -> Rule {
    let names: Vec<String> = BUILT_IN_ROLES.iter().map(|it| format!("'{it}'")).collect();
    Rule::new(format!("!(self in [{}])", names.join(", ")))
        .message("must not be the name of a built-in role: choose another name")
}

/// The name by which a role is known. `metadata.name` stands in for `spec.name`.
fn name_stays() -> Rule {
    let name = |of: &str| format!("(has({of}.spec.name) ? {of}.spec.name : {of}.metadata.name)");
    Rule::new(format!("{} == {}", name("self"), name("oldSelf")))
        .message("cannot be changed: Coder cannot rename a role, so create another object")
        .field_path(".spec.name")
}
