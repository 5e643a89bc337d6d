//! The provisioner keys of organizations. Our own writes are entered into a shared list instead of dropping it: two hundred
//! new keys are not two hundred lists.
//!
//! coderd does not tell the id of a key when it makes it; a list does. Keys that were minted at the same time share that list.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use client::{
    Client, Error,
    provisioner_keys::{KeyWithDaemons, ProvisionerKey},
};
use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::{
    Coder, Freshness,
    shared::{PerOrganization, Read},
};
use crate::secrets::own::OwnIntents;

/// How far apart lists are that are read for keys which were just minted.
const APART: Duration = Duration::from_secs(1);

/// The keys of an organization with their daemons.
#[derive(Debug, Clone)]
pub struct KeyList {
    pub keys: Vec<KeyWithDaemons>,
    /// No later than the read began.
    pub read_at: Timestamp,
}

/// All lists of one deployment.
#[derive(Debug, Default)]
pub(super) struct KeyLists {
    lists: PerOrganization<KeyList>,
    unlisted: Mutex<Unlisted>,
}

/// Keys that no list has shown yet.
#[derive(Debug, Default)]
struct Unlisted {
    /// When coderd has made them, by organization and name.
    minted: HashMap<(Uuid, String), Instant>,
    /// When each organization was last listed for such keys, or will be.
    rounds: HashMap<Uuid, Instant>,
}

impl KeyLists {
    pub(super) async fn get(
        &self,
        client: &Client,
        home: Uuid,
        need: Freshness,
        now: Timestamp,
    ) -> Result<Read<KeyList>, Error> {
        let read = async || Ok(KeyList { keys: client.list_provisioner_keys(home).await?, read_at: now });
        let read = self.lists.of(home).get(need, read).await?;
        self.unlisted().minted.retain(|key, at| key.0 != home || *at >= read.begun);
        Ok(read)
    }

    /// coderd has just made a key.
    pub(super) fn note_minted(&self, home: Uuid, name: &str) {
        self.unlisted().minted.insert((home, name.to_lowercase()), Instant::now());
    }

    /// How recent a list has to be that shows a key which this process has minted; `None` where one was read. Waits until such
    /// a list may be read: at once, unless one was just read for other keys.
    pub(super) async fn showing(&self, home: Uuid, name: &str) -> Option<Freshness> {
        let key = (home, name.to_lowercase());
        let round = {
            let mut unlisted = self.unlisted();
            unlisted.minted.get(&key)?;
            unlisted.next_round(home, Instant::now())
        };
        sleep_until(round).await;
        self.unlisted().minted.get(&key).copied().map(Freshness::BegunAfter)
    }

    fn unlisted(&self) -> MutexGuard<'_, Unlisted> {
        self.unlisted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key is there: coderd has just said so.
    pub(super) async fn note(&self, key: &ProvisionerKey) {
        let add = |list: &mut KeyList| {
            if !list.keys.iter().any(|it| it.key.id == key.id) {
                list.keys.push(KeyWithDaemons { key: key.clone(), daemons: Vec::new() });
            }
        };
        let answered = Instant::now();
        self.lists.of(key.organization).note(answered, add).await;
    }

    /// A key is gone: we have just deleted it.
    pub(super) async fn note_gone(&self, home: Uuid, name: &str) {
        let remove = |list: &mut KeyList| list.keys.retain(|it| !it.key.name.eq_ignore_ascii_case(name));
        let answered = Instant::now();
        self.unlisted().minted.remove(&(home, name.to_lowercase()));
        self.lists.of(home).note(answered, remove).await;
    }
}

impl Unlisted {
    /// When the next list for new keys of an organization may begin. Whoever asks before that instant shares it.
    fn next_round(&mut self, home: Uuid, now: Instant) -> Instant {
        self.rounds.retain(|_, it| now < *it + APART);
        let next = match self.rounds.get(&home) {
            Some(next) if *next > now => *next,
            Some(last) => *last + APART,
            None => now,
        };
        self.rounds.insert(home, next);
        next
    }
}

impl Coder {
    /// The provisioner keys of an organization, with the daemons that were seen on them.
    pub async fn keys(&self, organization: Uuid, now: Timestamp) -> Result<Arc<KeyList>, Error> {
        Ok(self.used(self.reads.keys.get(&self.client, organization, self.need, now).await?))
    }

    /// What this process wrote down before it asked for keys.
    pub(crate) fn own_intents(&self) -> &OwnIntents {
        &self.reads.own_intents
    }

    pub(crate) async fn note_key(&self, key: &ProvisionerKey) {
        self.reads.keys.note(key).await;
    }

    pub(crate) fn note_minted(&self, organization: Uuid, name: &str) {
        self.reads.keys.note_minted(organization, name);
    }

    /// The same deployment with a list of keys that shows one which this process has minted.
    pub(crate) async fn showing(&self, organization: Uuid, name: &str) -> Self {
        match self.reads.keys.showing(organization, name).await {
            Some(need) => Self { need: self.need.and(need), ..self.clone() },
            None => self.clone(),
        }
    }

    pub(crate) async fn note_key_gone(&self, organization: Uuid, name: &str) {
        self.reads.keys.note_gone(organization, name).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use tokio::time::advance;

    use super::*;

    const HOME: Uuid = Uuid::from_u128(1);

    #[tokio::test(start_paused = true)]
    async fn new_key_waits_for_no_round_when_it_is_alone() {
        let (lists, start) = (KeyLists::default(), Instant::now());
        assert_eq!(lists.showing(HOME, "alpha").await, None, "nobody minted it");
        lists.note_minted(HOME, "Alpha");
        assert_eq!(lists.showing(HOME, "alpha").await, Some(Freshness::BegunAfter(start)));
        assert_eq!(Instant::now(), start);
    }

    #[tokio::test(start_paused = true)]
    async fn new_keys_share_a_list_each_second_however_many_they_are() {
        for count in [100, 200] {
            let (lists, start) = (KeyLists::default(), Instant::now());
            lists.note_minted(HOME, "first");
            lists.showing(HOME, "first").await;
            advance(Duration::from_millis(1)).await;
            let ends = (0..count).map(|number| {
                let (lists, name) = (&lists, number.to_string());
                async move {
                    lists.note_minted(HOME, &name);
                    let need = lists.showing(HOME, &name).await.unwrap();
                    assert!(need.admits(Instant::now(), Instant::now()), "a list that begins now shows it");
                    Instant::now()
                }
            });
            assert!(join_all(ends).await.iter().all(|it| *it == start + APART));
            let other = Uuid::from_u128(2);
            lists.note_minted(other, "alpha");
            lists.showing(other, "alpha").await;
            assert_eq!(Instant::now(), start + APART, "another organization does not wait");
        }
    }
}
