//! The provisioner keys of organizations. Our own writes are entered into a shared list instead of dropping it: two hundred
//! new keys are not two hundred lists.

use client::{
    Client, Error,
    provisioner_keys::{KeyWithDaemons, ProvisionerKey},
};
use jiff::Timestamp;
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Freshness,
    shared::{PerOrganization, Read},
};

/// The keys of an organization with their daemons.
#[derive(Debug, Clone)]
pub struct KeyList {
    pub keys: Vec<KeyWithDaemons>,
    /// No later than the read began.
    pub read_at: Timestamp,
}

/// All lists of one deployment.
#[derive(Debug, Default)]
pub(super) struct KeyLists(PerOrganization<KeyList>);

impl KeyLists {
    pub(super) async fn get(
        &self,
        client: &Client,
        home: Uuid,
        need: Freshness,
        now: Timestamp,
    ) -> Result<Read<KeyList>, Error> {
        let read = async || Ok(KeyList { keys: client.list_provisioner_keys(home).await?, read_at: now });
        self.0.of(home).get(need, read).await
    }

    /// A key is there: coderd has just said so.
    pub(super) async fn note(&self, key: &ProvisionerKey) {
        let add = |list: &mut KeyList| {
            if !list.keys.iter().any(|it| it.key.id == key.id) {
                list.keys.push(KeyWithDaemons { key: key.clone(), daemons: Vec::new() });
            }
        };
        let answered = Instant::now();
        self.0.of(key.organization).note(answered, add).await;
    }

    /// A key is gone: we have just deleted it.
    pub(super) async fn note_gone(&self, home: Uuid, name: &str) {
        let remove = |list: &mut KeyList| list.keys.retain(|it| !it.key.name.eq_ignore_ascii_case(name));
        let answered = Instant::now();
        self.0.of(home).note(answered, remove).await;
    }
}
