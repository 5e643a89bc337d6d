//! What we know, put together from the newest copy of the record and what coderd said about the value.

use jiff::Timestamp;

use super::{
    super::{
        copies::{self, held, is_key},
        record::{Held, Record},
        situation::{LiveKey, Seen, Wanted},
    },
    is_elsewhere,
};

/// The newest copy of the record, with the highest number that any copy knows.
pub(crate) fn known(wanted: &Wanted, seen: &Seen) -> Record {
    let mut record = copies::newest(wanted, seen);
    record.holder.clone_from(&wanted.names.uid);
    record.generation = highest(wanted, seen);
    if let Some(current) = &mut record.current {
        let is_same = current.organization_name.is_empty()
            || current.organization_name.eq_ignore_ascii_case(&wanted.organization_name);
        if current.organization_id.is_none() && is_same {
            current.organization_id = Some(wanted.organization_id);
        }
    }
    record
}

/// The same in the light of what coderd says about the value in the Secret.
pub(crate) fn settled(wanted: &Wanted, seen: &Seen, known: Record, now: Timestamp) -> Record {
    let mut record = known;
    if let (Some(key), Some(checksum)) = (seen.live(), &seen.secret.checksum)
        && !is_elsewhere(wanted, seen, &record)
    {
        let is_ours = is_ours(wanted, seen, &record, key);
        record.generation = record.generation.max(wanted.names.generation(&key.name).unwrap_or_default());
        adopt(&mut record, held(wanted, key, checksum, is_ours), key, now);
        record.settle_in(&wanted.secret, seen.pods.is_some());
    }
    record
}

/// Whether we minted that key, by anything that is written down, or by its name.
pub(crate) fn is_ours(wanted: &Wanted, seen: &Seen, record: &Record, key: &LiveKey) -> bool {
    let mut recorded = record.keys().chain(copies::all(wanted, seen).flat_map(Record::keys));
    wanted.names.is_ours(&key.name)
        || recorded.any(|it| it.is_ours && is_key(it, key))
        || record.intent.iter().any(|it| it.is_called(&key.name, Some(key.organization_id)))
}

/// Makes a live key the current one; the one before goes.
pub(crate) fn adopt(record: &mut Record, mut current: Held, key: &LiveKey, now: Timestamp) {
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

/// The highest number in any copy.
fn highest(wanted: &Wanted, seen: &Seen) -> u32 {
    let numbers = copies::all(wanted, seen).flat_map(|copy| {
        let names = copy.names().filter_map(|it| wanted.names.generation(it));
        names.chain([copy.generation])
    });
    numbers.max().unwrap_or_default()
}
