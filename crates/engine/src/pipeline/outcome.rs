//! How a pass over one object ended. Blocked and success are outcomes; only what went wrong is trouble.

use std::sync::Arc;

use api::Reason;
use client::Class;

use crate::{pipeline::decide::Refusal, ports::ClusterError};

/// What a condition reports of [`Trouble::Stale`].
pub(crate) const STALE: &str = "the object changed in Coder while it was compared: it is compared again";

/// The end of one pass.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The deployment is as declared, and nothing was written.
    Equal,
    /// The deployment is as declared, because we made it so.
    Applied,
    /// There is a difference, and nobody is asked to mend it.
    Observed,
    /// Every field that the deployment supports is as declared. The message names the others.
    Unsupported(Blocked),
    Blocked(Blocked),
    Refused(Refusal),
    Invalid(Invalid),
    Failed(Trouble),
}

/// An invalid field, found before anything is asked or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The field's path, as `spec.mapping`.
    pub field: String,
    /// What was expected.
    pub message: String,
}

impl Invalid {
    pub fn new(field: &str, message: impl Into<String>) -> Self {
        Self { field: field.to_owned(), message: message.into() }
    }
}

/// What has to come first, and will be noticed when it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// The reason in the condition.
    pub reason: Reason,
    pub message: String,
}

/// Why a stage did not come to its end.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// Something has to come first.
    Blocked(Blocked),
    /// coderd said no, or said nothing.
    Remote(Arc<client::Error>),
    /// The API server refused, or did not answer.
    Cluster(ClusterError),
    /// The remote object is not as the plan read it, and nothing was written.
    Stale,
}

impl Trouble {
    /// The reason and the message of a condition, whatever the trouble.
    pub fn into_blocked(self) -> Blocked {
        match self {
            Self::Blocked(waiting) => waiting,
            Self::Remote(error) => Blocked { reason: reason_of(error.class()), message: error.words() },
            Self::Cluster(error) => {
                Blocked { reason: Reason::ClusterError, message: format!("the API server: {error}") }
            }
            Self::Stale => Blocked { reason: Reason::Progressing, message: STALE.to_owned() },
        }
    }
}

impl From<client::Error> for Trouble {
    fn from(error: client::Error) -> Self {
        Self::Remote(Arc::new(error))
    }
}

impl From<ClusterError> for Trouble {
    fn from(error: ClusterError) -> Self {
        Self::Cluster(error)
    }
}

impl From<Blocked> for Trouble {
    fn from(waiting: Blocked) -> Self {
        Self::Blocked(waiting)
    }
}

impl From<Invalid> for Outcome {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<Trouble> for Outcome {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Blocked(waiting) => Self::Blocked(waiting),
            trouble => Self::Failed(trouble),
        }
    }
}

impl Outcome {
    /// The reason of the condition `Ready`.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Equal | Self::Applied => Reason::UpToDate,
            Self::Observed => Reason::Observed,
            Self::Unsupported(waiting) | Self::Blocked(waiting) | Self::Failed(Trouble::Blocked(waiting)) => {
                waiting.reason
            }
            Self::Refused(Refusal::NotEqual | Refusal::NotOurs) => Reason::AdoptionRefused,
            Self::Refused(Refusal::NotApproved) => Reason::ApprovalRequired,
            Self::Refused(Refusal::Destructive) => Reason::DestructiveRefused,
            Self::Invalid(_) => Reason::Invalid,
            Self::Failed(Trouble::Remote(error)) => reason_of(error.class()),
            Self::Failed(Trouble::Cluster(_)) => Reason::ClusterError,
            Self::Failed(Trouble::Stale) => Reason::Progressing,
        }
    }

    /// Whether the plan was made from reads that are out of date: compare again.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Failed(Trouble::Stale))
    }

    /// Whether a round of a plan was done and the next one can begin. `done` is the number of steps that were done.
    pub fn goes_on(&self, done: usize) -> bool {
        done > 0 && matches!(self, Self::Blocked(Blocked { reason: Reason::Progressing, .. }))
    }

    /// Whether the deployment is as declared, on evidence.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Equal | Self::Applied)
    }

    /// Whether nothing of the plan is left to do.
    pub fn is_settled(&self) -> bool {
        self.is_ready() || matches!(self, Self::Unsupported(_))
    }

    /// The same for a manifest of which the deployment does not support some fields: it is not ready.
    pub(crate) fn with_unsupported(self, fields: Option<&Blocked>) -> Self {
        match fields {
            Some(fields) if self.is_ready() => Self::Unsupported(fields.clone()),
            _ => self,
        }
    }

    /// Whether only a person can bring this forward: trying again would end the same way.
    pub fn is_stalled(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Invalid(_) => true,
            Self::Blocked(waiting) => waiting.reason.ends_waiting(),
            Self::Failed(Trouble::Remote(error)) => error.class() == Class::Invalid,
            _ => false,
        }
    }
}

/// One mapping from what coderd said to what a condition says, for every kind.
pub fn reason_of(class: Class) -> Reason {
    match class {
        Class::Invalid => Reason::Invalid,
        Class::License => Reason::NotEntitled,
        Class::Forbidden => Reason::Forbidden,
        Class::SignedOut => Reason::Unauthorized,
        Class::RateLimited => Reason::RateLimited,
        Class::Transient => Reason::Unreachable,
        Class::AddressNotAllowed => Reason::AddressNotAllowed,
        Class::Missing | Class::Conflict | Class::Unexpected => Reason::RemoteError,
    }
}
