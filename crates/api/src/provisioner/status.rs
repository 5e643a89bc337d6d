//! What is reported of a provisioner. No value of a key is ever in here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::{
    key::ProvisionerKeyState,
    status::{Difference, Plan},
};

/// What is known of the daemons and their key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoderProvisionerStatus {
    /// The generation of this manifest that the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is the case, and why. `Ready` is always among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// `Pending` or `Ready`, for those who do not read conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// How many pods there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many pods are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// What selects the pods, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// How many daemons are connected to Coder with the key that is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemons: Option<i32>,
    /// The versions of those daemons, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub daemon_versions: Vec<String>,
    /// While this is being deleted: how many seconds the daemons had to finish what they do. Pods may have been given more
    /// than is declared by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    #[serde(flatten)]
    pub key: ProvisionerKeyState,
    /// What would be changed, while that is pending or refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Fields of what we run that were found to differ from this manifest, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub drift: Vec<Difference>,
    /// When something was last changed; it does not move when nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_time: Option<Time>,
    /// The value of the annotation that last asked for a reconciliation and was heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}
