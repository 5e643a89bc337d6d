//! Models of Coder Agents: what people choose from, each of a provider.
//!
//! The routes of Coder 2.34 to 2.36. They are experimental and not in Coder's API document; later versions have them elsewhere,
//! per organization. Nothing else of this crate depends on them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{delete, get, patch, post, routes},
};

/// A model. Nothing about it but its id is unique.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub struct ModelConfig {
    pub id: Uuid,
    pub ai_provider_id: Uuid,
    pub model: String,
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub enabled: bool,
    /// Exactly one model has it, where there are any.
    #[serde(default)]
    pub is_default: bool,
    #[serde(default)]
    pub context_limit: i64,
    #[serde(default)]
    pub compression_threshold: i32,
    /// How the model is called; absent where it is empty.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(with = "Value")]
    pub model_config: Map<String, Value>,
}

/// A new model. The first one becomes the default, whatever is sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct CreateModelConfig {
    pub ai_provider_id: Uuid,
    pub model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_default: Option<bool>,
    pub context_limit: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression_threshold: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value")]
    pub model_config: Option<Map<String, Value>>,
}

/// A change; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct UpdateModelConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ai_provider_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// An empty one stays what it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_default: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_limit: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression_threshold: Option<i32>,
    /// All of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Value")]
    pub model_config: Option<Map<String, Value>>,
}

routes! {
    LIST_MODEL_CONFIGS = get("/api/experimental/chats/model-configs").reads::<Vec<ModelConfig>>();
    // Not repeatable: the same model twice is two models.
    CREATE_MODEL_CONFIG = post("/api/experimental/chats/model-configs").sends::<CreateModelConfig>().reads::<ModelConfig>();
    UPDATE_MODEL_CONFIG = patch("/api/experimental/chats/model-configs/{modelConfig}")
        .sends::<UpdateModelConfig>().reads::<ModelConfig>();
    DELETE_MODEL_CONFIG = delete("/api/experimental/chats/model-configs/{modelConfig}");
}

impl Client {
    /// Reads every model, disabled ones included. There is no way to read one.
    pub async fn list_model_configs(&self) -> Result<Vec<ModelConfig>, Error> {
        self.call(&LIST_MODEL_CONFIGS).list().await
    }

    pub async fn create_model_config(&self, wanted: &CreateModelConfig) -> Result<ModelConfig, Error> {
        self.call(&CREATE_MODEL_CONFIG).body(wanted).read().await
    }

    pub async fn update_model_config(
        &self,
        model: Uuid,
        change: &UpdateModelConfig,
    ) -> Result<ModelConfig, Error> {
        self.call(&UPDATE_MODEL_CONFIG).parameter("modelConfig", &model).body(change).read().await
    }

    pub async fn delete_model_config(&self, model: Uuid) -> Result<(), Error> {
        self.call(&DELETE_MODEL_CONFIG).parameter("modelConfig", &model).done().await
    }
}
