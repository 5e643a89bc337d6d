//! When an object is looked at again. Pure.

use std::{
    hash::{DefaultHasher, Hash, Hasher as _},
    time::Duration,
};

use jiff::Timestamp;

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_mins(2);
/// The longest pause that a server is granted.
const LONGEST_WISH: Duration = Duration::from_mins(5);
/// An interval is this much shorter or longer, so that objects do not come all at once.
const JITTER_PER_CENT: u32 = 10;

/// How long to leave something alone that has failed that often before, and that asked for this much time.
pub(super) fn back_off(failures: u32, wanted: Option<Duration>) -> Duration {
    let delay = FIRST_RETRY.saturating_mul(2_u32.saturating_pow(failures)).min(LAST_RETRY);
    // A server, or something on the way to it, may ask for any number of seconds.
    delay.max(wanted.unwrap_or_default().min(LONGEST_WISH))
}

/// How long it is from now until then; a second at least.
pub(super) fn until(then: Timestamp, now: Timestamp) -> Duration {
    let left = Duration::try_from(then.duration_since(now)).unwrap_or_default();
    left.max(Duration::from_secs(1))
}

/// When an object is due that is looked at once in an interval: in the first turn of its control plane that is no sooner than an
/// interval less a tenth. Turns are a fifth of an interval apart, so it is due within an interval and a tenth. The objects of a
/// control plane come together and share what they read; those of two control planes do not.
pub(super) fn turn(interval: Duration, plane: &impl Hash, now: Timestamp) -> Duration {
    let mut hasher = DefaultHasher::new();
    plane.hash(&mut hasher);
    let apart = (interval / 5).as_millis().max(1);
    let now = u128::try_from(now.as_millisecond()).unwrap_or_default();
    let offset = u128::from(hasher.finish()) % apart;
    let soonest = now + (interval * 9 / 10).as_millis();
    let turn = soonest.saturating_sub(offset).div_ceil(apart) * apart + offset;
    Duration::from_millis(u64::try_from(turn - now).unwrap_or(u64::MAX))
}

/// A time a little shorter or longer, always by as much for the same object.
pub(super) fn spread(time: Duration, uid: &str) -> Duration {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let steps = u64::from(JITTER_PER_CENT) * 2 * 10 + 1;
    let per_mille = u32::try_from(hasher.finish() % steps).unwrap_or(0);
    time * (1000 - JITTER_PER_CENT * 10 + per_mille) / 1000
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn retries_double_from_a_second_to_two_minutes() {
        let delays: Vec<u64> = (0..9).map(|failures| back_off(failures, None).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 120, 120]);
    }

    #[test]
    fn an_interval_is_spread_by_a_tenth_and_by_as_much_each_time() {
        let interval = Duration::from_mins(5);
        for uid in ["a", "b", "c", "d"] {
            let spread = spread(interval, uid);
            assert!(spread >= interval * 9 / 10 && spread <= interval * 11 / 10, "{spread:?}");
        }
        assert_eq!(spread(interval, "a"), spread(interval, "a"));
        assert_ne!(spread(interval, "a"), spread(interval, "b"));
    }

    #[test]
    fn objects_of_a_control_plane_are_due_together_and_those_of_two_are_not() {
        let interval = Duration::from_mins(5);
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let turn_of = |plane: &str, second: u64| {
            let now = start + Duration::from_secs(second);
            let delay = turn(interval, &plane, now);
            assert!(delay >= interval * 9 / 10 && delay <= interval * 11 / 10, "{delay:?}");
            now + delay
        };
        let turns: BTreeSet<Timestamp> = (0..300).map(|second| turn_of("a", second)).collect();
        assert_eq!(turns.len(), 6, "reconciles of 300 seconds, 60 seconds apart: {turns:?}");
        assert!((0..300).all(|second| !turns.contains(&turn_of("b", second))));
        assert_eq!(turn(Duration::ZERO, &"a", start), Duration::ZERO);
    }

    #[test]
    fn a_server_that_asks_for_more_time_gets_it_within_reason() {
        assert_eq!(back_off(0, Some(Duration::from_mins(1))), Duration::from_mins(1));
        assert_eq!(back_off(0, Some(Duration::MAX)), LONGEST_WISH);
        assert_eq!(back_off(9, Some(Duration::ZERO)), LAST_RETRY);
    }
}
