//! The rate limiter: at most a share of what coderd allows on each path, so that people are never locked out by us.
//!
//! coderd counts requests per user and path in a sliding minute. The limiter counts its own requests of exactly the last
//! minute, so a burst may use the whole share at once. coderd's count also has what others send with the same account, and
//! it weighs the minute before: where its headers show that little is left, requests are spaced instead.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The longest wait for a permit, unless the client says otherwise. A caller that would wait longer gets an error: it has
/// other work and a deadline.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The number of paths that are remembered. A path that was not asked for a minute is as good as a new one.
const MOST_PATHS: usize = 1024;

const WINDOW: Duration = Duration::from_mins(1);
const DEFAULT_LIMIT: u32 = 512;
const LOGIN_LIMIT: u32 = 60;
const FILES_LIMIT: u32 = 12;

/// The share of a path's limit that a client may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Share {
    /// 50 %: the token was supplied, and its account may have other users.
    #[default]
    Supplied,
    /// 90 %: the account was created for this client alone.
    OwnAccount,
}

impl Share {
    /// Returns the requests a minute that this share of a limit allows; one at least.
    fn of(self, limit: u32) -> u32 {
        let per_cent: u64 = match self {
            Self::Supplied => 50,
            Self::OwnAccount => 90,
        };
        u32::try_from(u64::from(limit) * per_cent / 100).unwrap_or(u32::MAX).max(1)
    }
}

/// The `X-RateLimit-*` headers of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    /// The time until the server's window ends.
    pub(crate) reset: Duration,
}

/// The requests to one path.
#[derive(Debug)]
struct Window {
    /// A limit that coderd fixes for this path, whatever the headers say.
    fixed: Option<u32>,
    limit: u32,
    /// When requests were permitted, oldest first; the last ones may lie ahead.
    permitted: VecDeque<Instant>,
    /// The server's last count, while it leaves less than everybody else's share.
    scarce: Option<u32>,
    /// No request before that: the server said that none is left.
    closed_until: Option<Instant>,
}

impl Window {
    fn of_path(path: &str) -> Self {
        let fixed = fixed_limit(path);
        Self {
            fixed,
            limit: fixed.unwrap_or(DEFAULT_LIMIT),
            permitted: VecDeque::new(),
            scarce: None,
            closed_until: None,
        }
    }

    /// Permits a request, and returns when it may be sent.
    fn permit(&mut self, share: Share, now: Instant) -> Instant {
        self.expire(now);
        let allowed = share.of(self.limit);
        let count = usize::try_from(allowed).unwrap_or(usize::MAX);
        // The request that has to be a minute old before the next one.
        let oldest = self.permitted.len().checked_sub(count).and_then(|it| self.permitted.get(it));
        let by_share = oldest.map(|it| *it + WINDOW);
        let by_spacing =
            self.permitted.back().zip(self.spacing(share)).map(|(last, spacing)| *last + spacing);
        let at =
            [Some(now), by_share, by_spacing, self.closed_until].into_iter().flatten().max().unwrap_or(now);
        self.permitted.push_back(at);
        at
    }

    /// Takes back the last permit, which was not used.
    fn take_back(&mut self) {
        self.permitted.pop_back();
    }

    /// Learns from an answer.
    fn learn(&mut self, allowance: Allowance, share: Share, now: Instant) {
        let limit = self.fixed.map_or(allowance.limit, |fixed| fixed.min(allowance.limit));
        if limit > 0 {
            self.limit = limit;
        }
        let reserve = self.limit - share.of(self.limit).min(self.limit);
        self.scarce = Some(allowance.remaining).filter(|it| *it <= reserve);
        if allowance.remaining == 0 {
            self.close(allowance.reset, now);
        }
    }

    /// Permits no request for that long, as a `Retry-After` asks for.
    fn close(&mut self, pause: Duration, now: Instant) {
        let until = now + pause.min(WINDOW);
        self.closed_until = self.closed_until.max(Some(until));
    }

    /// The time between two requests while little is left: the share spread over a minute, and longer the less is left.
    fn spacing(&self, share: Share) -> Option<Duration> {
        let remaining = self.scarce?.max(1);
        let allowed = share.of(self.limit);
        let reserve = self.limit.saturating_sub(allowed).max(1);
        Some((WINDOW / allowed * reserve.div_ceil(remaining)).min(WINDOW))
    }

    fn expire(&mut self, now: Instant) {
        while self.permitted.front().is_some_and(|it| *it + WINDOW <= now) {
            self.permitted.pop_front();
        }
    }

    /// Whether a new window would behave in the same way.
    fn is_as_new(&mut self, now: Instant) -> bool {
        self.expire(now);
        self.permitted.is_empty() && self.closed_until.is_none_or(|until| until <= now)
    }
}

/// The windows of all paths of a deployment, for one account.
#[derive(Debug, Default)]
pub struct RateLimiter {
    windows: Mutex<HashMap<String, Window>>,
}

impl RateLimiter {
    /// Whether a new rate limiter would permit the same requests.
    pub fn is_as_new(&self) -> bool {
        let now = Instant::now();
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.values_mut().all(|it| it.is_as_new(now))
    }

    /// Waits until a request to the path may be sent. The error is the wait that would be longer than `longest`.
    pub(crate) async fn acquire(&self, path: &str, share: Share, longest: Duration) -> Result<(), Duration> {
        let wait = self.with_window(path, |window, now| {
            let wait = window.permit(share, now).saturating_duration_since(now);
            if wait > longest {
                window.take_back();
            }
            wait
        });
        if wait > longest {
            return Err(wait);
        }
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    pub(crate) fn learn(&self, path: &str, allowance: Allowance, share: Share) {
        self.with_window(path, |window, now| window.learn(allowance, share, now));
    }

    pub(crate) fn close(&self, path: &str, pause: Duration) {
        self.with_window(path, |window, now| window.close(pause, now));
    }

    fn with_window<T>(&self, path: &str, act: impl FnOnce(&mut Window, Instant) -> T) -> T {
        let now = Instant::now();
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if !windows.contains_key(path) && windows.len() >= MOST_PATHS {
            make_room(&mut windows, now);
        }
        act(windows.entry(path.to_owned()).or_insert_with(|| Window::of_path(path)), now)
    }
}

fn make_room(windows: &mut HashMap<String, Window>, now: Instant) {
    windows.retain(|_, window| !window.is_as_new(now));
    if windows.len() >= MOST_PATHS {
        // The one with the fewest requests comes closest to a new one.
        let fewest = windows.iter().min_by_key(|(_, window)| window.permitted.len());
        if let Some(path) = fewest.map(|(path, _)| path.clone()) {
            windows.remove(&path);
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

#[cfg(test)]
mod tests;
