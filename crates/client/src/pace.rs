//! How fast each path may be asked: at most half of what coderd allows, so that people are never locked out by us.
//!
//! coderd counts per user and path in a sliding minute. A bucket here holds a burst and fills at a rate such that
//! burst and refill of any one minute are together half of the limit.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// A call that would have to wait longer is told so instead: its caller has other work and a deadline.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Buckets fill up again within a minute and are then as good as none, so a bound costs nothing.
const MOST_BUCKETS: usize = 1024;

const WINDOW: Duration = Duration::from_mins(1);
const DEFAULT_LIMIT: u32 = 512;
const LOGIN_LIMIT: u32 = 60;
const FILES_LIMIT: u32 = 12;

/// What an answer's `X-RateLimit-*` headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    /// Until the window is over.
    pub(crate) reset: Duration,
}

/// Half of one path's limit.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// A limit that coderd fixes for this path, whatever the headers say.
    fixed: Option<u32>,
    limit: u32,
    /// May be negative: turns that were given out for later.
    turns: f64,
    filled: Instant,
    /// Nobody has turns before that: the server said that none are left.
    closed_until: Option<Instant>,
}

impl Bucket {
    pub(crate) fn of_path(path: &str, now: Instant) -> Self {
        let fixed = fixed_limit(path);
        let limit = fixed.unwrap_or(DEFAULT_LIMIT);
        Self { fixed, limit, turns: burst(limit), filled: now, closed_until: None }
    }

    /// Takes a turn, and says how long to wait for it.
    pub(crate) fn take(&mut self, now: Instant) -> Duration {
        self.fill(now);
        self.turns -= 1.0;
        let filling = if self.turns < 0.0 {
            Duration::from_secs_f64(-self.turns / per_second(self.limit))
        } else {
            Duration::ZERO
        };
        let closed = self.closed_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        filling.max(closed)
    }

    /// Returns a turn that was not used.
    pub(crate) fn give_back(&mut self) {
        self.turns = (self.turns + 1.0).min(burst(self.limit));
    }

    /// Learns from an answer. Others who share the account count too, so what remains is halved as well.
    pub(crate) fn learn(&mut self, allowance: Allowance, now: Instant) {
        self.fill(now);
        let limit = self.fixed.map_or(allowance.limit, |fixed| fixed.min(allowance.limit));
        if limit > 0 {
            self.limit = limit;
        }
        self.turns = self.turns.min(burst(self.limit)).min(f64::from(allowance.remaining) / 2.0);
        if allowance.remaining == 0 {
            self.close(allowance.reset, now);
        }
    }

    /// Gives no turn for that long, which is what a `Retry-After` asks for.
    pub(crate) fn close(&mut self, pause: Duration, now: Instant) {
        let until = now + pause.min(WINDOW);
        self.closed_until = self.closed_until.max(Some(until));
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.turns = (self.turns + passed * per_second(self.limit)).min(burst(self.limit));
        self.filled = now;
    }

    /// Whether a new bucket would behave in the same way.
    fn is_as_new(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.turns >= burst(self.limit) && self.closed_until.is_none_or(|until| until <= now)
    }
}

/// The buckets of one client.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    buckets: Mutex<HashMap<String, Bucket>>,
}

impl Pace {
    /// Waits for a turn on that path; when it would take too long, says how long instead.
    pub(crate) async fn turn(&self, path: &str) -> Result<(), Duration> {
        let wait = self.with_bucket(path, |bucket, now| {
            let wait = bucket.take(now);
            if wait > LONGEST_WAIT {
                bucket.give_back();
            }
            wait
        });
        if wait > LONGEST_WAIT {
            return Err(wait);
        }
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    pub(crate) fn learn(&self, path: &str, allowance: Allowance) {
        self.with_bucket(path, |bucket, now| bucket.learn(allowance, now));
    }

    pub(crate) fn close(&self, path: &str, pause: Duration) {
        self.with_bucket(path, |bucket, now| bucket.close(pause, now));
    }

    fn with_bucket<T>(&self, path: &str, act: impl FnOnce(&mut Bucket, Instant) -> T) -> T {
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if !buckets.contains_key(path) && buckets.len() >= MOST_BUCKETS {
            make_room(&mut buckets, now);
        }
        act(buckets.entry(path.to_owned()).or_insert_with(|| Bucket::of_path(path, now)), now)
    }
}

fn make_room(buckets: &mut HashMap<String, Bucket>, now: Instant) {
    buckets.retain(|_, bucket| !bucket.is_as_new(now));
    if buckets.len() >= MOST_BUCKETS {
        // The fullest one comes closest to a new one.
        let fullest = buckets.iter().max_by(|(_, one), (_, other)| one.turns.total_cmp(&other.turns));
        if let Some(path) = fullest.map(|(path, _)| path.clone()) {
            buckets.remove(&path);
        }
    }
}

fn fixed_limit(path: &str) -> Option<u32> {
    let in_login_group = path.contains("/api/v2/users/")
        && ["/login", "/validate-password", "/password"].iter().any(|end| path.ends_with(end));
    if in_login_group || path.contains("/api/v2/users/otp/") {
        Some(LOGIN_LIMIT)
    } else if path.contains("/api/v2/files") {
        Some(FILES_LIMIT)
    } else {
        None
    }
}

fn half(limit: u32) -> u32 {
    (limit / 2).max(1)
}

fn burst(limit: u32) -> f64 {
    f64::from((half(limit) / 4).max(1))
}

fn per_second(limit: u32) -> f64 {
    (f64::from(half(limit)) - burst(limit)).max(1.0) / WINDOW.as_secs_f64()
}

#[cfg(test)]
mod tests;
