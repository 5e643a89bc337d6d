//! What to do next about the keys of one object: one action, or rest.
//!
//! Pure. Whoever does the action tells [`Seen`] what came of it and asks again, so a crash between any two actions is just
//! another start.

mod minting;
mod need;
mod retiring;
mod settle;
mod users;

use jiff::Timestamp;

pub use self::need::Need;
use super::{
    record::{Held, Intent, Record, Retiring, SecretPlace},
    situation::{Proof, Seen, Wanted},
};
use crate::outcome::Waiting;

/// The next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Write the record into the Secret, with the version that was read; create the Secret where there is none.
    Write(Box<Write>),
    /// Write the record into the object's status.
    Mirror {
        record: Box<Record>,
        /// As in [`Write::leaves`].
        leaves: Vec<Held>,
    },
    /// Read the list, and then the Secret, anew. In the other order a key could look lost that has just been written.
    Look,
    /// Ask coderd for a key.
    Mint(Box<Intent>),
    /// Ask coderd which key the value in the Secret is.
    Prove,
    /// Delete a key at its own place, if it is still the one that is meant.
    Revoke(Box<Retiring>),
    /// Remove an entry where the value was before, or its Secret.
    Remove(SecretPlace),
    Rest(Box<Rest>),
}

/// A write into the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub record: Record,
    pub value: Value,
    /// Why a key is being minted, when this is where that begins.
    pub begins: Option<Need>,
    /// Keys of ours that stay in coderd and are forgotten with this write: to be named before.
    pub leaves: Vec<Held>,
}

/// What is written into the Secret beside the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The value that is there, or none.
    Keep,
    /// The one that was minted.
    Minted,
    /// The one from where it was before.
    Former,
}

/// Nothing is to be done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rest {
    /// What the status is to say.
    pub record: Record,
    /// The key is live and the value in the Secret is its. If not: why not.
    pub key: Result<Held, Waiting>,
    /// The key is good, and this is what is not.
    pub concern: Option<Waiting>,
    pub again_at: Option<Timestamp>,
}

impl Rest {
    /// Whether a key is on its way out that goes as soon as the last of its pods has. Nothing tells when that is.
    pub fn is_rotating(&self) -> bool {
        self.key.is_ok() && self.record.retiring.iter().any(|it| !it.lost)
    }
}

/// Decides.
pub fn next(wanted: &Wanted, seen: &Seen, now: Timestamp) -> Next {
    // A status keeps whole seconds, and what it gives back is compared with what was written.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    if seen.secret.is_users(&wanted.names.uid) {
        // What another object keeps is not shown to anybody.
        if seen.secret.keeper.is_some() {
            return users::next(wanted, seen, now);
        }
        if must_prove(seen) {
            return Next::Prove;
        }
        // A Secret that lost everything but the value of our key is still ours.
        if !seen.live().is_some_and(|it| users::is_ours_after_all(wanted, seen, it)) {
            return users::next(wanted, seen, now);
        }
    }
    if let Some(moved) = moved(wanted, seen) {
        return moved;
    }
    let known = settle::known(wanted, seen);
    // A value goes to one deployment only: the one that it was minted on.
    if !is_elsewhere(wanted, seen, &known) && must_prove(seen) {
        return Next::Prove;
    }
    let record = settle::settled(wanted, seen, known, now);
    if let Some(write) = minting::keep_what_was_minted(wanted, seen, &record, now) {
        return write;
    }
    match need::of(wanted, seen, &record, now) {
        need::Verdict::Look => Next::Look,
        need::Verdict::Mint(_) if seen.secret.is_immutable => {
            retiring::next(wanted, seen, record, Some(immutable(wanted)), now)
        }
        need::Verdict::Mint(need) => minting::next(wanted, seen, record, need, now),
        need::Verdict::Enough(waiting) => retiring::next(wanted, seen, record, waiting, now),
    }
}

/// A key whose value cannot be written would be minted and lost, over and over.
fn immutable(wanted: &Wanted) -> Waiting {
    let secret = &wanted.secret.name;
    let message =
        format!("a new key is needed, and Secret {secret} is immutable: delete it to have another one made");
    waiting(api::reason::SECRET_NOT_WRITTEN, message)
}

fn must_prove(seen: &Seen) -> bool {
    if seen.secret.checksum.is_none() {
        return false;
    }
    match &seen.proof {
        Proof::NotAsked => true,
        Proof::Before(key) => !seen.listed.iter().any(|it| it.id == key.id),
        Proof::Now(_) | Proof::Refused => false,
    }
}

/// Whether the value in the Secret is, for all we know, that of a key of another deployment.
fn is_elsewhere(wanted: &Wanted, seen: &Seen, record: &Record) -> bool {
    record.current.as_ref().is_some_and(|it| {
        let is_its = it.checksum.is_empty() || seen.secret.checksum.as_ref() == Some(&it.checksum);
        is_its && !it.place.is_same(&wanted.place)
    })
}

/// The value moves with the Secret's name. It is written to the new place first.
fn moved(wanted: &Wanted, seen: &Seen) -> Option<Next> {
    let former =
        seen.former.as_ref().filter(|it| it.checksum.is_some() && !it.is_users(&wanted.names.uid))?;
    if seen.secret.checksum.is_some() {
        return None;
    }
    let own = |it: &&Record| it.holder.is_empty() || it.holder == wanted.names.uid;
    let stored = seen.stored(wanted).or_else(|| former.record.as_ref().filter(own)).unwrap_or(&seen.mirror);
    let mut record = Record {
        holder: wanted.names.uid.clone(),
        secret: stored.secret.clone().or_else(|| seen.mirror.secret.clone()),
        ..stored.clone()
    };
    record.settle_in(&wanted.secret, seen.pods.is_some());
    let write = Write { record, value: Value::Former, begins: None, leaves: Vec::new() };
    Some(Next::Write(Box::new(write)))
}

fn waiting(reason: &'static str, message: String) -> Waiting {
    Waiting { reason, message }
}
