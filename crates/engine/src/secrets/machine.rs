//! What to do next about the keys of one object: one action, or rest.
//!
//! Pure. Whoever does the action tells [`Seen`] what came of it and asks again, so a crash between any two actions is just
//! another start.

mod intent;
mod minting;
mod need;
mod retiring;
pub(crate) mod settle;
mod users;

use api::Reason;
use jiff::Timestamp;

pub use self::need::KeyNeed;
use super::{
    copies,
    record::{Held, Intent, Record, Retiring, SecretPlace},
    situation::{Proof, SecretSeen, Seen, Value, Wanted},
};
use crate::pipeline::outcome::Blocked;

/// More than the longest way from no key to a key in the Secret, with a lost key before.
const MOST_ACTIONS: usize = 24;

/// The next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Write the record into the Secret, with the version that was read; create the Secret where there is none.
    Write(Box<SecretWrite>),
    /// Write what is about to be minted into the object's status, if that is as it was read. There is no Secret yet: whoever else
    /// sets out for a key writes one first, which the write of the value then finds.
    Begin {
        record: Box<Record>,
        need: KeyNeed,
    },
    /// Write the record into the object's status.
    Mirror {
        record: Box<Record>,
        /// As in [`SecretWrite::leaves`].
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
pub struct SecretWrite {
    pub record: Record,
    pub value: Value,
    /// Why a key is being minted, when this is where that begins.
    pub begins: Option<KeyNeed>,
    /// Keys of ours that stay in coderd and are forgotten with this write: to be named before.
    pub leaves: Vec<Held>,
}

/// Nothing is to be done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rest {
    /// What the status is to say.
    pub record: Record,
    /// The key is live and the value in the Secret is its. If not: why not.
    pub key: Result<Held, Blocked>,
    /// The key is good, and this is what is not.
    pub concern: Option<Blocked>,
    pub again_at: Option<Timestamp>,
}

impl Rest {
    /// Whether a key is on its way out that goes as soon as the last of its pods has. Nothing tells when that is.
    pub fn is_rotating(&self) -> bool {
        self.key.is_ok() && self.record.retiring.iter().any(|it| !it.lost)
    }
}

/// How many actions a reconcile may take. This bounds a loop and not the work: every key and every former entry that may have to
/// go adds to it.
pub(crate) fn most_actions(wanted: &Wanted, seen: &Seen) -> usize {
    let recorded = copies::all(wanted, seen).map(|it| it.retiring.len() + it.former.len());
    let listed = seen.listed.iter().filter(|it| wanted.names.is_ours(&it.name)).count();
    MOST_ACTIONS + 2 * (recorded.max().unwrap_or_default() + listed)
}

/// Decides.
pub fn next(wanted: &Wanted, seen: &Seen, now: Timestamp) -> Next {
    // A status keeps whole seconds, and what it gives back is compared with what was written.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    if seen.secret.is_users(&wanted.names.uid) {
        // The value of a Secret that another object holds is not sent to any deployment.
        let is_held = seen.secret.keeper.is_some() || seen.secret.withheld.is_some();
        if is_held || users::minted_elsewhere(wanted, seen).is_some() {
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
    if let Some(moved) = moved(wanted, seen).filter(|_| wanted.held_back.is_none()) {
        return moved;
    }
    if let Some(record) = copies::overtaken(wanted, seen).cloned() {
        return written(
            wanted,
            seen,
            SecretWrite { record, value: Value::Keep, begins: None, leaves: Vec::new() },
        );
    }
    let mut known = settle::known(wanted, seen);
    // A value goes to one deployment only: the one that it was minted on.
    if !is_elsewhere(wanted, seen, &known) && must_prove(seen) {
        return Next::Prove;
    }
    if let Some(key) = copies::newer_key(wanted, seen, &known) {
        // A list that was read after the Secret may show what was written down in between.
        if !seen.has_looked {
            return Next::Look;
        }
        known = copies::behind(wanted, seen, known, key, now);
    }
    let outdated = copies::outdated(wanted, seen, &known);
    // The value in an older copy says nothing about the current key.
    let record = if outdated.is_some() { known } else { settle::settled(wanted, seen, known, now) };
    if let Some(write) = minting::keep_what_was_minted(wanted, seen, &record, now) {
        return write;
    }
    let verdict = match outdated {
        // While a plan is held back, a request does not resolve anything yet.
        Some(_) if need::is_asked(wanted, &record) && may_mint(wanted, seen, &record) => {
            need::Verdict::Mint(KeyNeed::Requested)
        }
        Some(waiting) => return hold(wanted, seen, record, waiting, now),
        None => need::of(wanted, seen, &record, now),
    };
    let trouble = match verdict {
        need::Verdict::Look => return Next::Look,
        need::Verdict::Mint(need) if !may_mint(wanted, seen, &record) => {
            wanted.held_back.clone().filter(|_| !need.leaves_key_valid())
        }
        need::Verdict::Mint(_) if seen.secret.is_immutable => Some(immutable(wanted)),
        need::Verdict::Mint(need) => return minting::next(wanted, seen, record, need, now),
        need::Verdict::Enough(waiting) => waiting,
    };
    match trouble {
        // A person has to do something about the Secret first.
        Some(waiting) if copies::is_rolled_back(wanted, seen, &record) => {
            hold(wanted, seen, record, waiting, now)
        }
        trouble => retiring::next(wanted, seen, record, trouble, now),
    }
}

/// Whether a key may be minted now. A key that is held back is minted only if it is the one that was begun before: an intent for
/// another key does not stand for it.
fn may_mint(wanted: &Wanted, seen: &Seen, record: &Record) -> bool {
    wanted.held_back.is_none() || !wanted.leaves_begun && minting::begun(wanted, seen, record).is_some()
}

/// Leaves Secret and keys as they are. The newest record is kept in the status: the Secret has an older one.
fn hold(wanted: &Wanted, seen: &Seen, record: Record, waiting: Blocked, now: Timestamp) -> Next {
    if record.epoch() > seen.mirror.epoch() {
        return Next::Mirror { record: Box::new(record), leaves: Vec::new() };
    }
    retiring::rest(wanted, seen, record, Some(waiting), now)
}

/// A key whose value cannot be written would be minted and lost, over and over.
fn immutable(wanted: &Wanted) -> Blocked {
    let secret = &wanted.secret.name;
    let message =
        format!("a new key is needed, and Secret {secret} is immutable: delete it to have another one made");
    waiting(api::Reason::SecretNotWritten, message)
}

fn must_prove(seen: &Seen) -> bool {
    if seen.secret.checksum.is_none() {
        return false;
    }
    match &seen.proof {
        Proof::NotAsked => true,
        Proof::Before(key) => !seen.listed.iter().any(|it| it.is(key)),
        Proof::Now(_) | Proof::Refused => false,
    }
}

/// Whether the value in the Secret is, for all we know, that of a key of another deployment.
fn is_elsewhere(wanted: &Wanted, seen: &Seen, record: &Record) -> bool {
    let Some(checksum) = &seen.secret.checksum else { return false };
    let stored = seen.stored(wanted).into_iter().flat_map(Record::keys);
    let known = record.keys().chain(stored).find(|it| it.checksum == *checksum);
    let is_elsewhere = |it: &Held| !it.place.is_same(&wanted.place);
    match (known, &record.current) {
        (Some(held), _) => is_elsewhere(held),
        (None, Some(current)) => current.checksum.is_empty() && is_elsewhere(current),
        (None, None) => false,
    }
}

/// The value moves with the Secret's name. It is written to the new place first. A Secret that had the name before may still
/// hold an older value of ours.
fn moved(wanted: &Wanted, seen: &Seen) -> Option<Next> {
    let former =
        seen.former.as_ref().filter(|it| it.checksum.is_some() && !it.is_users(&wanted.names.uid))?;
    let newest = copies::newest(wanted, seen);
    let current = newest.current.as_ref().map(|it| it.checksum.as_str()).filter(|it| !it.is_empty());
    let is_current = |it: &SecretSeen| it.checksum.as_deref() == current && current.is_some();
    let is_behind =
        |it: &SecretSeen| it.record.as_ref().is_some_and(|it| it.rank() < newest.rank()) && !is_current(it);
    let has_room = seen.secret.checksum.is_none() || (is_behind(&seen.secret) && !seen.secret.is_immutable);
    if is_behind(former) || !has_room {
        return None;
    }
    let mut record = Record { holder: wanted.names.uid.clone(), ..newest };
    record.settle_in(&wanted.secret, seen.pods.is_some());
    Some(written(
        wanted,
        seen,
        SecretWrite { record, value: Value::Former, begins: None, leaves: Vec::new() },
    ))
}

/// Every write is one epoch above all copies.
fn written(wanted: &Wanted, seen: &Seen, write: SecretWrite) -> Next {
    let record = copies::next(wanted, seen, write.record);
    Next::Write(Box::new(SecretWrite { record, ..write }))
}

fn waiting(reason: Reason, message: String) -> Blocked {
    Blocked { reason, message }
}
