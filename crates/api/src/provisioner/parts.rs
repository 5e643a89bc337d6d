//! The parts of a provisioner: its key, its account in the cluster, and who signs in for it.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{interval::Interval, key, reference::SecretKeyRef, rules};

/// The key that holds a token where a Secret is named without one.
const TOKEN_KEY: &str = "token";

/// Whether a manifest gives the key a name, in CEL.
pub(super) const NAME_IS_DECLARED: &str =
    "has(self.spec.key) && has(self.spec.key.name) && self.spec.key.name != ''";

/// The key that the daemons sign in with, and the Secret that holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionerKeySpec {
    /// The key's name; by default `metadata.name`. Coder takes 64 characters: of a longer one the end becomes a hash.
    /// Where the name is taken, and after every rotation, the key's name has a suffix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = key::name_is_not_reserved(), validation = key::name_has_no_slash())]
    pub name: Option<String>,
    /// The Secret that the key is written into; by default the provisioner's name and `-provisioner-key`. One that is there
    /// already and holds a key that fits is used, and never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub secret_name: Option<String>,
    /// The key in that Secret, by default `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = r"^[-._a-zA-Z0-9]*$"))]
    pub secret_key: Option<String>,
}

/// When a key gives way to the next one. Without it a key stays, unless the annotation `coder.com/rotate-requested-at`
/// asks for another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionerRotation {
    /// After how long, as `2160h`; at least `1h`. The old key stays valid until the daemons have the new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = key::rotates_hourly_at_most())]
    pub every: Option<Interval>,
}

/// What becomes of the daemons when the licence no longer covers them. `Retain` (the default) leaves them as they are,
/// and nothing is changed until it does again; `ScaleToZero` takes them away, and brings them back when it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EntitlementLossPolicy {
    #[default]
    Retain,
    ScaleToZero,
}

/// Somebody else's token for the work on keys; without it the control plane's own credentials are used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// The Secret with a token that may make and delete provisioner keys of the organization; its key is `token` unless
    /// said otherwise.
    pub credentials_secret_ref: SecretKeyRef,
}

/// What the pods may do in their namespace, so that templates can make workspaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionerRbacSpec {
    /// Whether they may keep pods and volume claims; by default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_perms: Option<bool>,
    /// Whether they may keep Deployments too; by default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_deployments: Option<bool>,
}

/// The `ServiceAccount` that is made for the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionerServiceAccountSpec {
    /// Its annotations, for example for a cloud's identities. Those that others set stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Its labels, beyond and above the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub labels: Option<BTreeMap<String, String>>,
}

// An empty text counts as absent: manifests of coder-k8s may hold it.
impl ProvisionerKeySpec {
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref().filter(|it| !it.is_empty())
    }

    pub fn secret_name(&self) -> Option<&str> {
        self.secret_name.as_deref().filter(|it| !it.is_empty())
    }

    pub fn secret_key(&self) -> Option<&str> {
        self.secret_key.as_deref().filter(|it| !it.is_empty())
    }
}

impl Bootstrap {
    /// The Secret with the token, as its name and key.
    pub fn token(&self) -> (&str, &str) {
        (&self.credentials_secret_ref.name, self.credentials_secret_ref.key_or(TOKEN_KEY))
    }
}

impl ProvisionerRbacSpec {
    pub fn has_workspace_perms(&self) -> bool {
        self.workspace_perms.unwrap_or(true)
    }

    /// Not by default, as coder-k8s has it: nobody gets further rights by a change of operators.
    pub fn enables_deployments(&self) -> bool {
        self.enable_deployments.unwrap_or_default()
    }
}
