//! Documents of the files that a verb does not handle, and why.

use std::fmt;

use serde::Serialize;

use super::{Named, Place, read::Document};

/// A document that was read and not handled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Skipped {
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    file: String,
    line: usize,
    reason: SkipReason,
    message: String,
}

/// Why a document was not handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum SkipReason {
    /// The document is no manifest of ours.
    OtherKind,
    /// The manifest has `suspend: true`.
    Suspended,
    /// The controllers apply the manifest; `apply` does not.
    Controller,
    /// The command line cannot handle the manifest; the controllers can.
    Unsupported,
}

impl Skipped {
    pub(crate) fn new(
        kind: &str,
        named: &Named,
        place: &Place,
        reason: SkipReason,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: named.namespace.clone(),
            name: named.name.clone(),
            file: place.file.clone(),
            line: place.line,
            reason,
            message: message.into(),
        }
    }

    pub(super) fn other_kind(document: &Document) -> Self {
        let message = "not a manifest of coder-operator";
        Self::document(document, SkipReason::OtherKind, message)
    }

    pub(super) fn unsupported(document: &Document) -> Self {
        Self::document(document, SkipReason::Unsupported, CONTROLLER_ONLY)
    }

    fn document(document: &Document, reason: SkipReason, message: &str) -> Self {
        Self::new(document.text("kind"), &Named::of(document), &document.place(""), reason, message)
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, file, line, message, .. } = self;
        let slash = if namespace.is_empty() { "" } else { "/" };
        write!(formatter, "{file}:{line}: {kind} {namespace}{slash}{name}: {message}")
    }
}

const CONTROLLER_ONLY: &str =
    "only `coder-operator run` reconciles this kind: apply the manifest with kubectl";
/// Why `apply` skips a manifest that `plan` and `verify` compare.
pub(crate) const NOT_APPLIED: &str = "applied by the controllers (`coder-operator run`), not by `apply`";
pub(super) const UNREFERENCED: &str = "it is external, names no licence, and no other manifest refers to it: there is nothing to \
                                       compare; apply the manifest with kubectl";
