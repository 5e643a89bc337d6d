//! What a deployment is: its build, its identity, and what its licence covers. Both are readable without a token.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{get, post, routes},
    text::{shown, shown_list},
};

/// Which Coder this is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct BuildInfo {
    /// For example `v2.36.0`; builds that nobody stamped begin with `v0.0.0-devel`.
    #[serde(deserialize_with = "shown")]
    pub version: String,
    /// The same as long as the database is the same, whatever the address.
    pub deployment_id: Uuid,
    #[serde(default)]
    pub dashboard_url: String,
    #[serde(default)]
    pub external_url: String,
}

/// What the licence covers, as one replica saw it last.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Entitlements {
    #[serde(default, deserialize_with = "null_as_default")]
    pub features: BTreeMap<String, Feature>,
    /// For people, and not a fault by themselves.
    #[serde(default, deserialize_with = "shown_list")]
    pub warnings: Vec<String>,
    #[serde(default, deserialize_with = "shown_list")]
    pub errors: Vec<String>,
    pub has_license: bool,
    #[serde(default)]
    pub trial: bool,
    /// Whether a licence is in effect only while the deployment sends telemetry.
    #[serde(default)]
    pub require_telemetry: bool,
    pub refreshed_at: Timestamp,
}

/// One licensed feature.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Feature {
    /// `entitled`, `grace_period` or `not_entitled`.
    pub entitlement: String,
    /// What coderd's own gates look at; an entitlement alone is not enough.
    pub enabled: bool,
    pub limit: Option<i64>,
    pub actual: Option<i64>,
}

impl Entitlements {
    /// Whether coderd lets calls through that need the feature.
    pub fn is_enabled(&self, feature: &str) -> bool {
        self.features.get(feature).is_some_and(|it| it.enabled)
    }
}

routes! {
    BUILD_INFO = get("/api/v2/buildinfo").without_token().reads::<BuildInfo>();
    ENTITLEMENTS = get("/api/v2/entitlements").without_token().reads::<Entitlements>();
    // Not repeatable: within a minute after the first one it is refused.
    REFRESH_ENTITLEMENTS = post("/api/v2/licenses/refresh-entitlements");
}

impl Client {
    /// Reads which Coder this is. No token is sent.
    pub async fn build_info(&self) -> Result<BuildInfo, Error> {
        self.call(&BUILD_INFO).read().await
    }

    /// Reads what the licence covers. No token is sent; an open-source build has no such route.
    pub async fn entitlements(&self) -> Result<Entitlements, Error> {
        self.call(&ENTITLEMENTS).read().await
    }

    /// Asks one replica to look at its licences again. It refuses, and says for how long, when it has just done so; adding
    /// or deleting a licence does it anyway.
    pub async fn refresh_entitlements(&self) -> Result<(), Error> {
        self.call(&REFRESH_ENTITLEMENTS).done().await
    }
}
