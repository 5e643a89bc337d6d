//! What a process remembers of its tokens between reconciles. Nothing that has to last is here.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use secrecy::SecretString;

use crate::{coder::endpoint::Origin, pipeline::outcome::Blocked};

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
        self.lock().entry(name.clone()).or_default().minted = minted;
    }

    /// Why no token could be minted a moment ago.
    pub fn pause(&self, name: &Name) -> Option<Pause> {
        self.lock().get(name)?.pause.clone()
    }

    pub(super) fn set_pause(&self, name: &Name, pause: Option<Pause>) {
        self.lock().entry(name.clone()).or_default().pause = pause;
    }

    pub fn forget(&self, name: &Name) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
