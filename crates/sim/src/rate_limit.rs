//! The rate limiter: requests a minute by account and path, over a sliding window.

use std::collections::BTreeMap;

use jiff::Timestamp;

const WINDOW: i64 = 60;
const LOGIN_LIMIT: u32 = 60;
const FILES_LIMIT: u32 = 12;
const FILES: &str = "/api/v2/files";
const LOGIN: &str = "/api/v2/users/login";

/// What was counted. Not part of the state: a restart begins with an empty count, as coderd does.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    /// The last window in which a request was counted.
    window: i64,
    counts: BTreeMap<(String, String), Count>,
}

#[derive(Debug, Default)]
struct Count {
    window: i64,
    current: u32,
    previous: u32,
}

/// The limit of a path after a request was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    /// The end of the window in Unix seconds.
    pub(crate) reset: i64,
    pub(crate) is_exceeded: bool,
}

impl RateLimit {
    /// Counts a request of an account, or of an address without one.
    pub(crate) fn count(&mut self, limit: u32, who: &str, path: &str, now: Timestamp) -> Allowance {
        let limit = match path {
            LOGIN => limit.min(LOGIN_LIMIT),
            FILES => limit.min(FILES_LIMIT),
            _ => limit,
        };
        let window = now.as_second().div_euclid(WINDOW);
        if self.window != window {
            self.counts.retain(|_, it| it.window + 1 >= window);
            self.window = window;
        }
        let count = self.counts.entry((who.to_owned(), path.to_owned())).or_default();
        if count.window != window {
            count.previous = if count.window + 1 == window { count.current } else { 0 };
            count.current = 0;
            count.window = window;
        }
        let left = u32::try_from(WINDOW - now.as_second().rem_euclid(WINDOW)).unwrap_or_default();
        let rate = count.current + count.previous * left / 60;
        let is_exceeded = rate >= limit;
        if !is_exceeded {
            count.current += 1;
        }
        let remaining = limit.saturating_sub(rate + u32::from(!is_exceeded));
        Allowance { limit, remaining, reset: (window + 1) * WINDOW, is_exceeded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn limit_is_counted_by_account_and_path() {
        let mut limit = RateLimit::default();
        assert_eq!(limit.count(2, "a", "/x", at(0)).remaining, 1);
        assert_eq!(limit.count(2, "a", "/x", at(1)).remaining, 0);
        assert!(limit.count(2, "a", "/x", at(2)).is_exceeded);
        assert!(!limit.count(2, "b", "/x", at(2)).is_exceeded);
        assert!(!limit.count(2, "a", "/y", at(2)).is_exceeded);
    }

    #[test]
    fn limit_slides_with_the_clock() {
        let mut limit = RateLimit::default();
        for _ in 0..4 {
            limit.count(4, "a", "/x", at(59));
        }
        assert!(limit.count(4, "a", "/x", at(60)).is_exceeded, "the last window counts in full");
        assert!(!limit.count(4, "a", "/x", at(90)).is_exceeded, "half of it has passed");
        assert_eq!(limit.count(4, "a", "/x", at(300)).remaining, 3);
    }
}
