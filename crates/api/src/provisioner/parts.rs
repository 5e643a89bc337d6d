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

/// The provisioner key of the daemons, and the Secret that holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionerKeySpec {
    /// The key's name. Defaults to `metadata.name`. Coder allows 64 characters: a longer name is shortened with a hash. If
    /// the name is taken, and after every rotation, the key's name has a suffix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(
        validation = key::name_is_not_reserved(),
        validation = key::name_has_no_slash(),
        validation = key::name_is_ascii()
    )]
    pub name: Option<String>,
    /// The Secret into which the key is written. Defaults to `<metadata.name>-provisioner-key`. An existing Secret with a
    /// suitable key is used and never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub secret_name: Option<String>,
    /// The key in that Secret. Defaults to `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = r"^[-._a-zA-Z0-9]*$"))]
    pub secret_key: Option<String>,
}

/// When the key is rotated. Without it the key is rotated only on request, with the annotation
/// `coder.com/rotate-requested-at`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionerRotation {
    /// The time between two rotations, as `2160h`; at least `1h`. The old key stays valid until the daemons use the new key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = key::rotates_hourly_at_most())]
    pub every: Option<Interval>,
}

/// What happens when the licence no longer includes external provisioner daemons. `Retain` (the default) leaves the pods
/// unchanged; `ScaleToZero` scales the Deployment to zero until the licence includes them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EntitlementLossPolicy {
    #[default]
    Retain,
    ScaleToZero,
}

/// Separate credentials for provisioner keys. Without it the control plane's credentials are used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// The Secret with a token that may create, list and delete provisioner keys of the organization. The key defaults to
    /// `token`.
    pub credentials_secret_ref: SecretKeyRef,
}

/// The permissions of the pods in their namespace, so that templates can create workspaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionerRbacSpec {
    /// Whether the pods may manage Pods and `PersistentVolumeClaim`s. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_perms: Option<bool>,
    /// Whether the pods may also manage Deployments. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_deployments: Option<bool>,
}

/// The `ServiceAccount` that the operator creates for the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionerServiceAccountSpec {
    /// Annotations, for example for workload identity. Annotations of other field managers are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Additional labels.
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
