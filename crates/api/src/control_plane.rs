//! `CoderControlPlane`: a Coder deployment that other objects belong to.
//!
//! Names and meanings that coder-k8s has are kept.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema, core::Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{interval::Interval, policy::DEFAULT_INTERVAL, reference::SecretKeyRef, rules};

/// The key that holds a token where a Secret is named without one.
const TOKEN_KEY: &str = "token";
/// The key that holds a licence where a Secret is named without one.
const LICENSE_KEY: &str = "license";
/// The key that holds certificates where a Secret is named without one.
const CA_KEY: &str = "ca.crt";

/// A Coder deployment that other objects belong to.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderControlPlane",
    doc = "A Coder deployment that other objects belong to",
    namespaced,
    status = "CoderControlPlaneStatus",
    shortname = "ccp",
    category = "coder",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.conditions[?(@.type==\"Drifted\")].status"}"#,
    printcolumn = r#"{"name":"URL","type":"string","jsonPath":".status.url"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.version"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = every_license_once())]
pub struct CoderControlPlaneSpec {
    /// A deployment that runs elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// The Secret with the licence; its key is `license` unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license_secret_ref: Option<SecretKeyRef>,
    /// Secrets with further licences, for add-ons; their key is `license` unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub license_secret_refs: Option<Vec<SecretKeyRef>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license_deletion_policy: Option<LicenseDeletionPolicy>,
    /// Stops everything but deletion while true. Nothing is read or changed, and the status stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// How often the deployment is looked at, as `5m`, `90s` or `1h30m`; at least `10s`, by default `5m`. A few per cent
    /// are added or taken off, so that objects do not come all at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::interval())]
    pub interval: Option<Interval>,
}

/// A deployment that runs elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct External {
    /// Where it is, as `https://coder.example.com`. The credentials are sent there and nowhere else.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(validation = is_http(), validation = is_only_an_address())]
    pub url: String,
    /// The Secret with the credentials: a token under `key`, which is `token` unless said otherwise; or an account under
    /// `email` and `password`, from which tokens are made and renewed.
    pub credentials_secret_ref: SecretKeyRef,
    /// The Secret with certificates (PEM) to trust beyond the usual ones; its key is `ca.crt` unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretKeyRef>,
}

/// What becomes of a licence that came from here when it is no longer declared, or when this manifest is deleted.
/// `Retain` (the default) leaves it installed, `Delete` removes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LicenseDeletionPolicy {
    #[default]
    Retain,
    Delete,
}

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
    /// Where the deployment is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The version of Coder that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The deployment's own id, which tells it from another one at the same address.
    #[serde(default, rename = "deploymentID", skip_serializing_if = "Option::is_none")]
    pub deployment_id: Option<String>,
    /// Whether there is a credential that works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_access_ready: Option<bool>,
    /// `Pending` or `Ready`, for those who do not read conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The value of the annotation that last asked for a reconciliation and was heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}

impl CoderControlPlaneSpec {
    pub fn is_suspended(&self) -> bool {
        self.suspend.unwrap_or_default()
    }

    pub fn interval(&self) -> Duration {
        self.interval.map_or(DEFAULT_INTERVAL, Interval::duration)
    }

    pub fn license_deletion_policy(&self) -> LicenseDeletionPolicy {
        self.license_deletion_policy.unwrap_or_default()
    }

    /// The Secrets with licences, as names and keys.
    pub fn licenses(&self) -> impl Iterator<Item = (&str, &str)> {
        let further = self.license_secret_refs.iter().flatten();
        self.license_secret_ref.iter().chain(further).map(|it| (it.name.as_str(), it.key_or(LICENSE_KEY)))
    }
}

impl External {
    /// The key under which a bare token is.
    pub fn token_key(&self) -> &str {
        self.credentials_secret_ref.key_or(TOKEN_KEY)
    }

    /// The Secret with further certificates, as its name and key.
    pub fn ca(&self) -> Option<(&str, &str)> {
        self.ca_secret_ref.as_ref().map(|it| (it.name.as_str(), it.key_or(CA_KEY)))
    }
}

fn is_http() -> Rule {
    Rule::new("self.matches('^https?://[^/?#]')")
        .message("must be an address that begins with http:// or https://")
}

fn is_only_an_address() -> Rule {
    Rule::new("isURL(self) && !self.matches('[?#]') && !self.matches('^[^/]*//[^/]*@')")
        .message("must be an address alone: no user or password, no query, no fragment")
}

/// The same licence twice would be two claims on one thing.
fn every_license_once() -> Rule {
    let key = |of: &str| format!("(has({of}.key) && {of}.key != '' ? {of}.key : '{LICENSE_KEY}')");
    let differs =
        |one: &str, other: &str| format!("({one}.name != {other}.name || {} != {})", key(one), key(other));
    let first = "self.licenseSecretRef";
    Rule::new(format!(
        "!has(self.licenseSecretRefs) || (self.licenseSecretRefs.all(a, !has({first}) || {}) && \
         self.licenseSecretRefs.all(a, self.licenseSecretRefs.exists_one(b, !{})))",
        differs("a", first),
        differs("a", "b"),
    ))
    .message("must name every licence once, and not the one of licenseSecretRef again")
    .field_path(".licenseSecretRefs")
}
