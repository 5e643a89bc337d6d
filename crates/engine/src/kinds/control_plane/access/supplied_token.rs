//! A supplied token: it is used as it is, and its expiry is reported in time.

use api::CredentialStatus;
use client::users::Token;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::kinds::control_plane::license::{Announcement, crossed, day};

/// How long an answer is good for.
const SECONDS_KNOWN: i64 = 6 * 60 * 60;
/// How long a failure to answer is.
const SECONDS_UNKNOWN: i64 = 60 * 60;
/// A token that lasts longer than that was meant to last for ever: Coder has no such thing, and takes a hundred years.
const SECONDS_FOR_EVER: i64 = 20 * 365 * 24 * 60 * 60;

/// How long a token lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    Until(Timestamp),
    /// Longer than anybody plans.
    Long,
    /// That of a session: it is extended whenever it is used.
    Session,
    /// Coder does not say.
    Unknown,
}

impl Lifetime {
    pub fn of(token: &Token, now: Timestamp) -> Self {
        if token.login_type != "token" {
            return Self::Session;
        }
        let left = token.expires_at.as_second() - now.as_second();
        if left > SECONDS_FOR_EVER {
            return Self::Long;
        }
        // A status keeps seconds: with more of them no date would be the same when it is read again.
        Self::Until(Timestamp::from_second(token.expires_at.as_second()).unwrap_or(token.expires_at))
    }

    /// Whether Coder should be asked again, when it was asked then.
    pub fn is_due(self, asked: Timestamp, now: Timestamp) -> bool {
        let good = if self == Self::Unknown { SECONDS_UNKNOWN } else { SECONDS_KNOWN };
        !(0..good).contains(&(now.as_second() - asked.as_second()))
    }

    /// For the message of a condition.
    pub fn words(self) -> String {
        match self {
            Self::Until(expires) => format!("the token expires on {}", day(expires)),
            Self::Long => "the token does not expire".to_owned(),
            Self::Session => {
                "the token is a session's and lasts while it is used: a token with a date is safer".to_owned()
            }
            Self::Unknown => "when the token expires is not known".to_owned(),
        }
    }

    /// What is kept of it, and what is reported now. What was reported before belongs to one date.
    pub fn announce(
        self,
        before: Option<&CredentialStatus>,
        now: Timestamp,
    ) -> (Option<CredentialStatus>, Option<Announcement>) {
        let Self::Until(expires) = self else { return (None, None) };
        let reported = before.filter(|it| it.expires_at.0 == expires).and_then(|it| it.told_days);
        let crossed = crossed(expires, now, reported);
        let kept = CredentialStatus { expires_at: Time(expires), told_days: crossed.or(reported) };
        (Some(kept), crossed.map(|days| Announcement { days, expires }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DAY: i64 = 24 * 60 * 60;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + days * DAY).unwrap()
    }

    /// Coder's dates have fractions of seconds.
    fn token(login_type: &str, days: i64) -> Token {
        let end = Timestamp::from_millisecond(at(days).as_millisecond() + 123).unwrap();
        serde_json::from_value(
            json!({"id": "0123456789", "user_id": uuid::Uuid::nil(), "login_type": login_type,
            "created_at": at(0), "expires_at": end}),
        )
        .unwrap()
    }

    #[test]
    fn what_is_kept_is_the_same_after_it_was_written_and_read() {
        let lifetime = Lifetime::of(&token("token", 5), at(0));
        let (kept, first) = lifetime.announce(None, at(0));
        let read: CredentialStatus = serde_json::from_value(json!(kept)).unwrap();
        assert_eq!(first.map(|it| it.days), Some(7));
        assert_eq!(lifetime.announce(Some(&read), at(0)), (Some(read.clone()), None));
    }

    #[test]
    fn a_token_has_an_end_and_a_session_has_none() {
        assert_eq!(Lifetime::of(&token("token", 7), at(0)), Lifetime::Until(at(7)));
        assert_eq!(Lifetime::of(&token("token", 36_500), at(0)), Lifetime::Long);
        assert_eq!(Lifetime::of(&token("password", 1), at(0)), Lifetime::Session);
        assert_eq!(Lifetime::Until(at(0)).words(), "the token expires on 2027-01-15");
    }

    #[test]
    fn coder_is_asked_again_after_hours_and_sooner_where_it_did_not_say() {
        let later = |hours: i64| Timestamp::from_second(at(0).as_second() + hours * 3600).unwrap();
        let due = |lifetime: Lifetime| (0..8).find(|it| lifetime.is_due(at(0), later(*it)));
        assert_eq!(due(Lifetime::Until(at(9))), Some(6));
        assert_eq!(due(Lifetime::Unknown), Some(1));
        assert!(Lifetime::Long.is_due(at(1), at(0)), "a clock that went back");
    }

    #[test]
    fn each_threshold_is_reported_once_and_another_token_begins_anew() {
        let mut kept = None;
        let mut heard = Vec::new();
        for day in 0..=40 {
            for _ in 0..2 {
                let (next, announcement) = Lifetime::Until(at(40)).announce(kept.as_ref(), at(day));
                heard.extend(announcement.map(|it| (day, it.days)));
                kept = next;
            }
        }
        assert_eq!(heard, [(10, 30), (26, 14), (33, 7), (39, 1)]);
        let (next, again) = Lifetime::Until(at(46)).announce(kept.as_ref(), at(40));
        assert_eq!((next.unwrap().told_days, again.map(|it| it.days)), (Some(7), Some(7)));
        for quiet in [Lifetime::Long, Lifetime::Session, Lifetime::Unknown] {
            assert_eq!(quiet.announce(kept.as_ref(), at(39)), (None, None));
        }
    }
}
