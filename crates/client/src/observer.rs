//! Who wants to know what is asked of a deployment: to count it, not to change it.
//!
//! An observer sees routes as templates, statuses and times; never an address, a value, a token or a server's words.

use std::{fmt::Debug, time::Duration};

use http::StatusCode;
use tokio::time::Instant;

use crate::{answer::Answer, route::Route, transport::TransportError};

/// Sees every attempt of every call. Its methods are called in the task of the caller, and must not wait.
pub trait Observer: Send + Sync + Debug {
    /// A request is about to be sent.
    fn sends(&self, route: &'static Route);
    /// An attempt is over.
    fn attempted(&self, attempt: Attempted);
    /// The circuit is now like this.
    fn circuit(&self, state: CircuitState);
}

/// One attempt that is over.
#[derive(Debug, Clone, Copy)]
pub struct Attempted {
    pub route: &'static Route,
    pub ending: Ending,
    /// How long it took from sending to the end; nothing for what was not sent.
    pub took: Duration,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Answered(StatusCode),
    /// There was no connection.
    Unreachable,
    TimedOut,
    /// The connection broke before the answer was complete.
    Broken,
    /// The answer was larger than what is read.
    TooLarge,
    /// The caller went away before there was an answer.
    Abandoned,
    /// It was not sent: the deployment has not answered for a while.
    CircuitOpen,
    /// It was not sent: our own share of the path's limit is used up.
    ShareUsed,
    /// It was not sent: the address is not allowed.
    NotAllowed,
    /// The request was not sent: the client was revoked.
    Withheld,
}

impl Ending {
    /// One word for an ending without a status.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Answered(_) => None,
            Self::Unreachable => Some("unreachable"),
            Self::TimedOut => Some("timeout"),
            Self::Broken => Some("broken"),
            Self::TooLarge => Some("too_large"),
            Self::Abandoned => Some("abandoned"),
            Self::CircuitOpen => Some("circuit_open"),
            Self::ShareUsed => Some("share_used"),
            Self::NotAllowed => Some("not_allowed"),
            Self::Withheld => Some("withheld"),
        }
    }
}

impl From<&Result<Answer, TransportError>> for Ending {
    fn from(outcome: &Result<Answer, TransportError>) -> Self {
        match outcome {
            Ok(answer) => Self::Answered(answer.status),
            Err(TransportError::Connect(_) | TransportError::Certificate { .. }) => Self::Unreachable,
            Err(TransportError::NotAllowed(_)) => Self::NotAllowed,
            Err(TransportError::TimedOut) => Self::TimedOut,
            Err(TransportError::Broken(_)) => Self::Broken,
            Err(TransportError::TooLarge { limit: _ }) => Self::TooLarge,
        }
    }
}

/// What a deployment's circuit breaker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitState {
    /// Requests go through.
    Closed,
    /// None does.
    Open,
    /// One does, and decides.
    Trial,
}

/// Nobody.
#[derive(Debug)]
pub(crate) struct Nobody;

impl Observer for Nobody {
    fn sends(&self, _: &'static Route) {}
    fn attempted(&self, _: Attempted) {}
    fn circuit(&self, _: CircuitState) {}
}

/// An attempt under way. One whose caller goes away is told of, too.
pub(crate) struct UnderWay<'a> {
    observer: &'a dyn Observer,
    route: &'static Route,
    since: Instant,
    ending: Ending,
}

impl<'a> UnderWay<'a> {
    pub(crate) fn begin(observer: &'a dyn Observer, route: &'static Route) -> Self {
        observer.sends(route);
        Self { observer, route, since: Instant::now(), ending: Ending::Abandoned }
    }

    pub(crate) fn end(mut self, ending: Ending) {
        self.ending = ending;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let (route, ending, took) = (self.route, self.ending, self.since.elapsed());
        self.observer.attempted(Attempted { route, ending, took });
    }
}

#[cfg(test)]
mod tests;
