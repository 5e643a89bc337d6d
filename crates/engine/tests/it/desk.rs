//! A cluster on a sheet of paper: the Secrets of keys, and a clock that tests put forward.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use engine::{
    Trouble,
    provisioner_keys::{
        Desk, Held, Holder, KeySecret, Owner, Record, Revoked, SecretPlace, SecretRead, Secrets, Why, Written,
    },
};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};

/// A Secret.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stored {
    pub(crate) data: BTreeMap<String, String>,
    pub(crate) record: Option<Record>,
    version: u64,
}

pub(crate) type All = Arc<Mutex<BTreeMap<String, Stored>>>;

/// The desk.
#[derive(Debug, Default)]
pub(crate) struct Paper {
    pub(crate) secrets: All,
    /// How far the clock was put forward.
    pub(crate) later: Mutex<SignedDuration>,
    /// What the status says.
    pub(crate) mirror: Mutex<Option<Record>>,
    records: Mutex<BTreeMap<String, Record>>,
    /// Keys that were revoked, and why.
    pub(crate) revoked: Mutex<Vec<String>>,
    pub(crate) left: Mutex<Vec<String>>,
    /// The names of keys that other objects have.
    pub(crate) others: Mutex<Vec<String>>,
    /// Other objects, by uid.
    pub(crate) keepers: Mutex<BTreeMap<String, String>>,
}

impl Paper {
    /// As after a start.
    pub(crate) fn remember_nothing(&self) {
        self.records.lock().unwrap().clear();
    }
}

impl Desk for Paper {
    fn now(&self) -> Timestamp {
        Timestamp::now() + *self.later.lock().unwrap()
    }

    fn secrets(&self, _: &Holder) -> Box<dyn Secrets> {
        Box::new(Drawer(Arc::clone(&self.secrets)))
    }

    fn mirror<'a>(&'a self, _: &'a Holder, record: &'a Record) -> BoxFuture<'a, Result<(), Trouble>> {
        *self.mirror.lock().unwrap() = Some(record.clone());
        Box::pin(async { Ok(()) })
    }

    fn last_record(&self, holder: &Holder) -> Option<Record> {
        self.records.lock().unwrap().get(&holder.uid).cloned()
    }

    fn keep_record(&self, holder: &Holder, record: &Record) {
        self.records.lock().unwrap().insert(holder.uid.clone(), record.clone());
    }

    fn revoked<'a>(&'a self, _: &'a Holder, held: &'a Held, how: Revoked, why: &'a Why) -> BoxFuture<'a, ()> {
        if how == Revoked::Done {
            self.revoked.lock().unwrap().push(format!("{}: {}", held.name, why.words()));
        }
        Box::pin(async {})
    }

    fn is_of_another<'a>(&'a self, _: &'a Holder, held: &'a Held) -> BoxFuture<'a, Result<bool, Trouble>> {
        let is = self.others.lock().unwrap().contains(&held.name);
        Box::pin(async move { Ok(is) })
    }

    fn keeper<'a>(
        &'a self,
        _: &'a Holder,
        _: &'a str,
        uid: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, Trouble>> {
        let keeper = self.keepers.lock().unwrap().get(uid).cloned();
        Box::pin(async move { Ok(keeper) })
    }

    fn left<'a>(&'a self, _: &'a Holder, held: &'a Held) -> BoxFuture<'a, ()> {
        self.left.lock().unwrap().push(held.name.clone());
        Box::pin(async {})
    }
}

struct Drawer(All);

impl KeySecret for Drawer {
    async fn read(&self, place: &SecretPlace) -> Result<Option<SecretRead>, Trouble> {
        let found = self.0.lock().unwrap().get(&place.name).cloned();
        Ok(found.map(|it| {
            let value = it.data.get(&place.key).map(|it| SecretString::from(it.as_str()));
            SecretRead {
                owner: Owner::Users,
                checksum: SecretRead::checksum_of(value.as_ref()),
                value,
                record: it.record,
                withheld: None,
                version: it.version.to_string(),
                is_immutable: false,
            }
        }))
    }

    async fn write(
        &self,
        place: &SecretPlace,
        record: &Record,
        value: Option<&SecretString>,
        version: Option<&str>,
    ) -> Result<Written, Trouble> {
        let mut all = self.0.lock().unwrap();
        if all.get(&place.name).map(|it| it.version.to_string()).as_deref() != version {
            return Ok(Written::Conflict);
        }
        let stored = all.entry(place.name.clone()).or_default();
        stored.version += 1;
        stored.record = Some(record.clone());
        if let Some(value) = value {
            stored.data.insert(place.key.clone(), value.expose_secret().to_owned());
        }
        Ok(Written::Done(stored.version.to_string()))
    }

    async fn remove(&self, place: &SecretPlace) -> Result<(), Trouble> {
        self.0.lock().unwrap().remove(&place.name);
        Ok(())
    }
}
