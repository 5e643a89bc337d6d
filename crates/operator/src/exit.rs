//! Exit codes, the same for every verb: scripts rely on them.

use std::process::ExitCode;

/// How a verb ended. The later ones are the graver ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    /// Done, or equal.
    Success,
    /// There are differences, and the verb was asked to say so.
    Drift,
    /// Something has to come first, and did not in time.
    Waiting,
    /// A policy forbids what would have to be done.
    Refused,
    /// Something went wrong.
    Failure,
    /// The manifests or the words on the command line cannot be meant.
    Usage,
}

/// An error, and what a script is told of it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: anyhow::Error,
    pub(crate) exit: Exit,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { error: anyhow::Error::msg(message.into()), exit: Exit::Usage }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { error, exit: Exit::Failure }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Drift => 3,
            Exit::Refused => 4,
            Exit::Waiting => 5,
        })
    }
}
