//! A deployment as the life of keys needs it.

use std::collections::BTreeMap;

use client::{Class, provisioner_keys::ProvisionerKey};
use jiff::Timestamp;
use secrecy::SecretString;
use uuid::Uuid;

use super::Coder;
use crate::{
    pipeline::outcome::Trouble,
    secrets::{Coderd, LiveKey, Minting, OwnIntents, coderd::Listing},
};

impl Coderd for Coder {
    async fn list(&self, organization: Uuid, is_anew: bool, now: Timestamp) -> Result<Listing, Trouble> {
        let coder = if is_anew { &self.anew() } else { self };
        match coder.keys(organization, now).await {
            Ok(list) => {
                let keys = list.keys.iter().map(|it| live(&it.key, it.daemons.len())).collect();
                Ok(Listing { keys, at: list.read_at, is_shown: true })
            }
            Err(error) if error.class() == Class::Missing && !error.route_missing() => {
                Ok(Listing { keys: Vec::new(), at: now, is_shown: false })
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn mint(&self, organization: Uuid, name: &str, tags: &BTreeMap<String, String>) -> Minting {
        match self.client().create_provisioner_key(organization, name, tags).await {
            Ok(value) => Minting::Minted(value),
            Err(error) if error.class() == Class::Conflict => Minting::Taken,
            // coderd says 500 here to an account that may not, and has done nothing.
            Err(error) if error.nothing_was_done() || error.class() == Class::Forbidden => {
                Minting::Refused(error.into())
            }
            Err(error) => Minting::Unclear(error.into()),
        }
    }

    async fn delete(&self, organization: Uuid, name: &str) -> Result<bool, Trouble> {
        match self.client().delete_provisioner_key(organization, name).await {
            Ok(()) => {
                self.note_key_gone(organization, name).await;
                Ok(true)
            }
            Err(error) if error.class() == Class::Missing && !error.route_missing() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn prove(&self, value: &SecretString) -> Result<Option<LiveKey>, Trouble> {
        let key = self.client().prove_provisioner_key(value).await?;
        if let Some(key) = &key {
            self.note_key(key).await;
        }
        Ok(key.map(|it| live(&it, 0)))
    }

    async fn has_organization(&self, organization: Uuid) -> Result<bool, Trouble> {
        Ok(self.anew().organization_by_id(organization).await?.is_some())
    }

    fn own_intents(&self) -> &OwnIntents {
        self.own_intents()
    }
}

fn live(key: &ProvisionerKey, daemons: usize) -> LiveKey {
    LiveKey {
        id: key.id,
        name: key.name.clone(),
        organization_id: key.organization,
        tags: key.tags.clone(),
        created_at: key.created_at,
        daemons,
    }
}
