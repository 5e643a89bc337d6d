//! AI providers and models of a deployment, as shared lists, and what coderd was started with.

use std::sync::Arc;

use client::{Error, ai_providers::AiProvider, model_configs::ModelConfig, server_config::ServerConfig};
use tokio::time::Instant;
use uuid::Uuid;

use super::{Coder, Found, shared};

impl Coder {
    pub async fn ai_providers(&self) -> Result<Arc<Vec<AiProvider>>, Error> {
        let read = || self.client.list_ai_providers();
        Ok(self.used(self.reads.ai_providers.get(self.need, read).await?))
    }

    pub async fn model_configs(&self) -> Result<Arc<Vec<ModelConfig>>, Error> {
        let read = || self.client.list_model_configs();
        Ok(self.used(self.reads.model_configs.get(self.need, read).await?))
    }

    /// What coderd was started with. Only a restart changes it.
    pub async fn server_config(&self) -> Result<Arc<ServerConfig>, Error> {
        let read = || self.client.server_config();
        Ok(self.used(self.reads.server_config.get(self.need, read).await?))
    }

    /// A provider by name.
    pub async fn ai_provider(&self, name: &str) -> Result<Found<AiProvider>, Error> {
        let providers = self.ai_providers().await?;
        Ok(match providers.iter().find(|it| it.name == name) {
            Some(found) => Found::There(found.clone()),
            None if self.promises.has_ai_provider(name) => Found::Promised,
            None => Found::Missing,
        })
    }

    /// Enters a provider that coderd has just answered with.
    pub(crate) async fn note_ai_provider(&self, provider: &AiProvider) {
        let enter = |list: &mut Vec<AiProvider>| shared::enter(list, provider, |it| it.id);
        self.reads.ai_providers.note(Instant::now(), enter).await;
    }

    /// Removes a provider that was deleted.
    pub(crate) async fn note_ai_provider_gone(&self, id: Uuid) {
        self.reads.ai_providers.note(Instant::now(), |list| list.retain(|it| it.id != id)).await;
    }

    /// Drops the list of providers, after a write whose effect is unknown.
    pub(crate) async fn forget_ai_providers(&self) {
        self.reads.ai_providers.forget().await;
    }

    /// Drops the list of models: a write to one of them may move the default of another.
    pub(crate) async fn forget_model_configs(&self) {
        self.reads.model_configs.forget().await;
    }
}
