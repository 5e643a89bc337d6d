//! Whether a call is tried a second time, and after how long. Everything longer is the caller's queue's business.

use std::time::Duration;

use crate::{answer::Answer, route::Route, transport::TransportError};

pub(crate) const MOST_TRIES: u32 = 2;

/// A pause that a caller can sit out; a longer one is an error that says how long.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(250);

/// How long to wait before the second try, or nothing when there must be none.
pub(crate) fn pause(route: &Route, outcome: &Result<Answer, TransportError>) -> Option<Duration> {
    let answer = match outcome {
        Ok(answer) => answer,
        // Nothing was sent, so even a call that must happen at most once may be tried again. A certificate that was refused
        // is refused again, and is not tried twice.
        Err(TransportError::Connect(_)) => return Some(PAUSE),
        Err(_) => return None,
    };
    if !route.repeatable() {
        None
    } else if answer.is_from_gateway() {
        short(answer.retry_after.unwrap_or(PAUSE))
    } else if answer.status.as_u16() == 429 {
        answer.retry_after.and_then(short)
    } else {
        None
    }
}

fn short(pause: Duration) -> Option<Duration> {
    (pause <= LONGEST_PAUSE).then_some(pause)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{organizations, users};

    fn answered(status: u16, retry_after: Option<&str>) -> Answer {
        let mut response = http::Response::builder().status(status);
        if let Some(value) = retry_after {
            response = response.header("Retry-After", value);
        }
        Answer::read(response.body(Bytes::new()).unwrap())
    }

    #[test]
    fn only_repeatable_calls_are_repeated_and_only_where_that_may_help() {
        let (get, post) = (&organizations::LIST_ORGANIZATIONS, &organizations::CREATE_ORGANIZATION);
        let millis = |route, answer: Answer| pause(route, &Ok(answer)).map(|it| it.as_millis());
        for status in [502, 503, 504] {
            assert_eq!(millis(get, answered(status, None)), Some(250));
            assert_eq!(millis(post, answered(status, None)), None);
        }
        assert_eq!(millis(get, answered(503, Some("3"))), Some(3000));
        assert_eq!(millis(get, answered(503, Some("60"))), None);
        assert_eq!(millis(get, answered(429, Some("5"))), Some(5000));
        assert_eq!(millis(get, answered(429, Some("60"))), None, "coderd's own answer is a minute");
        assert_eq!(millis(get, answered(429, None)), None);
        assert_eq!(millis(post, answered(429, Some("1"))), None);
        for status in [200, 400, 401, 403, 404, 409, 500] {
            assert_eq!(millis(get, answered(status, None)), None);
        }
    }

    #[test]
    fn a_call_that_was_never_sent_may_always_be_sent() {
        let failed = |error: TransportError| pause(&users::CREATE_TOKEN, &Err(error));
        assert_eq!(failed(TransportError::Connect("refused".to_owned())), Some(PAUSE));
        assert_eq!(failed(TransportError::TimedOut), None);
        assert_eq!(failed(TransportError::Broken("reset".to_owned())), None);
        assert_eq!(failed(TransportError::TooLarge { limit: 1 }), None);
    }

    #[test]
    fn what_may_have_been_carried_out_is_not_repeated_blindly() {
        let broken = Err(TransportError::Broken("reset".to_owned()));
        assert_eq!(pause(&organizations::DELETE_ORGANIZATION, &broken), None);
    }
}
