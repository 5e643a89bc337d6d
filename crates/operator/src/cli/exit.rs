//! Exit codes, the same for every verb: scripts rely on them.

use std::process::ExitCode;

/// How a verb ended, in ascending severity: of several objects the most severe counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    /// Done, or equal.
    Success,
    /// A deployment differs from the manifests, and the verb reports that.
    Drift,
    /// Timed out waiting for a dependency.
    Blocked,
    /// Refused by a policy of the manifest, by the person who was asked, or because nobody named the deployment.
    Refused,
    /// Failure.
    Failure,
    /// Usage error or invalid manifest; nothing was changed.
    Usage,
    /// The exit code of a command that the verb ran.
    OfCommand(u8),
}

/// An error with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: anyhow::Error,
    pub(crate) exit: Exit,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { error: anyhow::Error::msg(message.into()), exit: Exit::Usage }
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { error: anyhow::Error::msg(message.into()), exit: Exit::Refused }
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
            Exit::Blocked => 5,
            Exit::OfCommand(code) => code,
        })
    }
}
