//! `CoderAppearance`: the application name, logo and banners of a deployment. One per control plane.

use kube::{CustomResource, KubeSchema, core::Rule};
use serde::{Deserialize, Serialize};

use crate::{policy::Policy, reference::ControlPlaneRef, rules, status::Status};

/// The appearance of a deployment: application name, logo and banners. One per control plane. Fields that are absent are
/// not changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderAppearance",
    doc = "The appearance of a Coder deployment: application name, logo and banners",
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
    /// The control plane. Immutable.
    #[x_kube(validation = rules::immutable_control_plane())]
    pub control_plane_ref: ControlPlaneRef,
    #[serde(flatten)]
    pub policy: Policy,
    /// The application name, which replaces "Coder" in the dashboard; empty removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_name: Option<String>,
    /// The URL of the logo; empty removes it.
    #[serde(default, rename = "logoURL", skip_serializing_if = "Option::is_none")]
    pub logo_url: Option<String>,
    /// The announcement banners at the top of every page, in order. The list is complete: `[]` removes all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub announcement_banners: Option<Vec<AnnouncementBanner>>,
}

/// An announcement banner at the top of every page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnouncementBanner {
    /// Whether the banner is shown. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The text, in Markdown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The background colour, as `#007a33`.
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
