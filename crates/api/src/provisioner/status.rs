//! The status of a provisioner. It never holds the value of a key.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::{app_state::CommonStatus, key::ProvisionerKeyState, status::Status};

/// The observed state of the daemons and their key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoderProvisionerStatus {
    #[serde(flatten)]
    pub common: Status,
    /// `Pending` or `Ready`: a summary of the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The number of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The number of ready pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// The label selector of the pods, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The number of daemons that Coder sees on the current key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemons: Option<i32>,
    /// The distinct versions of those daemons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub daemon_versions: Vec<String>,
    /// During deletion: the longest termination grace period of the pods, in seconds. It may exceed the declared one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    #[serde(flatten)]
    pub key: ProvisionerKeyState,
    /// The uid and the version of the Secret in which the key's value was last verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_version: Option<String>,
}

impl CommonStatus for CoderProvisionerStatus {
    fn common(&self) -> &Status {
        &self.common
    }

    fn set_common(&mut self, common: Status) {
        self.common = common;
    }
}
