//! What every app-state kind reports.
//!
//! Nothing secret is ever in here, and nothing that changes by being looked at.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is known of the remote object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The generation of this manifest that the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What is the case, and why. `Ready` is always among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The id of the remote object. While it stands here, this manifest holds that object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Stands here while the remote object is being made, and tells what our own step leaves behind from what somebody
    /// else has made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creating: Option<String>,
    /// What would be changed, while that is pending, observed or refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Fields that were found to differ from this manifest, at most 20.
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

/// What would be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Tells this plan from every other. Set it as `coder.com/approved-plan` to approve the whole plan.
    pub hash: String,
    /// The plan in one line.
    pub summary: String,
    /// The steps in the order in which they would be done, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub steps: Vec<Step>,
    /// How many further steps there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<i64>,
}

/// One change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What is done, as `Create`, `Update` or `Delete`.
    pub action: String,
    /// What it is done to.
    pub target: String,
    /// The field that changes, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What stands there now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// What will stand there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// What people will notice of it; a `Destructive` step needs to be allowed.
    pub impact: String,
    /// Why it is done.
    pub reason: String,
}

/// A field that is not as declared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The field, as it is called in this manifest.
    pub field: String,
    /// What this manifest says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What was found; absent when there was nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}
