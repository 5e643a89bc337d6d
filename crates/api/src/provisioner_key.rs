//! `CoderProvisionerKey`: a key for provisioner daemons that run elsewhere, written into a Secret.

use std::{collections::BTreeMap, time::Duration};

use kube::{CustomResource, KubeSchema, core::Rule};
use serde::{Deserialize, Serialize};

use crate::{
    DEFAULT_ORGANIZATION,
    app_state::CommonStatus,
    interval::Interval,
    key::{self, ProvisionerKeyState},
    policy::Policy,
    reference::ControlPlaneRef,
    rules, schema,
    status::Status,
};

/// How long an old key stays valid beside the new one when nobody says: somebody else has to bring the new one to the
/// daemons.
const OVERLAP: Duration = Duration::from_hours(24);

/// A provisioner key for daemons that run elsewhere. The key is created if absent and written into a Secret; it is rotated
/// only on request or on schedule.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderProvisionerKey",
    doc = "A provisioner key for daemons that run elsewhere, written into a Secret",
    namespaced,
    status = "CoderProvisionerKeyStatus",
    shortname = "cpkey",
    printcolumn = r#"{"name":"Organization","type":"string","jsonPath":".spec.organization"}"#,
    printcolumn = r#"{"name":"Key","type":"string","jsonPath":".status.provisionerKeyName"}"#,
    category = "coder",
    selectable = ".spec.controlPlaneRef.name",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.conditions[?(@.type==\"Drifted\")].status"}"#,
    printcolumn = r#"{"name":"Control plane","type":"string","priority":1,"jsonPath":".spec.controlPlaneRef.name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = key::metadata_name("has(self.spec.name)", 64, "spec.name")
)]
#[serde(rename_all = "camelCase")]
pub struct CoderProvisionerKeySpec {
    /// The control plane. Immutable.
    #[x_kube(validation = rules::immutable_control_plane())]
    pub control_plane_ref: ControlPlaneRef,
    #[serde(flatten)]
    pub policy: Policy,
    /// The organization, by name. Defaults to `default`, the default organization whatever its name. A change is reported as
    /// drift; the next requested key is created in the new organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = rules::name())]
    pub organization: Option<String>,
    /// The key's name. Defaults to `metadata.name`. The first key has exactly this name; later keys have a suffix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = is_plain(), validation = key::name_is_not_reserved())]
    pub name: Option<String>,
    /// The provisioner tags of the key, which select the jobs of its daemons. Coder cannot change the tags of a key: a change
    /// is reported as drift, and the next requested key has the new tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::tags")]
    #[x_kube(
        validation = key::tags_have_values(),
        validation = key::tags_are_of_the_organization(),
        validation = key::tags_have_no_owner()
    )]
    pub tags: Option<BTreeMap<String, String>>,
    /// The Secret into which the key is written. Defaults to `<metadata.name>-provisioner-key`. It is deleted with this
    /// object only with `deletionPolicy: Delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub secret_name: Option<String>,
    /// The key in that Secret. Defaults to `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub secret_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<KeyRotation>,
}

/// When the key is rotated, and how long the old key stays valid. Without it a key is rotated only on request, with the
/// annotation `coder.com/rotate-requested-at`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = one_key_goes_before_the_next_but_one_comes())]
pub struct KeyRotation {
    /// The time between two rotations, as `2160h`; at least `1h`. Absent means no schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = key::rotates_hourly_at_most())]
    pub every: Option<Interval>,
    /// How long the old key stays valid beside the new key. Defaults to `24h`. The new key has to reach the daemons within
    /// this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::interval())]
    pub overlap: Option<Interval>,
}

/// The observed state of the key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoderProvisionerKeyStatus {
    #[serde(flatten)]
    pub common: Status,
    #[serde(flatten)]
    pub key: ProvisionerKeyState,
}

impl CommonStatus for CoderProvisionerKeyStatus {
    fn common(&self) -> &Status {
        &self.common
    }

    fn set_common(&mut self, common: Status) {
        self.common = common;
    }
}

impl CoderProvisionerKey {
    /// What the name of the key begins with: the declared name, or the object's own.
    pub fn key_name(&self) -> &str {
        self.spec.name.as_deref().or(self.metadata.name.as_deref()).unwrap_or_default()
    }

    /// The organization's name, or `default` for the default one.
    pub fn organization(&self) -> &str {
        self.spec.organization.as_deref().unwrap_or(DEFAULT_ORGANIZATION)
    }
}

impl CoderProvisionerKeySpec {
    /// The key in the Secret.
    pub fn secret_key(&self) -> &str {
        self.secret_key.as_deref().unwrap_or(key::SECRET_KEY)
    }

    /// After how long a key gives way to the next one; nothing when it does not by itself.
    pub fn rotates_every(&self) -> Option<Duration> {
        self.rotation.as_ref().and_then(|it| it.every).map(Interval::duration)
    }

    /// How long an old key stays valid beside the new one.
    pub fn overlap(&self) -> Duration {
        self.rotation.as_ref().and_then(|it| it.overlap).map_or(OVERLAP, Interval::duration)
    }
}

fn is_plain() -> Rule {
    Rule::new("self.matches('^[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?$')").message(
        "must be letters and digits, with hyphens, dots and underscores between them, as in `alpha-eks`",
    )
}

/// Otherwise there would be more old keys with every rotation.
fn one_key_goes_before_the_next_but_one_comes() -> Rule {
    Rule::new(format!(
        "!has(self.every) || duration(has(self.overlap) ? self.overlap : '{}h') <= duration(self.every)",
        OVERLAP.as_secs() / 3600
    ))
    .message("overlap, which is 24h unless said otherwise, must not be longer than every")
    .field_path(".overlap")
}
