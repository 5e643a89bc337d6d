//! When no key is to be minted: what goes, and when.

use api::Reason;
use jiff::{SignedDuration, Timestamp};

use super::{
    super::{
        copies::{self, held, is_key},
        record::{Held, Record, Retiring, SecretPlace},
        situation::{AROUND_INTENT, Fate, LiveKey, Pods, Seen, Value, Wanted, fate},
    },
    Next, Rest, SecretWrite, intent, need, waiting, written,
};
use crate::pipeline::outcome::Blocked;

/// How often it is looked whether daemons have come.
const POLL: SignedDuration = SignedDuration::from_secs(15);
/// How often it is looked whether a key has come that was given up.
const LOST_POLL: SignedDuration = SignedDuration::from_mins(1);

/// The next action when the key is good, or is to be left as it is.
pub(super) fn next(
    wanted: &Wanted,
    seen: &Seen,
    mut record: Record,
    trouble: Option<Blocked>,
    now: Timestamp,
) -> Next {
    let stored = seen.stored(wanted);
    if stored.is_none() && (seen.secret.owner.is_none() || trouble.is_some()) {
        // Without a record in a Secret there is no fence, and nothing is revoked.
        return rest(wanted, seen, record, trouble, now);
    }
    sweep(wanted, seen, &mut record, now);
    prolong(wanted, seen, &mut record, now);
    let mut cleared = record.clone();
    let leaves = leave(wanted, seen, &mut cleared, now);
    let write = |record: Record| {
        let leaves = leaves.clone();
        written(wanted, seen, SecretWrite { record, value: Value::Keep, begins: None, leaves })
    };
    let is_stored = |record: &Record| stored.is_some_and(|it| it.says_what(record));
    if !is_stored(&record) && !is_stored(&cleared) {
        return write(cleared);
    }
    if let Some(due) = due(wanted, seen, &cleared, now).next() {
        // Nothing is revoked by a record that the status does not take: another writer may know better.
        if let Some(stored) = stored.filter(|it| it.epoch() > seen.mirror.epoch()) {
            return Next::Mirror { record: Box::new(stored.clone()), leaves: Vec::new() };
        }
        return Next::Revoke(Box::new(due.clone()));
    }
    let is_read = |it: &SecretPlace| seen.pods.as_ref().is_some_and(|pods| pods.secrets.contains(it));
    if let Some(former) = cleared.former.iter().find(|it| !is_read(it)) {
        return Next::Remove(former.clone());
    }
    if is_stored(&cleared) { rest(wanted, seen, cleared, trouble, now) } else { write(cleared) }
}

/// Takes out of a record what is done with. Gives the keys that nobody can reach any more, to be named.
pub(super) fn leave(wanted: &Wanted, seen: &Seen, record: &mut Record, now: Timestamp) -> Vec<Held> {
    let is =
        |held: &Held, list: &[Held]| list.iter().any(|it| it.is_called(&held.name, held.organization_id));
    let is_left = |it: &Held| it.place.is_replaced_by(&wanted.place) || is(it, &seen.left);
    let left = record.retiring.iter().map(|it| &it.held).filter(|it| is_left(it)).cloned().collect();
    let is_over = |it: &Retiring| is(&it.held, &seen.gone) && !may_still_come(it, wanted, now);
    record.retiring.retain(|it| !is_left(&it.held) && !is_over(it));
    record.former.retain(|it| !seen.removed.contains(it));
    left
}

/// An operator that slept may still ask for a key that was given up. Its name stays written down for a while, unless it says
/// by itself that it is ours.
fn may_still_come(retiring: &Retiring, wanted: &Wanted, now: Timestamp) -> bool {
    retiring.lost && !wanted.names.is_ours(&retiring.held.name) && now < comes_until(retiring)
}

/// A name that may still come is looked for in the list that everybody shares. Every other lost key is looked for itself.
fn has_come(lost: &Retiring, wanted: &Wanted, seen: &Seen, now: Timestamp) -> bool {
    let held = &lost.held;
    let is_listed = held.organization_id == Some(wanted.organization_id) && held.place.is_same(&wanted.place);
    // The list may be older than a key that was made in this pass.
    let is_made = seen.made.iter().any(|it| it.is_called(&held.name, held.organization_id));
    let is_waited_for = is_listed && !is_made && may_still_come(lost, wanted, now);
    !is_waited_for || fate(lost, seen.find(&held.name)) == Fate::Delete
}

fn comes_until(retiring: &Retiring) -> Timestamp {
    retiring.since.checked_add(AROUND_INTENT).unwrap_or(Timestamp::MAX)
}

/// Puts everything on the list of what goes that is ours and that nobody waits for: an intent that has become needless, and
/// keys that are back, or that a record knew that is lost. A fresh intent of another process is left to that process.
fn sweep(wanted: &Wanted, seen: &Seen, record: &mut Record, now: Timestamp) {
    if !wanted.leaves_begun {
        intent::give_up(record, seen, now);
    }
    for key in &seen.listed {
        let known = copies::all(wanted, seen).flat_map(Record::keys);
        let mirrored = known.into_iter().find(|it| it.is_ours && it.id.is_some() && it.id == key.id);
        // A name may be another object's by chance; a key that is in use is not touched for its name alone.
        let is_ours = mirrored.is_some() || (wanted.names.is_ours(&key.name) && key.daemons == 0);
        if is_ours && !record.names_key(&key.name, Some(key.organization_id)) {
            let checksum = mirrored.map(|it| it.checksum.as_str()).unwrap_or_default();
            record.retire(held(wanted, key, checksum, true), now);
        }
    }
}

/// A key that pods still get has its time when they no longer do. Whatever holds them up, it is not the daemons' fault.
pub(super) fn prolong(wanted: &Wanted, seen: &Seen, record: &mut Record, now: Timestamp) {
    let Some(current) = record.current.clone() else { return };
    for retiring in record.retiring.iter_mut().filter(|it| !it.lost) {
        if deadline(retiring, wanted, seen) <= now && is_given(retiring, &current, seen) {
            retiring.since = now;
        }
    }
}

/// Whether pods that come now would get it.
fn is_given(retiring: &Retiring, current: &Held, seen: &Seen) -> bool {
    let Some(pods) = &seen.pods else { return false };
    pods.given.as_ref().is_none_or(|it| it.iter().any(|it| is_its(it, retiring, current)))
}

/// Whether a checksum is that of an old key. Where nobody knows what its pods carry, it may be any but the current one.
fn is_its(checksum: &str, retiring: &Retiring, current: &Held) -> bool {
    match retiring.held.checksum.as_str() {
        "" => checksum != current.checksum,
        its => checksum == its,
    }
}

/// The keys that go now.
pub(super) fn due<'a>(
    wanted: &Wanted,
    seen: &Seen,
    record: &'a Record,
    now: Timestamp,
) -> impl Iterator<Item = &'a Retiring> {
    // Where the next key does not work, the one before is all that daemons have.
    let is_replaced = seen.live().is_some();
    let is_next = move |it: &&Retiring| {
        (it.lost || is_replaced)
            && is_due(it, wanted, seen, record, now)
            && !seen.was_tried(&it.held)
            && !copies::is_held(wanted, seen, &it.held)
    };
    record.retiring.iter().filter(is_next)
}

/// Whether a key may go now.
fn is_due(retiring: &Retiring, wanted: &Wanted, seen: &Seen, record: &Record, now: Timestamp) -> bool {
    if retiring.lost {
        return has_come(retiring, wanted, seen, now);
    }
    let Some(current) = &record.current else { return false };
    if is_given(retiring, current, seen) {
        return false;
    }
    let is_replaced = |pods: &Pods| {
        let is_carried = pods.carried.iter().any(|it| is_its(it, retiring, current));
        !is_carried && (!pods.are_wanted || has_daemons(seen, current))
    };
    deadline(retiring, wanted, seen) <= now || seen.pods.as_ref().is_some_and(is_replaced)
}

/// Pods that are there may have been given more time than is declared now.
fn deadline(retiring: &Retiring, wanted: &Wanted, seen: &Seen) -> Timestamp {
    let grace = seen.pods.as_ref().map_or(wanted.grace, |it| it.grace.max(wanted.grace));
    retiring.since.checked_add(grace).unwrap_or(Timestamp::MAX)
}

fn has_daemons(seen: &Seen, current: &Held) -> bool {
    let is_it = |it: &LiveKey| is_key(current, it) && it.daemons > 0;
    seen.listed.iter().any(is_it)
}

pub(super) fn rest(
    wanted: &Wanted,
    seen: &Seen,
    record: Record,
    trouble: Option<Blocked>,
    now: Timestamp,
) -> Next {
    let waits = record.retiring.iter().filter(|it| !it.lost && !seen.was_tried(&it.held));
    let mut times: Vec<Timestamp> = waits.map(|it| deadline(it, wanted, seen)).collect();
    if !times.is_empty() && seen.pods.is_some() && trouble.is_none() {
        times.extend(now.checked_add(POLL).ok());
    }
    let lost = record.retiring.iter().filter(|it| may_still_come(it, wanted, now));
    let poll = now.checked_add(LOST_POLL).unwrap_or(Timestamp::MAX);
    times.extend(lost.map(|it| comes_until(it).min(poll)));
    times.extend(record.intent.as_ref().map(intent::is_fresh_until));
    if !seen.secret.is_users(&wanted.names.uid) {
        times.extend(need::due_at(wanted, seen, &record));
    }
    // Whatever is over and still stands there waits for something else than time.
    let again_at = times.into_iter().filter(|it| *it > now).min();
    let concern = record.current.as_ref().and_then(|it| unseen(wanted, seen, &record, it, now));
    let key = match (trouble, &record.current) {
        (Some(trouble), _) => Err(trouble),
        (None, Some(current)) => Ok(current.clone()),
        (None, None) => Err(waiting(api::Reason::Progressing, "there is no key yet".to_owned())),
    };
    let record = copies::numbered(wanted, seen, record);
    Next::Rest(Box::new(Rest { record, key, concern, again_at }))
}

/// Daemons should have come by now.
fn unseen(wanted: &Wanted, seen: &Seen, record: &Record, current: &Held, now: Timestamp) -> Option<Blocked> {
    let are_wanted = seen.pods.as_ref().is_some_and(|it| it.are_wanted);
    let until = record.rotated_at?.checked_add(wanted.grace).ok()?;
    if !are_wanted || has_daemons(seen, current) || now < until {
        return None;
    }
    let message = format!("no daemon was seen on key {}: look at the pods and their logs", current.name);
    Some(waiting(Reason::DaemonsNotSeen, message))
}
