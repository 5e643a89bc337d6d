//! The provisioner keys of organizations, read once and shared. Our own writes are noted in a list instead of dropping it:
//! two hundred new keys are not two hundred lists.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use client::{
    Client, Error,
    provisioner_keys::{KeyWithDaemons, ProvisionerKey},
};
use jiff::Timestamp;
use tokio::sync::Mutex;
use uuid::Uuid;

/// The keys of an organization with their daemons, and when they were read.
#[derive(Debug, Clone)]
pub struct KeyList {
    pub keys: Arc<Vec<KeyWithDaemons>>,
    pub read_at: Timestamp,
    /// Which read it is of.
    number: u64,
}

/// All lists of one deployment.
#[derive(Debug, Default)]
pub(super) struct KeyLists {
    lists: Mutex<BTreeMap<Uuid, KeyList>>,
    /// How many reads have begun.
    begun: AtomicU64,
}

impl KeyLists {
    /// What is known, whoever read it.
    pub(super) async fn get(&self, client: &Client, home: Uuid, now: Timestamp) -> Result<KeyList, Error> {
        self.read(client, home, now, 0).await
    }

    /// A list whose reading began after this was called, by us or by somebody else who asked at the same time.
    pub(super) async fn get_anew(
        &self,
        client: &Client,
        home: Uuid,
        now: Timestamp,
    ) -> Result<KeyList, Error> {
        let begun = self.begun.load(Ordering::SeqCst);
        self.read(client, home, now, begun).await
    }

    async fn read(&self, client: &Client, home: Uuid, now: Timestamp, after: u64) -> Result<KeyList, Error> {
        let mut lists = self.lists.lock().await;
        if let Some(known) = lists.get(&home).filter(|it| it.number > after) {
            return Ok(known.clone());
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let keys = Arc::new(client.list_provisioner_keys(home).await?);
        let list = KeyList { keys, read_at: now, number };
        lists.insert(home, list.clone());
        Ok(list)
    }

    /// A key is there: coderd has just said so.
    pub(super) async fn note(&self, key: &ProvisionerKey) {
        if let Some(list) = self.lists.lock().await.get_mut(&key.organization)
            && !list.keys.iter().any(|it| it.key.id == key.id)
        {
            let key = KeyWithDaemons { key: key.clone(), daemons: Vec::new() };
            Arc::make_mut(&mut list.keys).push(key);
        }
    }

    /// A key is gone: we have just deleted it.
    pub(super) async fn note_gone(&self, home: Uuid, name: &str) {
        if let Some(list) = self.lists.lock().await.get_mut(&home) {
            Arc::make_mut(&mut list.keys).retain(|it| !it.key.name.eq_ignore_ascii_case(name));
        }
    }

    pub(super) async fn forget(&self) {
        self.lists.lock().await.clear();
    }
}
