//! Tests of the project's commands, as a person runs them.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod bed;
mod demo;
mod image;
mod refusals;
