//! How long an intent is left to the process that wrote it, and what becomes of its key when it is given up.

use jiff::{SignedDuration, Timestamp};

use super::super::{
    own::Came,
    record::{Intent, Record},
    situation::Seen,
};

/// After this time an intent is set out for anew, so that the key that comes of it is of its time.
const INTENT_IS_FRESH: SignedDuration = SignedDuration::from_mins(5);

/// Whether the key that would come of an intent now is not of its time.
pub(super) fn is_stale(intent: &Intent, now: Timestamp) -> bool {
    now.duration_since(intent.since).abs() > INTENT_IS_FRESH
}

/// Whether another process may be about to ask for the key of an intent, or to write its value.
fn is_under_way(seen: &Seen, intent: &Intent, now: Timestamp) -> bool {
    seen.came(intent).is_none() && !is_stale(intent, now)
}

/// Gives up the intent of a record, unless another process may be about to use it. The key of that name goes as one that may be lost.
/// It stays where this process wrote the intent and knows that coderd made no key for it: a key of that name is somebody else's.
pub(super) fn give_up(record: &mut Record, seen: &Seen, now: Timestamp) {
    let Some(intent) = record.intent.take_if(|it| !is_under_way(seen, it, now)) else { return };
    match seen.came(&intent) {
        Some(Came::Nothing | Came::Others) => {}
        Some(Came::Maybe) | None => record.retire_lost(&intent),
    }
}

/// When an intent stops being fresh.
pub(super) fn is_fresh_until(intent: &Intent) -> Timestamp {
    let second = SignedDuration::from_secs(1);
    intent.since.checked_add(INTENT_IS_FRESH + second).unwrap_or(Timestamp::MAX)
}
