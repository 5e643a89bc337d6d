//! The status of a control plane. It never holds a token or the text of a licence.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::{app_state::CommonStatus, reference::SecretKeyRef, status::Status};

/// The observed state of the deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoderControlPlaneStatus {
    #[serde(flatten)]
    pub common: Status,
    /// `Pending` or `Ready`: a summary of the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The number of ready pods of a managed control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// The URL of the deployment: the declared one, or the Service's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The version of the running Coder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The newest version of Coder that has migrated the database of a managed control plane. An older image is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database_version: Option<String>,
    /// Further namespaces that have, or may have, Roles of this control plane for workspaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub workspace_namespaces: Vec<String>,
    /// The deployment id, which identifies the deployment whatever its address.
    #[serde(default, rename = "deploymentID", skip_serializing_if = "Option::is_none")]
    pub deployment_id: Option<String>,
    /// Whether the operator has working credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_access_ready: Option<bool>,
    /// The id of the operator's own account in a managed control plane.
    #[serde(default, rename = "operatorAccountID", skip_serializing_if = "Option::is_none")]
    pub operator_account_id: Option<String>,
    /// The Secret with the operator's own token; absent where a token was supplied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_token_secret_ref: Option<SecretKeyRef>,
    /// The expiry of a supplied token. Absent for tokens that the operator renews.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<CredentialStatus>,
    /// When the declared licence that the deployment has was uploaded, whoever did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license_last_applied: Option<Time>,
    /// The SHA-256 of that licence, without blanks around it, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license_last_applied_hash: Option<String>,
    /// The licence tier: `none`, `trial`, `enterprise`, `premium` or `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license_tier: Option<String>,
    /// The installed licences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub licenses: Vec<LicenseStatus>,
    /// The operator's record of licences, as JSON: which ones it installed and which ones Coder refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license_record: Option<String>,
    /// When the entitlements were last confirmed. Updated on change, and every 6 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entitlements_last_checked: Option<Time>,
    /// The entitlement of external provisioner daemons: `entitled`, `grace_period`, `not_entitled` or `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_provisioner_daemons_entitlement: Option<String>,
    /// Features that are entitled or in their grace period.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub features: Vec<FeatureStatus>,
    /// The licensed and the counted number of users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<UserLimit>,
    /// Coder's warnings about the licences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub license_warnings: Vec<String>,
    /// Coder's errors about the licences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub license_errors: Vec<String>,
}

impl CommonStatus for CoderControlPlaneStatus {
    fn common(&self) -> &Status {
        &self.common
    }

    fn set_common(&mut self, common: Status) {
        self.common = common;
    }
}

/// A supplied token, which the operator cannot renew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialStatus {
    /// When the token expires.
    pub expires_at: Time,
    /// The number of days before expiry of the last Event about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_days: Option<i64>,
}

/// An installed licence, without its text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LicenseStatus {
    /// The licence's own id, the same in every deployment.
    pub uuid: String,
    /// The licence's number in this deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i32>,
    /// The Secret of the licence; absent for a licence that is not declared here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// The feature set, as `premium`; absent for a licence with single features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature_set: Option<String>,
    /// Whether the licence is a trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<bool>,
    /// When the licence expires and its grace period begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// When the grace period ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ends_at: Option<Time>,
}

/// A licensed feature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeatureStatus {
    /// Coder's name of the feature.
    pub name: String,
    /// `entitled`, `grace_period` or `not_entitled`.
    pub entitlement: String,
    /// Whether the feature is enabled.
    pub enabled: bool,
}

/// The number of users and the licensed limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserLimit {
    /// The limit; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// The number of users that count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<i64>,
}
