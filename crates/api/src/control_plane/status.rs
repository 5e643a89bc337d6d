//! What is reported of a control plane. No token and no licence is ever in here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::{
    reference::SecretKeyRef,
    status::{Difference, Plan},
};

/// What is known of the deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoderControlPlaneStatus {
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
    /// How many pods are ready, where we run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Where the deployment is reached: the declared address, or the Service with its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The version of Coder that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The newest version of Coder that has worked on the database, where we run it. An older image is refused, because
    /// it would not understand what this one has written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_version: Option<String>,
    /// The deployment's own id, which tells it from another one at the same address.
    #[serde(default, rename = "deploymentID", skip_serializing_if = "Option::is_none")]
    pub deployment_id: Option<String>,
    /// Whether there is a credential that works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_access_ready: Option<bool>,
    /// The account that the operator made for itself, where we run it: a Secret with its token that is lost costs no second
    /// account.
    #[serde(default, rename = "operatorAccountID", skip_serializing_if = "Option::is_none")]
    pub operator_account_id: Option<String>,
    /// The Secret with the operator's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_token_secret_ref: Option<SecretKeyRef>,
    /// When the token that we were given ends, where it does; one of our own is renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialStatus>,
    /// When a declared licence was last installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license_last_applied: Option<Time>,
    /// Tells the licence of `licenseSecretRef` that was installed from another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license_last_applied_hash: Option<String>,
    /// What is licensed: `none`, `trial`, `enterprise`, `premium` or `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license_tier: Option<String>,
    /// The licences that are installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub licenses: Vec<LicenseStatus>,
    /// What the operator remembers of licences from pass to pass, as JSON: which ones it installed, which ones were
    /// refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license_record: Option<String>,
    /// When the entitlements were last found to be what stands here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entitlements_last_checked: Option<Time>,
    /// Whether daemons may run apart from the deployment: `entitled`, `grace_period`, `not_entitled` or `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_provisioner_daemons_entitlement: Option<String>,
    /// Licensed features that are entitled or in their grace period.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub features: Vec<FeatureStatus>,
    /// How many users the licences allow, and how many count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<UserLimit>,
    /// What Coder warns about the licences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub license_warnings: Vec<String>,
    /// What Coder says is wrong with the licences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub license_errors: Vec<String>,
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

/// A token that we were given and cannot renew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialStatus {
    /// When it ends.
    pub expires_at: Time,
    /// The last number of days before that of which an Event has told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_days: Option<i64>,
}

/// A licence that is installed, without its text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LicenseStatus {
    /// The licence's own id, wherever it is installed.
    pub uuid: String,
    /// Its number in this deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i32>,
    /// The Secret that it came from, where it came from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// What it covers, as `premium`; nothing for one that lists single features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature_set: Option<String>,
    /// Whether it is for a trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<bool>,
    /// When it expires and its grace period begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// When its grace period ends too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ends_at: Option<Time>,
}

/// A licensed feature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeatureStatus {
    /// Coder's name of it.
    pub name: String,
    /// `entitled`, `grace_period` or `not_entitled`.
    pub entitlement: String,
    /// Whether it is switched on.
    pub enabled: bool,
}

/// Users, against what the licences allow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserLimit {
    /// How many are allowed; absent where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// How many count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<i64>,
}
