//! The declared API keys of a provider, compared with those that Coder has. Pure.

use api::AIProviderSent;
use client::ai_providers::{AiProvider as Remote, KeyChange, mask};
use secrecy::SecretString;
use serde_json::Value;

use super::Observed;
use crate::{
    pipeline::plan::Change,
    secrets::{SecretPlace, SecretValues},
};

/// The field of the manifest.
const FIELD: &str = "apiKeySecretRefs";
/// How much of a fingerprint a plan shows.
const SHOWN: usize = 8;

/// The declared keys. `Debug` shows where they are, and no value.
#[derive(Debug)]
pub(super) struct Keys {
    places: Vec<SecretPlace>,
    /// Empty until the Secrets are read.
    values: Vec<SecretString>,
}

impl Keys {
    pub(super) fn of(refs: &[(&str, &str)]) -> Self {
        let place =
            |(name, key): &(&str, &str)| SecretPlace { name: (*name).to_owned(), key: (*key).to_owned() };
        Self { places: refs.iter().map(place).collect(), values: Vec::new() }
    }

    pub(super) fn with_values(self, values: &SecretValues) -> Self {
        let values = self.places.iter().filter_map(|it| values.text(it)).collect();
        Self { values, ..self }
    }

    pub(super) fn values(&self) -> Vec<&SecretString> {
        self.values.iter().collect()
    }

    /// What makes the first key the only one.
    pub(super) fn first(&self) -> Option<KeyChange> {
        self.values.first().cloned().map(KeyChange::Add)
    }

    /// Whether Coder has just these keys, in this order: by their masks, and by the ids and the fingerprint of what we sent, where
    /// the status has them.
    pub(super) fn are_in(
        &self,
        found: Option<&Remote>,
        sent: &AIProviderSent,
        fingerprint: Option<&str>,
    ) -> bool {
        let Some(found) = found else { return false };
        let masks = self.values.iter().map(mask);
        if !masks.eq(found.api_keys.iter().map(|it| it.masked.clone())) {
            return false;
        }
        match (&sent.api_key_fingerprint, fingerprint) {
            (Some(sent_before), Some(now)) => {
                let ids = found.api_keys.iter().map(|it| it.id.to_string());
                sent_before == now && sent.api_key_ids.iter().cloned().eq(ids)
            }
            _ => true,
        }
    }

    /// The difference as a plan shows it: how many keys, and which by their fingerprints.
    pub(super) fn change(&self, found: &Remote, observed: &Observed) -> Change {
        let ids = found.api_keys.iter().map(|it| it.id.to_string());
        let is_ours = !found.api_keys.is_empty() && observed.sent.api_key_ids.iter().cloned().eq(ids);
        let known = observed.sent.api_key_fingerprint.as_ref().filter(|_| is_ours);
        Change::new(
            FIELD,
            shown(found.api_keys.len(), known),
            shown(self.values.len(), observed.keys.as_ref()),
        )
    }

    /// The keys of a provider that does not exist.
    pub(super) fn declared(&self, observed: &Observed) -> Change {
        Change::new(FIELD, Value::Null, shown(self.values.len(), observed.keys.as_ref()))
    }

    /// A key after the first one.
    pub(super) fn added(&self, index: usize) -> Change {
        let place = self.places.get(index).cloned().unwrap_or_default();
        let value = format!("the key in {} of Secret {}", place.key, place.name);
        Change::new(&format!("{FIELD}[{index}]"), Value::Null, value)
    }
}

/// Keys without their values.
pub(super) fn shown(count: usize, fingerprint: Option<&String>) -> String {
    let keys = match count {
        0 => return "no key".to_owned(),
        1 => "1 key".to_owned(),
        count => format!("{count} keys"),
    };
    match fingerprint {
        Some(it) => format!("{keys} (fingerprint {})", it.get(..SHOWN).unwrap_or(it)),
        None => keys,
    }
}
