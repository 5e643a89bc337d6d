//! Tests of the kinds: what the definitions say, what manifests mean, and what an API server makes of both.
//!
//! Those that need the bed are in the module `bed`, so that a run without it can leave them out by that word.

#![allow(clippy::disallowed_methods, reason = "tests act as other clients")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails as a test does")]

mod bed;
mod definitions;
mod examples;
mod manifests;
