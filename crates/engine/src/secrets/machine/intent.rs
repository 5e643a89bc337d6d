//! How long an intent is left to the process that wrote it.

use jiff::{SignedDuration, Timestamp};

use super::super::{record::Intent, situation::Seen};

/// After this time an intent is set out for anew, so that the key that comes of it is of its time.
const INTENT_IS_FRESH: SignedDuration = SignedDuration::from_mins(5);

/// Whether the key that would come of an intent now is not of its time.
pub(super) fn is_stale(intent: &Intent, now: Timestamp) -> bool {
    now.duration_since(intent.since).abs() > INTENT_IS_FRESH
}

/// Whether another process may be about to ask for the key of an intent, or to write its value.
pub(super) fn is_under_way(seen: &Seen, intent: &Intent, now: Timestamp) -> bool {
    seen.came(intent).is_none() && !is_stale(intent, now)
}

/// When an intent stops being fresh.
pub(super) fn is_fresh_until(intent: &Intent) -> Timestamp {
    let second = SignedDuration::from_secs(1);
    intent.since.checked_add(INTENT_IS_FRESH + second).unwrap_or(Timestamp::MAX)
}
