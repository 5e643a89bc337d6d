//! What the kinds with a provisioner key have in common: the rules for names and tags, and the recorded state of the key.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    KubeSchema,
    core::{Message, Rule},
};
use serde::{Deserialize, Serialize};

use crate::reference::SecretKeyRef;

/// The names of the keys that Coder has for itself, in any case.
pub const RESERVED_KEY_NAMES: [&str; 3] = ["built-in", "user-auth", "psk"];

/// The key in a Secret that names none.
pub(crate) const SECRET_KEY: &str = "key";

/// The recorded state of a provisioner key, without its value.
///
/// It is enough to revoke the key when the Secret is lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionerKeyState {
    /// The id of the organization that the key belongs to.
    #[serde(default, rename = "organizationID", skip_serializing_if = "Option::is_none")]
    pub organization_id: Option<String>,
    /// The name of that organization, as it was declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization_name: Option<String>,
    /// The id of the key that is in use.
    #[serde(default, rename = "provisionerKeyID", skip_serializing_if = "Option::is_none")]
    pub provisioner_key_id: Option<String>,
    /// The name of the key that is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioner_key_name: Option<String>,
    /// False for a key that the operator did not create: it is used and never deleted. Absent means true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioner_key_is_ours: Option<bool>,
    /// A hash of the key's tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags_hash: Option<String>,
    /// The control plane for which the key was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_ref_name: Option<String>,
    /// The URL of that control plane at that time.
    #[serde(default, rename = "controlPlaneURL", skip_serializing_if = "Option::is_none")]
    pub control_plane_url: Option<String>,
    /// The id of the deployment in which the key was created.
    #[serde(default, rename = "deploymentID", skip_serializing_if = "Option::is_none")]
    pub deployment_id: Option<String>,
    /// The Secret that holds the key's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyRef>,
    /// A checksum of the key's value, to recognise pods that use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioner_key_checksum: Option<String>,
    /// A key whose creation was started. One that was interrupted is deleted later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_key: Option<OtherKey>,
    /// Replaced keys that are still valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub retiring_keys: Vec<OtherKey>,
    /// Secrets that held the value before, while pods may still read them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub former_secret_refs: Vec<SecretKeyRef>,
    /// Names without a suffix that were used already. A name is never used twice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub used_key_names: Vec<String>,
    /// The number at the end of the last key name with a suffix. It only grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub key_generation: Option<i64>,
    /// The number of the write that left this state. Every write to the Secret or to this status adds one, so that an older
    /// copy of the Secret is recognized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub key_epoch: Option<i64>,
    /// When the key was last rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_rotation_time: Option<Time>,
    /// The value of the last handled `coder.com/rotate-requested-at` annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_rotate_at: Option<String>,
}

impl ProvisionerKeyState {
    /// The control planes at which there are keys, or may be.
    pub fn control_planes(&self) -> impl Iterator<Item = &str> {
        let others = self.pending_key.iter().chain(&self.retiring_keys);
        let others = others.filter_map(|it| it.control_plane_ref_name.as_deref());
        self.control_plane_ref_name.as_deref().into_iter().chain(others)
    }
}

/// A key beside the one in use: one that is being created, or one that is to be revoked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OtherKey {
    /// Its name.
    pub name: String,
    /// Its id, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The id of its organization.
    #[serde(default, rename = "organizationID", skip_serializing_if = "Option::is_none")]
    pub organization_id: Option<String>,
    /// The name of its organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization_name: Option<String>,
    /// The control plane for which it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_ref_name: Option<String>,
    /// The URL of that control plane at that time.
    #[serde(default, rename = "controlPlaneURL", skip_serializing_if = "Option::is_none")]
    pub control_plane_url: Option<String>,
    /// The id of the deployment in which it was created.
    #[serde(default, rename = "deploymentID", skip_serializing_if = "Option::is_none")]
    pub deployment_id: Option<String>,
    /// When its creation was started, or when it was replaced.
    pub since: Time,
    /// Whether the operator created it. Other keys are not changed.
    pub is_ours: bool,
    /// A checksum of its value, to recognise pods that use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// A hash of the key's tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags_hash: Option<String>,
    /// Whether its value was never stored anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<bool>,
}

/// A declared name of a key.
pub(crate) fn name_is_not_reserved() -> Rule {
    Rule::new(format!("!self.matches('^(?i:{})$')", RESERVED_KEY_NAMES.join("|")))
        .message("must not be `built-in`, `user-auth` or `psk`, which are keys of Coder itself")
}

pub(crate) fn name_has_no_slash() -> Rule {
    Rule::new("!self.contains('/')").message("must not have a `/` in it: Coder could never delete such a key")
}

/// Coder compares the names of keys without regard to case, and only for these letters is it certain what that means.
pub(crate) fn name_is_ascii() -> Rule {
    Rule::new("self.matches('^[ -~]*$')")
        .message("must have no other characters than ASCII letters, digits, punctuation and spaces")
}

/// The object's own name, where it stands in for the name of the key at that path.
pub(crate) fn metadata_name(is_declared: &str, longest: usize, path: &str) -> Rule {
    let reserved = RESERVED_KEY_NAMES.map(|it| format!("'{it}'")).join(", ");
    Rule::new(format!(
        "({is_declared}) || (self.metadata.name.size() <= {longest} && !(self.metadata.name in [{reserved}]))"
    ))
    .message(Message::Message(format!(
        "metadata.name cannot be the name of a key (at most {longest} characters, not `built-in`, `user-auth` or `psk`): \
         set {path}"
    )))
}

/// Coder drops such a tag when a daemon connects, so it would choose nothing.
pub(crate) fn tags_have_values() -> Rule {
    Rule::new("self.all(name, name != '' && self[name] != '')")
        .message("every tag must have a name and a value: Coder drops those that are empty")
}

/// Whose jobs a daemon takes. One for a single user cannot run by a key: it would wait for jobs of nobody.
pub(crate) fn tags_are_of_the_organization() -> Rule {
    Rule::new("!('scope' in self) || self['scope'] == 'organization'").message(
        "the tag `scope` can only be `organization`, which is also its default: a daemon with a key serves its whole \
         organization",
    )
}

/// Coder sets it, and takes no other value.
pub(crate) fn tags_have_no_owner() -> Rule {
    Rule::new("!('owner' in self)")
        .message("the tag `owner` is set by Coder: it is empty for a daemon with a key, so leave it out")
}

/// A new key rolls every pod that uses the old one.
pub(crate) fn rotates_hourly_at_most() -> Rule {
    Rule::new("duration(self) >= duration('1h')").message("must be at least 1h")
}
