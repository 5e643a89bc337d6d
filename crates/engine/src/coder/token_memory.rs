//! What a process remembers of its tokens between reconciles. Nothing that has to last is here.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use secrecy::SecretString;

use super::endpoint::Origin;
use crate::pipeline::outcome::Blocked;

/// Which control plane: its namespace and its name.
type Name = (String, String);

/// A token of our own.
#[derive(Debug, Clone)]
pub struct OwnToken {
    /// What it was minted with.
    pub from: Origin,
    pub token: SecretString,
    pub renewed_at: Timestamp,
}

/// A token that could not be minted. To record that one is about to be changes its Secret, and that change wakes the control
/// plane at once: without a pause it would be tried without end.
#[derive(Debug, Clone)]
pub struct Pause {
    /// The name that the token was to have.
    pub minting: String,
    pub until: Timestamp,
    pub why: Blocked,
}

#[derive(Debug, Default)]
struct Remembered {
    minted: Option<OwnToken>,
    pause: Option<Pause>,
    /// Whether the account that is on record was found to be gone.
    needs_account: bool,
}

/// The tokens of all control planes.
#[derive(Debug, Default)]
pub struct TokenMemory(Mutex<HashMap<Name, Remembered>>);

impl TokenMemory {
    /// The token that was minted for a control plane.
    pub fn minted(&self, name: &Name) -> Option<OwnToken> {
        self.lock().get(name)?.minted.clone()
    }

    pub fn set_minted(&self, name: &Name, minted: Option<OwnToken>) {
        let mut all = self.lock();
        let remembered = all.entry(name.clone()).or_default();
        remembered.needs_account &= minted.is_none();
        remembered.minted = minted;
    }

    /// Whether the account that is on record was found to be gone, so that another one has to be planned.
    pub(crate) fn needs_account(&self, name: &Name) -> bool {
        self.lock().get(name).is_some_and(|it| it.needs_account)
    }

    pub(crate) fn set_needs_account(&self, name: &Name) {
        self.lock().entry(name.clone()).or_default().needs_account = true;
    }

    /// Why no token could be minted a moment ago.
    pub fn pause(&self, name: &Name) -> Option<Pause> {
        self.lock().get(name)?.pause.clone()
    }

    pub(crate) fn set_pause(&self, name: &Name, pause: Option<Pause>) {
        self.lock().entry(name.clone()).or_default().pause = pause;
    }

    pub fn forget(&self, name: &Name) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
