//! The status of every app-state kind. It holds no secret, and a reconcile that finds nothing new does not change it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The observed state of the remote object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The generation of this manifest that the status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The conditions. `Ready` is always present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The id of the remote object. While it is recorded here, this manifest holds that object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The id of the deployment that the remote object is in. Manifests of all control planes for that deployment share one
    /// holder for each remote object.
    #[serde(default, rename = "remoteDeploymentID", skip_serializing_if = "Option::is_none")]
    pub remote_deployment_id: Option<String>,
    /// Set while the remote object is being created, so that an object left by an interrupted creation is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creating: Option<String>,
    /// The plan, while it is pending, observed or refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// The approved plan, while it is carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<ApprovedPlan>,
    /// The fields that differ from this manifest, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub drift: Vec<Difference>,
    /// When the operator last changed the remote object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_time: Option<Time>,
    /// The value of the last handled `coder.com/reconcile-requested-at` or `reconcile.fluxcd.io/requestedAt` annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}

/// The steps that would make the remote object equal to the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Identifies this plan. Set it as the annotation `coder.com/approved-plan` to approve the plan.
    pub hash: String,
    /// The plan in one line.
    pub summary: String,
    /// The steps in order, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub steps: Vec<Step>,
    /// The number of steps beyond those listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<i64>,
}

/// A plan that was approved and is being carried out. Its steps need no other approval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedPlan {
    /// The hash of the plan, as it was approved.
    pub hash: String,
    /// The generation that the plan was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Identifies the steps of the plan.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub steps: Vec<String>,
}

/// One step of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// `Create`, `Update` or `Delete`.
    pub action: String,
    /// The remote object.
    pub target: String,
    /// The field that changes; absent for a step on the whole object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The current value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The value after the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// `Upkeep`, `Safe`, `Disruptive` or `Destructive`; a `Destructive` step has to be allowed, and an `Upkeep` step needs no
    /// approval.
    pub impact: String,
    /// Why the step is needed.
    pub reason: String,
}

/// A field whose value differs from the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The field's name in this manifest.
    pub field: String,
    /// The declared value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// The observed value; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// The name of the user who changed the field in Coder, by its audit log; `unknown` where the log does not tell. Absent
    /// where the manifest is what changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_by: Option<String>,
    /// When the field was changed in Coder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Time>,
}
