//! How recent a read of a deployment has to be. Pure: both instants are arguments.

use std::time::Duration;

use tokio::time::Instant;

/// How recent a read has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The read began at most this long ago.
    UpTo(Duration),
    /// The read began after this instant. A read that began before may have missed what happened then.
    BegunAfter(Instant),
}

impl Freshness {
    /// What a reconcile needs that was woken at `now`: reads no older than `age`, and, if an event woke the reconcile, none
    /// that began before that event.
    pub fn since(event: Option<Instant>, age: Duration, now: Instant) -> Self {
        match (event, now.checked_sub(age)) {
            (None, _) => Self::UpTo(age),
            // The event may be old: a reconcile waits for its turn, or is retried.
            (Some(event), oldest) => Self::BegunAfter(oldest.map_or(event, |it| it.max(event))),
        }
    }

    /// What both ask for, as far as the second names an event.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::BegunAfter(one), Self::BegunAfter(other)) => Self::BegunAfter(one.max(other)),
            (Self::UpTo(_), Self::BegunAfter(_)) => other,
            (_, Self::UpTo(_)) => self,
        }
    }

    /// Whether a read that began at `begun` is recent enough at `now`.
    pub fn admits(self, begun: Instant, now: Instant) -> bool {
        match self {
            Self::UpTo(age) => now.saturating_duration_since(begun) <= age,
            Self::BegunAfter(event) => begun > event,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(10);

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn age_alone_decides_without_an_event() {
        let start = Instant::now();
        let need = Freshness::since(None, AGE, at(start, 100));
        assert_eq!(need, Freshness::UpTo(AGE));
        assert!(need.admits(at(start, 90), at(start, 100)));
        assert!(!need.admits(at(start, 90), at(start, 101)));
        assert!(need.admits(at(start, 101), at(start, 100)), "a read that another thread has just begun");
    }

    #[test]
    fn read_that_began_before_the_event_is_refused_however_young() {
        let start = Instant::now();
        let need = Freshness::since(Some(at(start, 99)), AGE, at(start, 100));
        assert!(!need.admits(at(start, 98), at(start, 100)));
        assert!(!need.admits(at(start, 99), at(start, 100)), "neither before nor after is not after");
        assert!(need.admits(at(start, 99) + Duration::from_nanos(1), at(start, 100)));
    }

    #[test]
    fn read_that_began_after_an_old_event_must_be_young_too() {
        let start = Instant::now();
        let need = Freshness::since(Some(at(start, 1)), AGE, at(start, 100));
        assert!(!need.admits(at(start, 2), at(start, 100)));
        assert!(need.admits(at(start, 91), at(start, 100)));
    }
}
