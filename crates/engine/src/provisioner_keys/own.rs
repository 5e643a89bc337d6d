//! What this process knows of the intents that it wrote itself.
//!
//! Only whoever wrote an intent last asks coderd for its key. So that process, as long as it lives, can tell a key that came
//! of the intent from one that somebody else made under the same name.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

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
pub struct OwnIntents(Mutex<HashMap<String, OwnIntent>>);

impl OwnIntents {
    pub(super) fn get(&self, uid: &str) -> Option<OwnIntent> {
        self.lock().get(uid).cloned()
    }

    pub(super) fn set(&self, uid: &str, own: Option<OwnIntent>) {
        let mut all = self.lock();
        match own {
            Some(own) => all.insert(uid.to_owned(), own),
            None => all.remove(uid),
        };
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OwnIntent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
