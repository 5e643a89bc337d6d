//! `CoderGroup`: a group of an organization, with its quota and its members.

use kube::{CustomResource, KubeSchema, core::Rule};
use serde::{Deserialize, Serialize};

use crate::{
    DEFAULT_ORGANIZATION, policy::Policy, reference::ControlPlaneRef, rules, schema, status::Status,
};

/// The group that every organization has and that everybody in it is in.
pub const EVERYONE: &str = "Everyone";

/// A group of an organization, with its quota and its members. Fields that are absent are not changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderGroup",
    doc = "A group of an organization",
    namespaced,
    status = "Status",
    shortname = "cgroup",
    printcolumn = r#"{"name":"Organization","type":"string","jsonPath":".spec.organization"}"#,
    printcolumn = r#"{"name":"Group","type":"string","jsonPath":".spec.name"}"#,
    category = "coder",
    selectable = ".spec.controlPlaneRef.name",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.conditions[?(@.type==\"Drifted\")].status"}"#,
    printcolumn = r#"{"name":"Control plane","type":"string","priority":1,"jsonPath":".spec.controlPlaneRef.name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = rules::metadata_name(255)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::immutable_organization(),
    validation = everyone_has_no_display_name(),
    validation = everyone_has_no_list(),
    validation = everyone_stays(),
    validation = everyone_keeps_its_name()
)]
pub struct CoderGroupSpec {
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
    /// The group's name. Defaults to `metadata.name`. A change renames the group. `Everyone` is the built-in group of every
    /// organization: only its quota and its avatar can be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255))]
    #[x_kube(validation = rules::name(), validation = rules::not_reserved())]
    pub name: Option<String>,
    /// The display name; empty removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::display_name())]
    pub display_name: Option<String>,
    /// The path or URL of an image, as `/emojis/1f98a.png`; empty removes it.
    #[serde(default, rename = "avatarURL", skip_serializing_if = "Option::is_none")]
    pub avatar_url: Option<String>,
    /// The credits that the group adds to the quota of each of its members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub quota_allowance: Option<i32>,
    /// The members, by user name or e-mail address. The list is complete. Absent means that the members are managed
    /// elsewhere, for example by the identity provider; `[]` removes all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::users")]
    pub members: Option<Vec<String>>,
}

impl CoderGroup {
    /// The group's name in Coder.
    pub fn remote_name(&self) -> &str {
        self.spec.name.as_deref().or(self.metadata.name.as_deref()).unwrap_or_default()
    }

    /// The organization's name, or `default` for the default one.
    pub fn organization(&self) -> &str {
        self.spec.organization.as_deref().unwrap_or(DEFAULT_ORGANIZATION)
    }
}

/// Something that does not hold for `Everyone`, which only `spec.name` can mean: `metadata.name` is in lower case.
fn unless_everyone(rule: &str) -> Rule {
    Rule::new(format!("!has(self.name) || self.name != '{EVERYONE}' || {rule}"))
}

fn everyone_has_no_display_name() -> Rule {
    unless_everyone("!has(self.displayName)")
        .message("the group Everyone cannot have a display name: only quotaAllowance and avatarURL can be set for it")
        .field_path(".displayName")
}

fn everyone_has_no_list() -> Rule {
    unless_everyone("!has(self.members)")
        .message("the group Everyone cannot have a list of members: everybody in the organization is in it")
        .field_path(".members")
}

fn everyone_stays() -> Rule {
    unless_everyone("!has(self.deletionPolicy) || self.deletionPolicy != 'Delete'")
        .message("the group Everyone cannot be deleted: leave deletionPolicy out, or set it to Retain")
        .field_path(".deletionPolicy")
}

fn everyone_keeps_its_name() -> Rule {
    let is_everyone = |of: &str| format!("(has({of}.name) && {of}.name == '{EVERYONE}')");
    Rule::new(format!("{} == {}", is_everyone("self"), is_everyone("oldSelf")))
        .message(
            "cannot be changed to or from Everyone: that group cannot be renamed, so create another object",
        )
        .field_path(".name")
}
