//! Tests of the binary, as a person or a script runs it.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod bed;
mod refusals;
mod silent;
mod support;
mod terminal;
