//! What coderd was started with, as far as it seeds state of its own from that.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{get, routes},
};

/// The options of coderd. Values of secrets are blank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ServerConfig {
    #[serde(default, deserialize_with = "null_as_default")]
    pub config: ServerValues,
    #[serde(default, deserialize_with = "null_as_default")]
    pub options: Vec<ServerOption>,
}

/// The values of options that are no plain text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ServerValues {
    #[serde(default, deserialize_with = "null_as_default")]
    pub ai: AiValues,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct AiValues {
    #[serde(default, deserialize_with = "null_as_default")]
    pub bridge: AiBridgeValues,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct AiBridgeValues {
    /// The providers of indexed variables, in the order of their numbers.
    #[serde(default, deserialize_with = "null_as_default")]
    pub providers: Vec<SeededProvider>,
}

/// An AI provider of the variables `CODER_AI_GATEWAY_PROVIDER_<N>_…`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct SeededProvider {
    /// Empty where the type is the name.
    #[serde(default)]
    pub name: String,
    #[serde(default, rename = "type")]
    pub provider_type: String,
}

/// An option and where its value came from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ServerOption {
    /// The variable that sets it; empty where none does.
    #[serde(default)]
    pub env: String,
    /// `flag`, `env`, `yaml` or `default`; empty where it has no value.
    #[serde(default)]
    pub value_source: String,
}

impl ServerOption {
    /// Whether a person gave the value.
    pub fn is_set(&self) -> bool {
        ["flag", "env", "yaml"].contains(&self.value_source.as_str())
    }
}

routes! {
    SERVER_CONFIG = get("/api/v2/deployment/config").reads::<ServerConfig>();
}

impl Client {
    /// Reads the options of coderd. Needs the right to read the deployment's configuration.
    pub async fn server_config(&self) -> Result<ServerConfig, Error> {
        self.call(&SERVER_CONFIG).read().await
    }
}
