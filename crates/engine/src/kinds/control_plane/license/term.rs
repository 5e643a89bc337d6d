//! How long a licence lasts, and when people should hear of its end.

use client::{licenses::License, scrub::clean};
use jiff::Timestamp;

use super::claims::Claims;

/// The days before the end at which people are told.
pub const THRESHOLDS: [i64; 4] = [30, 14, 7, 1];

const DAY: i64 = 24 * 60 * 60;
/// How many add-ons of a licence are shown.
const MOST_ADDONS: usize = 20;

/// Where a licence is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It counts from a later date.
    Future,
    Valid,
    /// Its term is over, and features work on for a while.
    Grace,
    /// It counts for nothing.
    Expired,
}

/// A licence that the deployment has, for status and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LicenseView {
    pub id: i32,
    pub uuid: String,
    pub phase: Phase,
    pub expires: Option<Timestamp>,
    pub grace_until: Option<Timestamp>,
    /// Whole days to the end of the term; negative when it is over.
    pub days_left: Option<i64>,
    pub feature_set: String,
    pub addons: Vec<String>,
    pub trial: bool,
}

/// That a licence, or a token, comes to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The threshold: there are at most so many days left.
    pub days: i64,
    pub expires: Timestamp,
}

impl Announcement {
    /// For an Event. `what` comes to its end.
    pub fn message(&self, what: &str) -> String {
        let left = if self.days == 1 { "a day".to_owned() } else { format!("{} days", self.days) };
        let day = day(self.expires);
        format!("{what} expires in less than {left}, on {day}: put a new one into its Secret")
    }
}

/// A date as people read it.
pub fn day(date: Timestamp) -> String {
    let text = date.to_string();
    text.split('T').next().unwrap_or_default().to_owned()
}

impl Phase {
    pub fn of(claims: &Claims, now: Timestamp) -> Self {
        let is_over = |date: Option<Timestamp>| date.is_some_and(|it| it <= now);
        if is_over(claims.grace_until()) {
            Self::Expired
        } else if claims.not_before().is_some_and(|it| now < it) {
            Self::Future
        } else if is_over(claims.expires()) {
            Self::Grace
        } else {
            Self::Valid
        }
    }
}

impl LicenseView {
    pub fn of(live: &License, now: Timestamp) -> Self {
        let claims = Claims::of(live);
        Self {
            id: live.id,
            uuid: live.uuid.to_string(),
            phase: Phase::of(&claims, now),
            expires: claims.expires(),
            grace_until: claims.grace_until(),
            days_left: claims.expires().map(|it| days_left(it, now)),
            feature_set: clean(claims.feature_set(), &[]),
            addons: claims.addons().into_iter().take(MOST_ADDONS).map(|it| clean(it, &[])).collect(),
            trial: claims.is_trial(),
        }
    }
}

/// Whole days until then; the last one is day 0.
pub fn days_left(expires: Timestamp, now: Timestamp) -> i64 {
    (expires.as_second() - now.as_second()).div_euclid(DAY)
}

/// The threshold that was passed since the one that was told last, if any. Only the nearest is told: after a pause nobody
/// wants four messages. `told` belongs to one licence: with another one it begins anew.
pub fn crossed(expires: Timestamp, now: Timestamp, told: Option<i64>) -> Option<i64> {
    let left = expires.as_second() - now.as_second();
    let reached = THRESHOLDS.into_iter().filter(|days| (1..=days * DAY).contains(&left)).min()?;
    told.is_none_or(|told| reached < told).then_some(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + days * DAY).unwrap()
    }

    #[test]
    fn each_threshold_is_told_once() {
        let mut told = None;
        let mut heard = Vec::new();
        for day in 0..=40 {
            for _ in 0..3 {
                if let Some(days) = crossed(at(40), at(day), told) {
                    heard.push((day, days));
                    told = Some(days);
                }
            }
        }
        assert_eq!(heard, [(10, 30), (26, 14), (33, 7), (39, 1)]);
    }

    #[test]
    fn after_a_pause_only_the_nearest_is_told() {
        assert_eq!(crossed(at(5), at(0), None), Some(7));
        assert_eq!(crossed(at(5), at(0), Some(30)), Some(7));
        assert_eq!(crossed(at(5), at(0), Some(7)), None);
    }

    #[test]
    fn what_is_far_away_or_over_is_not_told() {
        assert_eq!(crossed(at(31), at(0), None), None);
        assert_eq!(crossed(at(0), at(0), None), None, "that it is over is the condition's to say");
        assert_eq!(crossed(at(0), at(3), None), None);
    }

    #[test]
    fn days_are_whole_and_count_below_zero() {
        let almost = Timestamp::from_second(at(2).as_second() - 1).unwrap();
        assert_eq!([days_left(at(2), at(0)), days_left(almost, at(0))], [2, 1]);
        assert_eq!(days_left(at(0), at(1)), -1);
    }
}
