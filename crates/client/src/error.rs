//! What went wrong with a call: what was attempted, where, what the server said, and what that means.

mod refusal;

use std::{fmt, time::Duration};

use http::{Method, StatusCode};

pub(crate) use self::refusal::Refusal;
use crate::transport::{CertificateProblem, TransportError};

/// What an error means for the caller, whatever status it came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The request is wrong and stays wrong until somebody changes it.
    Invalid,
    /// What was asked for is not there, or not for us to see; see [`Error::route_missing`].
    Missing,
    /// Somebody else's object or an unfinished state is in the way.
    Conflict,
    /// The deployment's licence does not cover this.
    License,
    /// The account may not do this.
    Forbidden,
    /// The token is no longer, or never was, a valid one.
    SignedOut,
    /// Too many requests; see [`Error::retry_after`].
    RateLimited,
    /// The deployment is not there or not well at the moment.
    Transient,
    /// The address is one that this process does not connect to.
    AddressNotAllowed,
    /// An answer that Coder does not give, or one that cannot be read.
    Unexpected,
}

/// A complaint of the server about one field of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validation {
    pub field: String,
    pub detail: String,
}

/// A call that did not do what it was for.
pub struct Error(Box<Failure>);

/// What was attempted. The route is a template, so no value of a request is in it.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) host: String,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Problem {
    Refused(Refusal),
    /// A success whose body is not what the route answers with.
    Unreadable {
        status: StatusCode,
        reason: String,
    },
    Transport(TransportError),
    /// Nothing was sent: the deployment has not answered for a while.
    CircuitOpen,
    /// Nothing was sent: our own share of the path's limit is used up.
    ShareUsed,
    /// The request was not sent: the client was revoked.
    Withheld(&'static str),
    /// Nothing was sent: it cannot be put into a request.
    Unsendable(String),
}

#[derive(Debug)]
struct Failure {
    attempt: Attempt,
    problem: Problem,
    retry_after: Option<Duration>,
    request_id: Option<String>,
}

impl Error {
    pub(crate) fn new(attempt: Attempt, problem: Problem) -> Self {
        Self(Box::new(Failure { attempt, problem, retry_after: None, request_id: None }))
    }

    pub(crate) fn with_retry_after(mut self, retry_after: Option<Duration>) -> Self {
        self.0.retry_after = retry_after;
        self
    }

    pub(crate) fn with_request_id(mut self, request_id: Option<String>) -> Self {
        self.0.request_id = request_id;
        self
    }

    /// What it means for the caller.
    pub fn class(&self) -> Class {
        match &self.0.problem {
            Problem::Refused(refusal) => refusal.class,
            Problem::Unreadable { .. } | Problem::Transport(TransportError::TooLarge { .. }) => {
                Class::Unexpected
            }
            Problem::Transport(TransportError::NotAllowed(_)) => Class::AddressNotAllowed,
            Problem::Transport(_) | Problem::CircuitOpen | Problem::Withheld(_) => Class::Transient,
            Problem::ShareUsed => Class::RateLimited,
            Problem::Unsendable(_) => Class::Invalid,
        }
    }

    /// Whether the answer was longer than this client reads.
    pub fn is_too_large(&self) -> bool {
        matches!(&self.0.problem, Problem::Transport(TransportError::TooLarge { .. }))
    }

    /// What is wrong with the server's certificate, if that is why nothing was sent.
    pub fn certificate(&self) -> Option<CertificateProblem> {
        match &self.0.problem {
            Problem::Transport(TransportError::Certificate { problem, .. }) => Some(*problem),
            _ => None,
        }
    }

    /// The status that the server answered with, if it answered.
    pub fn status(&self) -> Option<StatusCode> {
        match &self.0.problem {
            Problem::Refused(refusal) => Some(refusal.status),
            Problem::Unreadable { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// When to come again, if somebody said so.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(self.class(), Class::RateLimited | Class::Transient)
    }

    /// Whether it is known that the server has done nothing.
    pub fn nothing_was_done(&self) -> bool {
        match &self.0.problem {
            Problem::Transport(error) => error.sent_nothing(),
            Problem::CircuitOpen | Problem::ShareUsed | Problem::Withheld(_) | Problem::Unsendable(_) => true,
            Problem::Refused(refusal) => refusal.status.is_client_error(),
            Problem::Unreadable { .. } => false,
        }
    }

    /// Whether the server says that the object was deleted. It answers "not found" also for what the account may not read.
    pub fn is_deleted(&self) -> bool {
        self.status() == Some(StatusCode::GONE)
    }

    /// Whether this build of Coder has no such route at all: the open-source one, or another version.
    pub fn route_missing(&self) -> bool {
        matches!(&self.0.problem, Problem::Refused(refusal) if refusal.route_missing)
    }

    /// The server's complaints about single fields.
    pub fn validations(&self) -> &[Validation] {
        match &self.0.problem {
            Problem::Refused(refusal) => &refusal.validations,
            _ => &[],
        }
    }

    /// Whether it is a refusal whose words begin like this.
    pub fn begins_with(&self, words: &str) -> bool {
        matches!(&self.0.problem, Problem::Refused(refusal) if refusal.words.starts_with(words))
    }

    /// What the server calls the request in its own logs.
    pub fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    /// What was attempted and what came of it, without what is different each time: the same failure twice is the same
    /// text, so that a status that holds it stays as it is.
    pub fn words(&self) -> String {
        let Failure { attempt, problem, .. } = &*self.0;
        format!("{} {} at {}: {problem}", attempt.method, attempt.path, attempt.host)
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { attempt: _, problem: _, retry_after, request_id } = &*self.0;
        formatter.write_str(&self.words())?;
        let mut notes = Vec::new();
        if let Some(pause) = retry_after {
            notes.push(format!("again in {} s", pause.as_secs_f64().ceil()));
        }
        if let Some(id) = request_id {
            notes.push(format!("request {id}"));
        }
        if notes.is_empty() { Ok(()) } else { write!(formatter, " ({})", notes.join(", ")) }
    }
}

/// As long as [`fmt::Display`] and as clean: this is what ends up in logs.
impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Error({:?}: {self})", self.class())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(formatter),
            Self::Unreadable { status, reason } => {
                write!(formatter, "{}, but the answer cannot be read: {reason}", status.as_u16())
            }
            Self::Transport(error) => error.fmt(formatter),
            Self::CircuitOpen => formatter.write_str("not asked: it has not answered several times in a row"),
            Self::ShareUsed => {
                formatter.write_str("not asked: what the server allows us on this path is used up for now")
            }
            Self::Withheld(why) => write!(formatter, "not sent: {why}"),
            Self::Unsendable(reason) => formatter.write_str(reason),
        }
    }
}
