//! What a pass would do, without doing it: the machine is asked, told what would come of each action, and asked again.
//!
//! Pure. What comes of it is a plan in names, which is the same for as long as nothing changes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use uuid::Uuid;

use super::{
    copies,
    machine::{self, KeyNeed, Next, Rest, SecretWrite},
    record::{Held, Intent, Record, Retiring, SecretPlace},
    situation::{LiveKey, Seen, Value, Wanted},
};

/// Stands for the checksum of a value that nobody has made yet.
const NOT_MADE: &str = "not made yet";

/// Something that people want to know of before it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// A key is minted and written into the Secret.
    Mint {
        need: KeyNeed,
        /// The key whose place it takes.
        before: Option<Box<Before>>,
        name: String,
    },
    /// The value is written where it is declared to be.
    Move {
        from: Option<SecretPlace>,
    },
    /// The record beside the value is completed.
    Note,
    Revoke(Held),
}

/// A key that gives way to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Before {
    pub name: String,
    pub organization: (Option<Uuid>, String),
    /// Nothing when coderd does not have it any more.
    pub tags: Option<BTreeMap<String, String>>,
    pub secret: Option<SecretPlace>,
}

/// What a pass would do, and where it would end.
#[derive(Debug, Clone)]
pub struct KeyPreview {
    pub acts: Vec<Act>,
    pub rest: Rest,
    /// What it would name and forget.
    pub leaves: Vec<Retiring>,
    /// What is written down of our keys now.
    pub known: Record,
    /// Whether the Secret is somebody else's.
    pub is_users: bool,
    /// Whether nothing at all would be written, records included.
    pub is_settled: bool,
}

/// Nothing when it would come to no end.
pub fn preview(wanted: &Wanted, seen: &Seen, now: Timestamp) -> Option<KeyPreview> {
    let known = copies::newest(wanted, seen);
    let is_users = seen.secret.is_users(&wanted.names.uid);
    let (mut seen, mut acts, mut leaves) = (seen.clone(), Vec::new(), Vec::new());
    // `None` until something is written, or a lost key is skipped, which stays on record for a while.
    let mut first_writes = None;
    for _ in 0..machine::most_actions(wanted, &seen) {
        let next = machine::next(wanted, &seen, now);
        if matches!(next, Next::Write(_) | Next::Begin { .. } | Next::Mirror { .. } | Next::Remove(_)) {
            first_writes = first_writes.or(Some(true));
        }
        match next {
            Next::Rest(rest) => {
                let is_settled = acts.is_empty() && first_writes != Some(true);
                return Some(KeyPreview { acts, rest: *rest, leaves, known, is_users, is_settled });
            }
            Next::Write(write) => {
                act_of(wanted, &write, &seen, &mut acts);
                seen.wrote(&write.record, &write.value);
            }
            Next::Begin { record, need } => {
                begins(&record, need, &seen, &mut acts);
                seen.begun(&record);
            }
            Next::Mirror { record, leaves: left } => {
                let known = seen.mirror.retiring.clone();
                leaves.extend(left.into_iter().map(|held| {
                    let before = known.iter().find(|it| it.held == held).cloned();
                    before.unwrap_or(Retiring { held, since: now, lost: false })
                }));
                seen.mirrored(&record);
            }
            Next::Look => seen.looked(seen.listed.clone(), seen.secret.clone(), now),
            Next::Mint(intent) => {
                mint(&intent, &seen, &known, &mut acts);
                let key = LiveKey::of_intent(&intent, wanted, now);
                seen.minted(&intent, NOT_MADE.to_owned(), key);
            }
            Next::Prove => seen.proved(Some(would_be(wanted, &seen, now))),
            Next::Revoke(retiring) => {
                // A lost one may have come to nothing: its name is looked at for a while, and there is nothing to do.
                let is_home = retiring.held.organization_id == Some(wanted.organization_id);
                let is_nothing = is_home && seen.find(&retiring.held.name).is_none();
                if retiring.lost && (is_nothing || seen.is_others(&retiring.held)) {
                    first_writes = first_writes.or(Some(false));
                } else {
                    acts.push(Act::Revoke(retiring.held.clone()));
                }
                seen.gone(&retiring.held);
            }
            Next::Remove(place) => seen.removed(&place),
        }
    }
    None
}

/// What a write is about. One that only goes with something else is nothing of its own.
fn act_of(wanted: &Wanted, write: &SecretWrite, seen: &Seen, acts: &mut Vec<Act>) {
    let SecretWrite { record, value, begins: need, leaves: _ } = write;
    match (need, &record.intent, value) {
        (Some(need), Some(_), _) => begins(record, *need, seen, acts),
        (_, _, Value::Former) => {
            acts.push(Act::Move { from: copies::newest(wanted, seen).secret });
        }
        _ if acts.is_empty() => acts.push(Act::Note),
        _ => {}
    }
}

/// What is about to be minted is written down.
fn begins(record: &Record, need: KeyNeed, seen: &Seen, acts: &mut Vec<Act>) {
    let Some(intent) = &record.intent else { return };
    let before = before(record, seen);
    acts.retain(|it| !matches!(it, Act::Mint { .. }));
    acts.push(Act::Mint { need, before, name: intent.name.clone() });
}

/// A key is minted whose name was written down in an earlier pass.
fn mint(intent: &Intent, seen: &Seen, known: &Record, acts: &mut Vec<Act>) {
    if acts.iter().any(|it| matches!(it, Act::Mint { .. })) {
        return;
    }
    acts.retain(|it| *it != Act::Note);
    let before = before(known, seen);
    let need = if before.is_some() { KeyNeed::Requested } else { KeyNeed::First };
    acts.push(Act::Mint { need, before, name: intent.name.clone() });
}

/// The key that is in use until then.
fn before(record: &Record, seen: &Seen) -> Option<Box<Before>> {
    let current = record.current.as_ref()?;
    let Held { name, organization_id, organization_name, .. } = current;
    let listed = seen.listed.iter().find(|it| copies::is_key(current, it));
    Some(Box::new(Before {
        name: name.clone(),
        organization: (*organization_id, organization_name.clone()),
        tags: listed.map(|it| it.tags.clone()),
        secret: record.secret.clone(),
    }))
}

/// The key that the value in the Secret would be.
fn would_be(wanted: &Wanted, seen: &Seen, now: Timestamp) -> LiveKey {
    let current = seen.secret.record.as_ref().and_then(|it| it.current.as_ref());
    LiveKey {
        id: current.and_then(|it| it.id),
        name: current.map_or_else(|| wanted.names.base.clone(), |it| it.name.clone()),
        organization_id: current.and_then(|it| it.organization_id).unwrap_or(wanted.organization_id),
        tags: wanted.tags.clone(),
        created_at: now,
        daemons: 0,
    }
}
