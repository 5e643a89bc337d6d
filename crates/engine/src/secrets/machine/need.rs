//! Whether a key has to be minted, and why.

use api::Reason;
use jiff::Timestamp;

use super::{
    super::{
        copies::is_key,
        record::Record,
        situation::{LiveKey, Policy, Seen, Wanted},
    },
    is_elsewhere, waiting,
};
use crate::pipeline::outcome::Blocked;

/// What a person does about a key that nobody mints by itself.
const ADVICE: &str = "set the annotation coder.com/rotate-requested-at to a new value to mint a new key";

/// Why a key is minted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyNeed {
    /// There was none yet.
    First,
    /// The Secret is gone, or empty.
    SecretLost,
    /// coderd does not take the value in the Secret.
    KeyLost,
    /// It is for another deployment.
    Moved,
    Organization,
    Tags,
    Name,
    Requested,
    Scheduled,
}

/// What follows from the state of the value.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The list is too old to tell.
    Look,
    Mint(KeyNeed),
    /// Nothing is to be minted: the key is good, or this is why it is not.
    Enough(Option<Blocked>),
}

impl KeyNeed {
    /// Whether daemons work with the key that they have until there is another one.
    pub(super) fn leaves_key_valid(self) -> bool {
        match self {
            Self::First | Self::SecretLost | Self::KeyLost | Self::Moved => false,
            Self::Organization | Self::Tags | Self::Name | Self::Requested | Self::Scheduled => true,
        }
    }

    /// In words, after "a new key is minted, because".
    pub fn words(self) -> &'static str {
        match self {
            Self::First => "there was no key yet",
            Self::SecretLost => "the Secret does not hold the value any more",
            Self::KeyLost => "Coder does not accept the value in the Secret",
            Self::Moved => "the control plane changed",
            Self::Organization => "the organization changed",
            Self::Tags => "the tags changed",
            Self::Name => "the name changed",
            Self::Requested => "a rotation was requested",
            Self::Scheduled => "the rotation is due",
        }
    }
}

pub(super) fn of(wanted: &Wanted, seen: &Seen, record: &Record, now: Timestamp) -> Verdict {
    let is_asked = is_asked(wanted, record);
    let is_due = due_at(wanted, seen, record).is_some_and(|it| it <= now);
    match (wanted.policy, found(wanted, seen, record)) {
        (Policy::Recreate, Some(need)) => Verdict::Mint(need),
        (_, _) if is_asked => Verdict::Mint(KeyNeed::Requested),
        (_, _) if is_due => Verdict::Mint(KeyNeed::Scheduled),
        (_, None) => Verdict::Enough(None),
        (Policy::OnRequest, Some(need)) => without_request(wanted, seen, record, need, now),
    }
}

/// Whether a person asks for a new key.
pub(super) fn is_asked(wanted: &Wanted, record: &Record) -> bool {
    wanted.rotate_request.is_some() && wanted.rotate_request != record.handled_request
}

/// When the schedule asks for the next key.
pub(super) fn due_at(wanted: &Wanted, seen: &Seen, record: &Record) -> Option<Timestamp> {
    let since = record.rotated_at.or_else(|| seen.live().map(|it| it.created_at))?;
    since.checked_add(wanted.rotate_every?).ok()
}

/// What is wrong with the key that is there.
fn found(wanted: &Wanted, seen: &Seen, record: &Record) -> Option<KeyNeed> {
    if seen.secret.checksum.is_none() {
        return Some(if record.current.is_some() { KeyNeed::SecretLost } else { KeyNeed::First });
    }
    if is_elsewhere(wanted, seen, record) {
        return Some(KeyNeed::Moved);
    }
    let Some(key) = seen.live() else { return Some(KeyNeed::KeyLost) };
    let is_ours = record.current.as_ref().is_some_and(|it| it.is_ours);
    if key.organization_id != wanted.organization_id {
        Some(KeyNeed::Organization)
    } else if key.tags != wanted.tags {
        Some(KeyNeed::Tags)
    } else if is_ours && !wanted.names.is_of_base(&key.name) {
        Some(KeyNeed::Name)
    } else {
        None
    }
}

/// Nobody asked: only what is not there at all is minted.
fn without_request(wanted: &Wanted, seen: &Seen, record: &Record, need: KeyNeed, now: Timestamp) -> Verdict {
    let current = record.current.as_ref();
    let is_listed = current.is_some_and(|held| seen.listed.iter().any(|it| is_key(held, it)));
    let name = current.map_or(wanted.names.base.as_str(), |it| it.name.as_str());
    let enough = |reason, message| Verdict::Enough(Some(waiting(reason, message)));
    match need {
        // What was begun is brought to its end.
        KeyNeed::First | KeyNeed::SecretLost if record.intent.is_some() => Verdict::Mint(need),
        KeyNeed::SecretLost if is_listed => {
            let secret = &wanted.secret.name;
            let message = format!(
                "key {name} is live in Coder, and Secret {secret} with its value is missing: restore the newest copy of the \
                 Secret from a backup, or {ADVICE}; the key stays valid for the overlap after that"
            );
            enough(Reason::SecretMissing, message)
        }
        KeyNeed::First | KeyNeed::SecretLost if !seen.is_recent(now) => Verdict::Look,
        KeyNeed::First => match seen.find(&wanted.names.base) {
            Some(other) => enough(Reason::NameTaken, taken(other)),
            None => Verdict::Mint(need),
        },
        KeyNeed::SecretLost => Verdict::Mint(need),
        KeyNeed::KeyLost if is_listed => {
            let message = format!("the Secret holds a value that is not that of key {name}: {ADVICE}");
            enough(Reason::SecretChanged, message)
        }
        KeyNeed::KeyLost => {
            enough(Reason::KeyRevoked, format!("key {name} is not in Coder any more: {ADVICE}"))
        }
        KeyNeed::Moved
        | KeyNeed::Organization
        | KeyNeed::Tags
        | KeyNeed::Name
        | KeyNeed::Requested
        | KeyNeed::Scheduled => {
            let message = format!("key {name} is not as declared, because {}: {ADVICE}", need.words());
            enough(api::Reason::DriftFound, message)
        }
    }
}

fn taken(other: &LiveKey) -> String {
    format!(
        "a key {} exists, which the operator does not manage: delete it, choose another name, or {ADVICE}",
        other.name
    )
}
