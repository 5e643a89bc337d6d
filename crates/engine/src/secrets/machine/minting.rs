//! From the wish for a key to its value in the Secret: intent, status, mint, write.

use jiff::{SignedDuration, Timestamp};

use super::{
    super::{
        copies::{self, held, is_key},
        names::tags_hash,
        own::Came,
        record::{Intent, Record},
        situation::{Minted, Seen, Value, Wanted},
    },
    KeyNeed, Next, SecretWrite,
    intent::is_stale,
    retiring::leave,
    written,
};

/// A value in our hands is written before anything else, or its key is given up.
pub(super) fn keep_what_was_minted(
    wanted: &Wanted,
    seen: &Seen,
    record: &Record,
    now: Timestamp,
) -> Option<Next> {
    let minted @ Minted { intent, .. } = seen.minted.as_ref()?;
    let (name, organization) = (&intent.name, intent.organization_id);
    if record.intent.as_ref().is_some_and(|it| it.is_called(name, organization)) {
        return Some(write(wanted, seen, put(wanted, seen, record, minted, now), Value::Minted, now));
    }
    if record.names_key(name, organization) {
        return None;
    }
    // Somebody else went on without us, maybe long ago: the key that we made is nobody's.
    let mut record = record.clone();
    // Its value was in no Secret: the write that had it is the one that was refused.
    record.retire_lost(intent);
    Some(write(wanted, seen, record, Value::Keep, now))
}

/// The intent of the key that is wanted, if that key was begun. `None` also where the Secret is an older copy: nobody can tell
/// whether the value of that key has been in a newer one.
pub(super) fn begun<'a>(wanted: &Wanted, seen: &Seen, record: &'a Record) -> Option<&'a Intent> {
    let intent = record.intent.as_ref().filter(|it| serves(it, wanted))?;
    (!copies::is_rolled_back(wanted, seen, record)).then_some(intent)
}

/// The next action towards a new key.
pub(super) fn next(wanted: &Wanted, seen: &Seen, record: Record, need: KeyNeed, now: Timestamp) -> Next {
    let Some(intent) = begun(wanted, seen, &record).cloned() else {
        return begin(wanted, seen, record, need, now);
    };
    let is_fenced = seen.stored(wanted).and_then(|it| it.intent.as_ref()) == Some(&intent);
    if !is_fenced && !is_begun(seen, &intent) {
        // Only the status knew it: the fence comes first.
        return write(wanted, seen, claimed(record, intent, now), Value::Keep, now);
    }
    let is_there = seen.find(&intent.name).is_some();
    let came = seen.came(&intent);
    match came {
        Some(Came::Nothing) if !is_there => {}
        // Somebody else has a key of that name: it is none of our business, and another name is next.
        Some(Came::Nothing | Came::Others) => {
            return begin(wanted, seen, Record { intent: None, ..record }, need, now);
        }
        Some(Came::Maybe) | None if !seen.has_looked => return Next::Look,
        // It was minted, and its value is lost, as far as anybody can tell. Another name is next, and that is written down
        // before anything is revoked: whoever is slow finds the Secret changed.
        Some(Came::Maybe) | None if is_there => return begin(wanted, seen, record, need, now),
        Some(Came::Maybe) | None => {}
    }
    if came.is_none() || is_stale(&intent, now) {
        return write(wanted, seen, claimed(record, intent, now), Value::Keep, now);
    }
    let is_mirrored = seen.mirror.intent.as_ref() == Some(&intent);
    if !is_fenced {
        return Next::Mint(Box::new(intent));
    }
    if !is_mirrored && seen.stored(wanted) != Some(&record) {
        // Two copies with one epoch say the same.
        return write(wanted, seen, record, Value::Keep, now);
    }
    if !is_mirrored {
        return Next::Mirror { record: Box::new(record), leaves: Vec::new() };
    }
    // After the status: another writer who knows better has changed it.
    if let Some(lost) = record.retiring.iter().find(|it| it.lost && !seen.was_tried(&it.held)) {
        return Next::Revoke(Box::new(lost.clone()));
    }
    Next::Mint(Box::new(intent))
}

/// Whoever is about to ask for the key of an intent that somebody else wrote makes it theirs, by another time in it. The one
/// before finds the Secret changed, and does not take the key for a stranger's.
fn claimed(record: Record, intent: Intent, now: Timestamp) -> Record {
    let later = intent.since.checked_add(SignedDuration::from_secs(1)).unwrap_or(now);
    let since = if is_stale(&intent, now) { now } else { now.max(later) };
    Record { intent: Some(Intent { since, ..intent }), ..record }
}

/// Whether this process wrote that intent into the status, while there was no Secret, and has not asked for its key yet.
fn is_begun(seen: &Seen, intent: &Intent) -> bool {
    let is_ours = seen.came(intent) == Some(Came::Nothing) || seen.came(intent) == Some(Came::Others);
    is_ours && seen.secret.owner.is_none() && seen.mirror.intent.as_ref() == Some(intent)
}

/// Whether the status alone can hold an intent: the first one, which nobody but the next writer of the status can know. Every
/// later one stands in the Secret, too.
fn may_begin_in_status(seen: &Seen, record: &Record) -> bool {
    let is_first = record.current.is_none() && record.retiring.is_empty() && record.former.is_empty();
    seen.writes_status && is_first && seen.secret.owner.is_none() && seen.former.is_none()
}

/// Writes down what is about to be minted.
fn begin(wanted: &Wanted, seen: &Seen, mut record: Record, need: KeyNeed, now: Timestamp) -> Next {
    let may_be_bare = may_be_bare(wanted, seen, &record);
    if may_be_bare && !seen.is_recent(now) {
        return Next::Look;
    }
    let is_bare = may_be_bare && seen.find(&wanted.names.base).is_none();
    let is_rolled_back = copies::is_rolled_back(wanted, seen, &record);
    let listed = seen.listed.iter().filter_map(|it| wanted.names.generation(&it.name)).max();
    record.generation = record.generation.max(listed.unwrap_or_default()).saturating_add(1);
    let name = if is_bare { wanted.names.base.clone() } else { wanted.names.suffixed(record.generation) };
    if is_bare {
        record.used.push(name.to_lowercase());
    }
    let intent = Intent {
        name,
        organization_id: Some(wanted.organization_id),
        organization_name: wanted.organization_name.clone(),
        tags_hash: tags_hash(&wanted.tags),
        place: wanted.place.clone(),
        since: now,
    };
    match record.intent.replace(intent) {
        // Somebody may have its value from the newer copy of the Secret.
        Some(lost) if is_rolled_back && wanted.names.is_ours(&lost.name) => record.retire(lost.held(), now),
        Some(lost) => record.retire_lost(&lost),
        None => {}
    }
    let leaves = leave(wanted, seen, &mut record, now);
    if leaves.is_empty() && may_begin_in_status(seen, &record) {
        return Next::Begin { record: Box::new(copies::next(wanted, seen, record)), need };
    }
    written(wanted, seen, SecretWrite { record, value: Value::Keep, begins: Some(need), leaves })
}

fn write(wanted: &Wanted, seen: &Seen, mut record: Record, value: Value, now: Timestamp) -> Next {
    let leaves = leave(wanted, seen, &mut record, now);
    written(wanted, seen, SecretWrite { record, value, begins: None, leaves })
}

/// The declared name as it is, if we never gave it, or one made of it, before.
fn may_be_bare(wanted: &Wanted, seen: &Seen, record: &Record) -> bool {
    let given: Vec<&str> = record.names().chain(copies::all(wanted, seen).flat_map(Record::names)).collect();
    let was_given = given.iter().any(|it| wanted.names.is_of_base(it));
    // Where only a number is left of what we gave, it may have been this name.
    !was_given && (record.generation == 0 || !given.is_empty())
}

/// Whether an intent is still for what is wanted.
fn serves(intent: &Intent, wanted: &Wanted) -> bool {
    intent.organization_id == Some(wanted.organization_id)
        && intent.place.is_same(&wanted.place)
        && intent.tags_hash == tags_hash(&wanted.tags)
        && wanted.names.is_of_base(&intent.name)
}

/// The record with the key that was minted.
fn put(wanted: &Wanted, seen: &Seen, record: &Record, minted: &Minted, now: Timestamp) -> Record {
    let Minted { checksum, key, .. } = minted;
    let mut record = record.clone();
    record.intent = None;
    if let Some(before) = record.current.take() {
        record.retire(before, now);
    }
    // An older copy of the Secret may have held a key that was on its way out: its overlap begins now.
    for retiring in record.retiring.iter_mut().filter(|it| !it.lost) {
        if seen.live().is_some_and(|it| is_key(&retiring.held, it)) {
            retiring.since = now;
        }
    }
    record.current = Some(held(wanted, key, checksum, true));
    record.rotated_at = Some(now);
    record.handled_request.clone_from(&wanted.rotate_request);
    record.settle_in(&wanted.secret, seen.pods.is_some());
    record
}
