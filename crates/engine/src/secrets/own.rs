//! What this process knows of the intents that it wrote itself, and of the keys that it asked coderd to delete.
//!
//! Only whoever wrote an intent last asks coderd for its key. So that process, as long as it lives, can tell a key that came
//! of the intent from one that somebody else made under the same name.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use uuid::Uuid;

use super::record::Intent;

/// An intent as this process wrote it. One that reads otherwise by now is somebody else's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnIntent {
    pub intent: Intent,
    pub came: Came,
}

/// What came of an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// Nobody has asked coderd, or coderd did nothing: a key of that name is not ours.
    Nothing,
    /// coderd may have been asked: a key of that name may be ours.
    Maybe,
    /// Somebody else has the name.
    Others,
}

/// The intents of one process, by the uid of the object that they are for.
#[derive(Debug, Default)]
pub struct OwnIntents {
    intents: Mutex<HashMap<String, OwnIntent>>,
    /// The keys whose deletion was requested and not confirmed, by organization and name.
    deletions: Mutex<HashSet<(Uuid, String)>>,
}

impl OwnIntents {
    pub(crate) fn get(&self, uid: &str) -> Option<OwnIntent> {
        self.lock().get(uid).cloned()
    }

    pub(crate) fn set(&self, uid: &str, own: Option<OwnIntent>) {
        let mut all = self.lock();
        match own {
            Some(own) => all.insert(uid.to_owned(), own),
            None => all.remove(uid),
        };
    }

    /// Notes that coderd is about to be asked to delete a key. Returns whether that is new.
    pub(crate) fn note_deletion(&self, organization: Uuid, name: &str) -> bool {
        self.deletions().insert((organization, name.to_ascii_lowercase()))
    }

    /// Forgets a deletion. Returns whether coderd was asked for it.
    pub(crate) fn forget_deletion(&self, organization: Uuid, name: &str) -> bool {
        self.deletions().remove(&(organization, name.to_ascii_lowercase()))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OwnIntent>> {
        self.intents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deletions(&self) -> MutexGuard<'_, HashSet<(Uuid, String)>> {
        self.deletions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
