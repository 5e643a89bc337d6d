//! What we know, put together from the Secret, the status and what coderd said about the value.

use jiff::Timestamp;

use super::{
    super::{
        names::tags_hash,
        record::{Held, Record},
        situation::{LiveKey, Seen, Wanted},
    },
    is_elsewhere,
};

/// The record in the Secret, or the status where that is all there is. Both may know the highest number.
pub(super) fn known(wanted: &Wanted, seen: &Seen) -> Record {
    let mut record = seen.stored(wanted).unwrap_or(&seen.mirror).clone();
    record.holder.clone_from(&wanted.names.uid);
    record.generation = highest(wanted, seen, &record);
    fill(&mut record, &seen.mirror);
    if let Some(current) = &mut record.current {
        let is_same = current.organization_name.is_empty()
            || current.organization_name.eq_ignore_ascii_case(&wanted.organization_name);
        if current.organization_id.is_none() && is_same {
            current.organization_id = Some(wanted.organization_id);
        }
    }
    record
}

/// A record that somebody has taken things out of gets them back: the status was written after it and has all of them.
fn fill(record: &mut Record, mirror: &Record) {
    record.current = record.current.take().or_else(|| mirror.current.clone());
    record.rotated_at = record.rotated_at.or(mirror.rotated_at);
    record.handled_request = record.handled_request.take().or_else(|| mirror.handled_request.clone());
    record.secret = record.secret.take().or_else(|| mirror.secret.clone());
    if record.used.is_empty() {
        record.used.clone_from(&mirror.used);
    }
}

/// The same in the light of what coderd says about the value in the Secret.
pub(super) fn settled(wanted: &Wanted, seen: &Seen, known: Record, now: Timestamp) -> Record {
    let mut record = known;
    if let (Some(key), Some(checksum)) = (seen.live(), &seen.secret.checksum)
        && !is_elsewhere(wanted, seen, &record)
    {
        let is_ours = is_ours(wanted, seen, &record, key);
        adopt(&mut record, held(wanted, key, checksum, is_ours), key, now);
        record.settle_in(&wanted.secret, seen.pods.is_some());
    }
    record
}

/// Whether we minted that key, by anything that is written down, or by its name.
pub(super) fn is_ours(wanted: &Wanted, seen: &Seen, record: &Record, key: &LiveKey) -> bool {
    let mut recorded = record.keys().chain(seen.mirror.keys());
    wanted.names.is_ours(&key.name)
        || recorded.any(|it| it.is_ours && is_key(it, key))
        || record.intent.iter().any(|it| it.is_called(&key.name, Some(key.organization_id)))
}

/// A live key whose value has that checksum.
pub(super) fn held(wanted: &Wanted, key: &LiveKey, checksum: &str, is_ours: bool) -> Held {
    let is_home = key.organization_id == wanted.organization_id;
    Held {
        name: key.name.clone(),
        id: Some(key.id),
        organization_id: Some(key.organization_id),
        organization_name: if is_home { wanted.organization_name.clone() } else { String::new() },
        tags_hash: tags_hash(&key.tags),
        place: wanted.place.clone(),
        checksum: checksum.to_owned(),
        is_ours,
    }
}

/// Makes a live key the current one; the one before goes.
pub(super) fn adopt(record: &mut Record, mut current: Held, key: &LiveKey, now: Timestamp) {
    record.retiring.retain(|it| !is_key(&it.held, key));
    record.intent = record.intent.take().filter(|it| !it.is_called(&key.name, Some(key.organization_id)));
    match record.current.take() {
        Some(before) if is_key(&before, key) && current.organization_name.is_empty() => {
            current.organization_name = before.organization_name;
        }
        Some(before) if !is_key(&before, key) => {
            record.retire(before, now);
            record.rotated_at = Some(now);
        }
        _ => {}
    }
    record.current = Some(current);
}

/// Whether what is written down is this key.
pub(super) fn is_key(held: &Held, key: &LiveKey) -> bool {
    match held.id {
        Some(id) => id == key.id,
        None => held.is_called(&key.name, Some(key.organization_id)),
    }
}

/// The highest number that is known from anywhere.
fn highest(wanted: &Wanted, seen: &Seen, record: &Record) -> u32 {
    let listed = seen.listed.iter().map(|it| it.name.as_str());
    let names = record.names().chain(seen.mirror.names()).chain(listed);
    let numbers = names.filter_map(|it| wanted.names.generation(it));
    numbers.chain([record.generation, seen.mirror.generation]).max().unwrap_or_default()
}
