//! The copies of a record: in the Secret, in the Secret that held the value before, in the status, in the memory of this process.
//!
//! A Secret may be restored from a backup, a status may be lost, a process ends. So a copy counts by its rank and not by where
//! it was found. An older copy of the Secret is reported, and nothing is minted or revoked because of it.

use jiff::Timestamp;

use super::{
    names::tags_hash,
    record::{Held, Record},
    situation::{LiveKey, Seen, Wanted},
};
use crate::pipeline::outcome::Blocked;

/// The copies of this object's record, the one in the Secret first.
pub(crate) fn all<'a>(wanted: &'a Wanted, seen: &'a Seen) -> impl Iterator<Item = &'a Record> {
    let former = seen.former.iter().filter(|it| !it.is_users(&wanted.names.uid));
    let former = former.filter_map(|it| it.record.as_ref());
    seen.stored(wanted).into_iter().chain(former).chain([&seen.mirror]).chain(&seen.remembered)
}

/// The highest epoch of all copies.
pub(crate) fn epoch(wanted: &Wanted, seen: &Seen) -> u64 {
    all(wanted, seen).map(Record::epoch).max().unwrap_or_default()
}

/// The highest rank of all copies.
fn highest(wanted: &Wanted, seen: &Seen) -> (u32, u64) {
    all(wanted, seen).map(Record::rank).max().unwrap_or_default()
}

/// The newest copy. What is missing in it is taken from the others of the same rank, because people edit annotations.
pub(crate) fn newest(wanted: &Wanted, seen: &Seen) -> Record {
    let highest = highest(wanted, seen);
    let may_be = |it: &&Record| it.rank() == highest || (it.epoch.is_none() && it.generation == highest.0);
    let mut newest: Vec<&Record> = all(wanted, seen).filter(may_be).collect();
    newest.sort_by_key(|it| std::cmp::Reverse(it.rank()));
    let mut first = 0;
    for at in 1..newest.len() {
        // Without an epoch two copies may count the same. The later one has the other's key on its way out.
        if replaces(newest[at], newest[first]) && !replaces(newest[first], newest[at]) {
            first = at;
        }
    }
    newest.swap(0, first);
    let mut copies = newest.into_iter();
    let mut record = copies.next().cloned().unwrap_or_default();
    let rank = record.rank();
    copies.filter(|it| it.rank() == rank).for_each(|it| fill(&mut record, it));
    record
}

/// Whether a record has taken the place of another one: the other's key is on its way out in it, or the key that the other
/// was about to mint is in use.
fn replaces(one: &Record, other: &Record) -> bool {
    let has_retired = other.current.as_ref().is_some_and(|current| {
        one.retiring.iter().any(|it| it.held.is_called(&current.name, current.organization_id))
    });
    let has_minted = other.intent.as_ref().is_some_and(|intent| {
        one.current.as_ref().is_some_and(|it| it.is_called(&intent.name, intent.organization_id))
    });
    has_retired || has_minted
}

/// A record that somebody has taken things out of gets them back.
fn fill(record: &mut Record, other: &Record) {
    record.current = record.current.take().or_else(|| other.current.clone());
    record.complete(other);
    record.rotated_at = record.rotated_at.or(other.rotated_at);
    record.handled_request = record.handled_request.take().or_else(|| other.handled_request.clone());
    record.secret = record.secret.take().or_else(|| other.secret.clone());
    if record.used.is_empty() {
        record.used.clone_from(&other.used);
    }
}

/// The record as it is to be written: one epoch above every copy.
pub(crate) fn next(wanted: &Wanted, seen: &Seen, record: Record) -> Record {
    Record { epoch: Some(epoch(wanted, seen).saturating_add(1)), ..record }
}

/// The record in the Secret, if it is the newest copy by its key and yet has a lower epoch than another copy: two writers did
/// not know of each other. The record has to be written once more, or the status would go back to the lower epoch.
pub(crate) fn overtaken<'a>(wanted: &Wanted, seen: &'a Seen) -> Option<&'a Record> {
    let stored = seen.stored(wanted).filter(|it| it.rank() == highest(wanted, seen))?;
    (stored.epoch() < epoch(wanted, seen)).then_some(stored)
}

/// The record as the status is to show it: with the epoch of the copy that it equals, or with the next one.
pub(crate) fn numbered(wanted: &Wanted, seen: &Seen, record: Record) -> Record {
    let (highest, epoch) = (highest(wanted, seen), epoch(wanted, seen));
    let is_newest = |it: &&Record| it.rank() == highest && it.epoch() == epoch;
    let is_it = |it: &&Record| is_newest(it) && it.says_what(&Record { epoch: it.epoch, ..record.clone() });
    match all(wanted, seen).find(is_it) {
        Some(copy) => Record { epoch: copy.epoch, ..record },
        None => next(wanted, seen, record),
    }
}

/// Whether another copy of the same rank calls a key the current one: then it is not revoked.
pub(crate) fn is_held(wanted: &Wanted, seen: &Seen, held: &Held) -> bool {
    let highest = highest(wanted, seen);
    let mut held_by =
        all(wanted, seen).filter(|it| it.rank() == highest).filter_map(|it| it.current.as_ref());
    held_by.any(|it| it.may_be(held))
}

/// Whether the Secret was replaced by an older copy of itself.
pub(crate) fn is_rolled_back(wanted: &Wanted, seen: &Seen, record: &Record) -> bool {
    let Some(stored) = seen.stored(wanted) else { return false };
    let is_later =
        |it: &Record| it.generation == stored.generation && replaces(it, stored) && !replaces(stored, it);
    // What coderd says may have raised the record's own number: the copies are compared.
    stored.rank() < highest(wanted, seen)
        || stored.epoch() < record.epoch()
        || all(wanted, seen).any(is_later)
}

/// A live key that was made after everything that is written down: every copy is an older one. A name with our suffix is
/// written down before its key is asked for, so its number is in every newer copy.
pub(crate) fn newer_key<'a>(wanted: &Wanted, seen: &'a Seen, record: &Record) -> Option<&'a LiveKey> {
    let numbered = seen.listed.iter().filter_map(|it| Some((wanted.names.generation(&it.name)?, it)));
    let (generation, key) = numbered.max_by_key(|it| it.0)?;
    let is_in_the_secret = seen.live().is_some_and(|it| it.is(key));
    (generation > record.generation && !is_in_the_secret).then_some(key)
}

/// The record as it must have been after that key was made, as far as coderd can tell. Requests for a rotation that stand on
/// the object by then were heard, for all that is known.
pub(crate) fn behind(wanted: &Wanted, seen: &Seen, record: Record, key: &LiveKey, now: Timestamp) -> Record {
    let mut record = next(wanted, seen, record);
    record.retiring.retain(|it| !is_key(&it.held, key));
    if let Some(before) = record.current.take() {
        record.retire(before, now);
    }
    record.current = Some(held(wanted, key, "", true));
    record.generation = wanted.names.generation(&key.name).unwrap_or(record.generation);
    record.rotated_at = Timestamp::from_second(key.created_at.as_second()).ok();
    record.handled_request.clone_from(&wanted.rotate_request);
    record
}

/// Why the value in the Secret is not that of the newest key: an older copy of the Secret took the place of a newer one. `None`
/// when the Secret holds the newest key, or no value, or one that no copy knows.
pub(crate) fn outdated(wanted: &Wanted, seen: &Seen, record: &Record) -> Option<Blocked> {
    let checksum = seen.secret.checksum.as_ref()?;
    let holds_current = record.current.as_ref().is_some_and(|it| match seen.live() {
        Some(key) => is_key(it, key),
        None => it.checksum == *checksum,
    });
    let is_older = is_rolled_back(wanted, seen, record);
    let is_replaced = seen.live().is_some_and(|key| {
        record.retiring.iter().any(|it| !it.lost && it.held.is_ours && is_key(&it.held, key))
    });
    let newest = if !holds_current && (is_older || is_replaced) {
        record.current.as_ref().map(|it| it.name.as_str())
    } else if is_older && record.intent.is_some() {
        // Its value may have been in the newer Secret.
        record.intent.as_ref().map(|it| it.name.as_str())
    } else {
        Some(rival(wanted, seen, record)?.name.as_str())
    };
    let message = message(wanted, seen, record, newest);
    Some(Blocked { reason: api::Reason::SecretOutdated, message })
}

/// A live key that another copy of the same rank calls the current one, and that this record does not know.
fn rival<'a>(wanted: &'a Wanted, seen: &'a Seen, record: &Record) -> Option<&'a Held> {
    let highest = highest(wanted, seen);
    let others = all(wanted, seen).filter(|it| it.rank() == highest).filter_map(|it| it.current.as_ref());
    let is_known = |it: &Held| record.keys().any(|key| key.is_called(&it.name, it.organization_id));
    let is_live = |it: &Held| seen.listed.iter().any(|key| is_key(it, key));
    others.into_iter().find(|it| it.is_ours && !is_known(it) && is_live(it))
}

fn message(wanted: &Wanted, seen: &Seen, record: &Record, newest: Option<&str>) -> String {
    let secret = &wanted.secret.name;
    let known = all(wanted, seen).flat_map(Record::keys);
    let recorded = || known.into_iter().find(|it| Some(&it.checksum) == seen.secret.checksum.as_ref());
    let holds = match (seen.live(), recorded()) {
        (Some(key), _) => format!("key {}, which Coder still accepts", key.name),
        (None, Some(held)) => format!("key {}, which Coder does not accept any more", held.name),
        (None, None) => "a value that Coder does not accept".to_owned(),
    };
    let newest = match newest {
        Some(name) if seen.find(name).is_some() => format!("the newest key is {name}, which is live"),
        Some(name) => format!("the newest key is {name}, which Coder does not list any more"),
        None => "the name of the newest key is not known".to_owned(),
    };
    let (stored, epoch) = (seen.stored(wanted).map(Record::epoch), record.epoch());
    let copy = stored.map_or_else(String::new, |it| format!(" (copy {it} of {epoch})"));
    let pods = seen.pods.as_ref().map_or("", |_| {
        ". Pods that run keep the key that they started with, and a container that starts now reads the older one"
    });
    format!(
        "Secret {secret} was replaced by an older copy of itself{copy}: it holds {holds}; {newest}, and its value is not in \
         the Secret. Nothing is minted or revoked until that is resolved: restore the newer Secret, or set the annotation \
         {} to a new value to mint a new key{pods}",
        api::annotation::ROTATE_REQUESTED_AT
    )
}

/// A live key whose value has that checksum.
pub(crate) fn held(wanted: &Wanted, key: &LiveKey, checksum: &str, is_ours: bool) -> Held {
    let is_home = key.organization_id == wanted.organization_id;
    Held {
        name: key.name.clone(),
        id: key.id,
        organization_id: Some(key.organization_id),
        organization_name: if is_home { wanted.organization_name.clone() } else { String::new() },
        tags_hash: tags_hash(&key.tags),
        place: wanted.place.clone(),
        checksum: checksum.to_owned(),
        is_ours,
    }
}

/// Whether what is written down is this key.
pub(crate) fn is_key(held: &Held, key: &LiveKey) -> bool {
    match (held.id, key.id) {
        (Some(id), Some(of_key)) => id == of_key,
        _ => held.is_called(&key.name, Some(key.organization_id)),
    }
}
