//! What is around the keys of one object: its status, other objects with keys, other deployments, and those who read what
//! happens.

use std::sync::{Mutex, PoisonError};

use api::{ProvisionerKeyState, Reason};
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    holder::Holder,
    holders,
    memory::KeyStore,
    mirror::{self, advanced, of_status, to_status},
    record::{Held, Record, Retiring},
};
use crate::{
    pipeline::outcome::{Blocked, Trouble},
    ports::{ClusterError, Event, Reading, Write, object::Live},
    secrets::revoked::Revoked,
};

/// Why a key is revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// Its value was never written into the Secret.
    Lost,
    /// Another key is in its place, where that is known by name.
    Replaced(Option<String>),
    /// The object that it was made for is deleted.
    Deleted,
    /// Another key has the name, although the list did not show one.
    Taken,
    /// The Secret does not take its value.
    Unwritten,
}

impl Why {
    /// In words, after "was revoked:".
    pub fn words(&self) -> String {
        match self {
            Self::Lost => {
                "its value was never written into the Secret, because minting it was interrupted".to_owned()
            }
            Self::Replaced(Some(by)) => format!("key {by} has replaced it"),
            Self::Replaced(None) => "another key has replaced it".to_owned(),
            Self::Deleted => "the object that it was minted for is deleted".to_owned(),
            Self::Taken => "a key of that name appeared while it was being minted".to_owned(),
            Self::Unwritten => "its value could not be written into the Secret".to_owned(),
        }
    }
}

/// Revokes a key of another deployment.
pub type Elsewhere<'a> = &'a (dyn Fn(Retiring) -> BoxFuture<'a, Result<Revoked, Trouble>> + Send + Sync);

/// One object in one reconcile.
pub struct Around<'a> {
    store: KeyStore<'a>,
    holder: &'a Holder,
    /// `None` for objects whose control plane cannot be changed: a key of another deployment is out of everybody's reach.
    pub elsewhere: Option<Elsewhere<'a>>,
    object: Mutex<Option<Live>>,
    minted: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Around<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Around").field("holder", self.holder).finish_non_exhaustive()
    }
}

impl<'a> Around<'a> {
    /// `object` is the object as it was last read or written. `None` where it has to be read before its status is written.
    pub fn new(store: KeyStore<'a>, holder: &'a Holder, object: Option<Live>) -> Self {
        Self { store, holder, elsewhere: None, object: Mutex::new(object), minted: Mutex::default() }
    }

    /// The newest copy of the record that this process knows.
    pub fn remembered(&self) -> Option<Record> {
        self.store.memory.record(self.holder)
    }

    pub fn now(&self) -> Timestamp {
        self.store.cluster.now()
    }

    /// The object as it was last read or written.
    fn object(&self) -> Option<Live> {
        self.object.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The names of the keys that were minted since the last call.
    pub fn take_minted(&self) -> Vec<String> {
        std::mem::take(&mut *self.minted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes the record into the status where it is another one, on whichever version of the object. Fails with a conflict
    /// where the status has a newer record, and where another object has taken the name.
    async fn settle(&self, record: &Record) -> Result<(), ClusterError> {
        if !self.store.writes_status {
            return self.compare(record).await;
        }
        let key = self.holder.key();
        let gone = || ClusterError::refusal(404, "NotFound", "the object is gone");
        let is_it = |it: &Live| it.metadata().uid.as_ref() == Some(&self.holder.uid);
        let mut now = self.object();
        loop {
            let object = match now.take() {
                Some(object) => object,
                None => self
                    .store
                    .cluster
                    .get(&key, Reading::Now)
                    .await?
                    .filter(|it| is_it(it))
                    .ok_or_else(gone)?,
            };
            let status = object.object.get("status").cloned().unwrap_or(Value::Null);
            let stored = serde_json::from_value::<ProvisionerKeyState>(status).unwrap_or_default();
            let newer = || ClusterError::refusal(409, "Conflict", "its status is newer than what is written");
            let fields = advanced(&stored, record).ok_or_else(newer)?;
            if fields.is_empty() {
                self.keep(object);
                return Ok(());
            }
            let version = &object.metadata().resource_version;
            let patch = json!({"metadata": {"resourceVersion": version}, "status": fields});
            let write = Write::MergeStatus { key: &key, patch: &patch };
            match self.store.cluster.write(write, &self.holder.uid).await {
                // Read again: a patch knows no uid, and another object of the same name must not get what is not its own.
                Err(error) if error.is_conflict() => {}
                Ok(written) => {
                    self.keep(written);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes a record into the status, if that is what it was. Fails with a conflict where somebody else has written it.
    async fn advance(&self, before: &Record, record: &Record) -> Result<(), ClusterError> {
        let key = self.holder.key();
        let is_it = |it: &Live| it.metadata().uid.as_ref() == Some(&self.holder.uid);
        let changed = || ClusterError::refusal(409, "Conflict", "another client changed the status");
        let mut now = self.object();
        loop {
            let object = if let Some(object) = now.take() {
                object
            } else {
                let found = self.store.cluster.get(&key, Reading::Now).await?;
                found.filter(|it| is_it(it)).ok_or_else(changed)?
            };
            let status = object.object.get("status").cloned().unwrap_or(Value::Null);
            let stored = serde_json::from_value::<ProvisionerKeyState>(status).unwrap_or_default();
            if of_status(&stored, &before.holder) != *before {
                return Err(changed());
            }
            let fields = mirror::changed(&stored, &to_status(record));
            let version = &object.metadata().resource_version;
            let patch = json!({"metadata": {"resourceVersion": version}, "status": fields});
            let write = Write::MergeStatus { key: &key, patch: &patch };
            match self.store.cluster.write(write, &self.holder.uid).await {
                Err(error) if error.is_conflict() => {}
                Ok(written) => {
                    self.keep(written);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the status of the object, where there is one, has no newer record. Fails with a conflict where it has.
    async fn compare(&self, record: &Record) -> Result<(), ClusterError> {
        let found = match self.store.cluster.get(&self.holder.key(), Reading::Now).await {
            Err(error) if error.is_missing() => return Ok(()),
            found => found?,
        };
        let is_it = |it: &Live| it.metadata().uid.as_ref() == Some(&self.holder.uid);
        let Some(object) = found.filter(is_it) else { return Ok(()) };
        let status = object.object.get("status").cloned().unwrap_or(Value::Null);
        let stored = serde_json::from_value::<ProvisionerKeyState>(status).unwrap_or_default();
        let newer = || ClusterError::refusal(409, "Conflict", "the status of the object is newer");
        advanced(&stored, record).map(drop).ok_or_else(newer)
    }

    fn keep(&self, object: Live) {
        self.store.memory.keep_object(self.holder, &object);
        *self.object.lock().unwrap_or_else(PoisonError::into_inner) = Some(object);
    }
}

impl Around<'_> {
    /// Whether records are written into the object's status.
    pub(crate) fn writes_status(&self) -> bool {
        self.store.writes_status
    }

    /// Writes the record into the object's status, at once.
    pub async fn mirror(&self, record: &Record) -> Result<(), Trouble> {
        self.settle(record).await.map_err(|error| unwritten(&error))
    }

    /// Writes what is about to be minted into the object's status, if that still says what it said before.
    pub(crate) async fn begin(&self, before: &Record, record: &Record) -> Result<(), Trouble> {
        self.advance(before, record).await.map_err(|error| unwritten(&error))
    }

    /// Revokes a key of another deployment, with that deployment's client; see [`revoke`](crate::keys::coderd::revoke).
    pub(crate) async fn revoke_elsewhere(&self, retiring: &Retiring) -> Result<Revoked, Trouble> {
        match self.elsewhere {
            Some(revoke) => revoke(retiring.clone()).await,
            None => Ok(Revoked::OutOfReach),
        }
    }

    /// Whether another object has, or is about to have, a key of that name there. Asked of names that do not say whose
    /// they are: two objects may have set out for the same one.
    pub(crate) async fn is_of_another(&self, held: &Held) -> Result<bool, Trouble> {
        holders::is_of_another(self.store.cluster, &self.holder.uid, held).await
    }

    /// The object with that uid, in words, if it is there and keeps its key in that Secret.
    pub(crate) async fn keeper(&self, secret: &str, uid: &str) -> Result<Option<String>, Trouble> {
        holders::keeper(self.store.cluster, &self.holder.namespace, secret, uid).await.map_err(|error| {
            let message = format!("cannot determine which object holds Secret {secret}: {error}; retrying");
            Blocked { reason: Reason::Progressing, message }.into()
        })
    }

    /// Names a key that stays in coderd, to people and at once: what is written next forgets it, and a process may die
    /// anywhere.
    pub async fn leave(&self, held: &Held) {
        let note = format!(
            "provisioner key {} is left behind: the deployment of control plane {} cannot be reached any more",
            held.name, held.place.control_plane
        );
        self.store.cluster.left_behind(&self.holder.reference(), Reason::Deleting, &note).await;
    }

    /// Reports what became of a key that was to be revoked, to people and at once.
    pub async fn revoked(&self, held: &Held, how: Revoked, why: &Why) {
        let (name, about) = (&held.name, self.holder.reference());
        match how {
            Revoked::Done => {
                let note = format!("provisioner key {name} was revoked: {}", why.words());
                let event = Event {
                    is_warning: false,
                    reason: Reason::KeyRevoked,
                    action: "Delete",
                    note: &note,
                    must_be_written: true,
                };
                self.store.cluster.event(&about, event).await;
            }
            Revoked::Doubtful => {
                self.store.cluster.left_behind(&about, Reason::NotOurs, &doubtful(name, why)).await;
            }
            // Nothing was there, or it is named when it is given up.
            Revoked::Absent | Revoked::NotOurs | Revoked::OutOfReach => {}
        }
    }

    /// Keeps the newest copy of the record for the reconciles after this one, in this process.
    pub(crate) fn remember(&self, record: &Record) {
        self.store.memory.keep_record(self.holder, record);
    }

    pub(crate) fn note_minted(&self, name: &str) {
        self.minted.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
    }

    /// Takes back the note of a key that was revoked before anybody had its value.
    pub(crate) fn forget_minted(&self, name: &str) {
        self.minted.lock().unwrap_or_else(PoisonError::into_inner).retain(|it| it != name);
    }
}

fn unwritten(error: &ClusterError) -> Trouble {
    let message = format!("the name of a key cannot be written into the status: {error}");
    Blocked { reason: Reason::Progressing, message }.into()
}

/// A key that stays because it may be a stranger's, in words.
fn doubtful(key: &str, why: &Why) -> String {
    let fact = if *why == Why::Taken {
        "appeared in Coder while the operator was creating a key of that name, as when a proxy sends a request twice"
    } else {
        "has the tags of a key whose creation was interrupted, and no daemons, but was created more than 15 minutes away \
         from that time; compare the clocks of Coder and of the cluster"
    };
    format!(
        "provisioner key {key} is left behind: it {fact}. Delete the key in Coder unless another client created it"
    )
}
