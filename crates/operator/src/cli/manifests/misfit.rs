//! A field of a manifest that its definition does not allow.

use std::fmt;

/// Something that does not fit, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    /// The way there, as `spec.members[1]`.
    pub(super) path: String,
    message: String,
}

impl Misfit {
    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.message)
    }
}
