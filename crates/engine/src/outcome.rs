//! How a pass over one object ended. Waiting and success are outcomes; only what went wrong is trouble.

use std::sync::Arc;

use api::reason;
use client::Class;

use crate::{decide::Refusal, kind::Invalid};

/// What a condition reports of [`Trouble::Stale`].
pub(crate) const STALE: &str = "the object changed in Coder while it was compared: it is compared again";

/// The end of one pass.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The world is as declared, and nothing was written.
    Equal,
    /// The world is as declared, because we made it so.
    Applied,
    /// There is a difference, and nobody is asked to mend it.
    Observed,
    Waiting(Waiting),
    Refused(Refusal),
    Invalid(Invalid),
    Failed(Trouble),
}

/// What has to come first, and will be noticed when it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The reason in the condition.
    pub reason: &'static str,
    pub message: String,
}

/// Why a stage did not come to its end.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// Something has to come first.
    Waiting(Waiting),
    /// coderd said no, or said nothing.
    Remote(Arc<client::Error>),
    /// The remote object is not as the plan read it, and nothing was written.
    Stale,
}

impl Trouble {
    /// The reason and the message of a condition, whatever the trouble.
    pub fn into_waiting(self) -> Waiting {
        match self {
            Self::Waiting(waiting) => waiting,
            Self::Remote(error) => Waiting { reason: reason_of(error.class()), message: error.words() },
            Self::Stale => Waiting { reason: reason::PROGRESSING, message: STALE.to_owned() },
        }
    }
}

impl From<client::Error> for Trouble {
    fn from(error: client::Error) -> Self {
        Self::Remote(Arc::new(error))
    }
}

impl From<Waiting> for Trouble {
    fn from(waiting: Waiting) -> Self {
        Self::Waiting(waiting)
    }
}

impl From<Trouble> for Outcome {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Waiting(waiting) => Self::Waiting(waiting),
            trouble => Self::Failed(trouble),
        }
    }
}

impl Outcome {
    /// The reason of the condition `Ready`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Equal | Self::Applied => reason::UP_TO_DATE,
            Self::Observed => reason::OBSERVED,
            Self::Waiting(waiting) | Self::Failed(Trouble::Waiting(waiting)) => waiting.reason,
            Self::Refused(Refusal::NotEqual | Refusal::NotOurs) => reason::ADOPTION_REFUSED,
            Self::Refused(Refusal::NotApproved) => reason::APPROVAL_REQUIRED,
            Self::Refused(Refusal::Destructive) => reason::DESTRUCTIVE_REFUSED,
            Self::Invalid(_) => reason::INVALID,
            Self::Failed(Trouble::Remote(error)) => reason_of(error.class()),
            Self::Failed(Trouble::Stale) => reason::PROGRESSING,
        }
    }

    /// Whether the plan was made from reads that are out of date: compare again.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Failed(Trouble::Stale))
    }

    /// Whether the world is as declared, on evidence.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Equal | Self::Applied)
    }

    /// Whether only a person can bring this forward: trying again would end the same way.
    pub fn is_stalled(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Invalid(_) => true,
            Self::Failed(Trouble::Remote(error)) => error.class() == Class::Invalid,
            _ => false,
        }
    }
}

/// One mapping from what coderd said to what a condition says, for every kind.
pub fn reason_of(class: Class) -> &'static str {
    match class {
        Class::Invalid => reason::INVALID,
        Class::License => reason::NOT_ENTITLED,
        Class::Forbidden => reason::FORBIDDEN,
        Class::SignedOut => reason::UNAUTHORIZED,
        Class::RateLimited => reason::RATE_LIMITED,
        Class::Transient => reason::UNREACHABLE,
        Class::AddressNotAllowed => reason::ADDRESS_NOT_ALLOWED,
        Class::Missing | Class::Conflict | Class::Unexpected => reason::REMOTE_ERROR,
    }
}
