//! `CoderAppearance`: how a deployment presents itself. One per control plane.

use kube::{CustomResource, KubeSchema, core::Rule};
use serde::{Deserialize, Serialize};

use crate::{policy::Policy, reference::ControlPlaneRef, rules, status::Status};

/// How a deployment presents itself. One per control plane. A field that is absent is left as it is found.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderAppearance",
    doc = "How a Coder deployment presents itself",
    namespaced,
    status = "Status",
    shortname = "cappearance",
    printcolumn = r#"{"name":"Application","type":"string","jsonPath":".spec.applicationName"}"#,
    category = "coder",
    selectable = ".spec.controlPlaneRef.name",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.conditions[?(@.type==\"Drifted\")].status"}"#,
    printcolumn = r#"{"name":"Control plane","type":"string","priority":1,"jsonPath":".spec.controlPlaneRef.name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct CoderAppearanceSpec {
    /// The control plane to which this belongs. It cannot be changed.
    #[x_kube(validation = rules::immutable_control_plane())]
    pub control_plane_ref: ControlPlaneRef,
    #[serde(flatten)]
    pub policy: Policy,
    /// The name that stands where otherwise stands Coder; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_name: Option<String>,
    /// The URL of the logo; empty for none.
    #[serde(default, rename = "logoURL", skip_serializing_if = "Option::is_none")]
    pub logo_url: Option<String>,
    /// The banners at the top of every page, in their order. This is the whole list: `[]` removes all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub announcement_banners: Option<Vec<AnnouncementBanner>>,
}

/// A banner at the top of every page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnouncementBanner {
    /// Whether it is shown; by default it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// What it says; Markdown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Its colour, as `#007a33`.
    #[schemars(length(max = 7))]
    #[x_kube(validation = is_colour())]
    pub background_color: String,
}

impl AnnouncementBanner {
    pub fn is_enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }
}

fn is_colour() -> Rule {
    Rule::new("self.matches('^#[0-9a-fA-F]{6}$')")
        .message("must be a colour of six hexadecimal digits, as `#007a33`")
}
