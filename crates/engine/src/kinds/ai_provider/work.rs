//! The writes of AI providers.

use client::{
    Class, Error,
    ai_providers::{AiProvider as Remote, KeyChange, UpdateAiProvider},
};
use secrecy::SecretString;
use uuid::Uuid;

use super::{Effect, What};
use crate::{
    coder::{Coder, Found, missing},
    pipeline::outcome::Trouble,
};

/// Does one step.
pub(super) async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
    let client = coder.client();
    let written = match &effect.what {
        What::Create(wanted) => match client.create_ai_provider(wanted).await {
            // Names are unique: the list that showed none is out of date.
            Err(error) if error.class() == Class::Conflict => return Err(Trouble::Stale),
            created => noted(created, coder).await?,
        },
        What::Update { found, change } => {
            check_unchanged(found, coder).await?;
            noted(client.update_ai_provider(found.id, change).await, coder).await?
        }
        What::AddKey { provider, key } => add_key(provider, key, coder).await?,
        What::Delete(id) => return delete(*id, coder).await,
    };
    let ids = written.api_keys.iter().map(|it| it.id).collect();
    // A step is done once.
    effect.ids.set(ids).ok();
    Ok(Some(written.id))
}

/// Adds a key after those that are there.
async fn add_key(provider: &str, key: &SecretString, coder: &Coder) -> Result<Remote, Trouble> {
    let Found::There(known) = coder.ai_provider(provider).await? else {
        return Err(missing(format!("AI provider {provider} is not there any more")).into());
    };
    let now = coder.client().ai_provider(known.id).await?;
    let kept = now.api_keys.iter().map(|it| KeyChange::Keep(it.id));
    let api_keys = kept.chain([KeyChange::Add(key.clone())]).collect();
    let change = UpdateAiProvider { api_keys: Some(api_keys), ..UpdateAiProvider::default() };
    Ok(noted(coder.client().update_ai_provider(known.id, &change).await, coder).await?)
}

async fn delete(id: Uuid, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
    match coder.client().delete_ai_provider(id).await {
        Err(error) if error.class() != Class::Missing => {
            coder.forget_ai_providers().await;
            Err(error.into())
        }
        // Missing: another client deleted the provider first, or the answer to our own first request was lost.
        Ok(()) | Err(_) => {
            coder.note_ai_provider_gone(id).await;
            Ok(None)
        }
    }
}

/// Enters the answer to a write into the shared list. After a write without an answer the list is read again.
async fn noted(answer: Result<Remote, Error>, coder: &Coder) -> Result<Remote, Error> {
    match &answer {
        Ok(provider) => coder.note_ai_provider(provider).await,
        Err(_) => coder.forget_ai_providers().await,
    }
    answer
}

/// Reads a provider again before it is updated. Nothing is written over a change that the plan does not know of.
async fn check_unchanged(planned: &Remote, coder: &Coder) -> Result<(), Trouble> {
    match coder.client().ai_provider(planned.id).await {
        Ok(now) if now == *planned => Ok(()),
        Ok(_) => Err(Trouble::Stale),
        Err(error) if error.class() == Class::Missing => Err(Trouble::Stale),
        Err(error) => Err(error.into()),
    }
}
