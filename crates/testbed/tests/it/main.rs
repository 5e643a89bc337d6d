//! Tests of the bed itself: each promise that other tests will lean on.
//!
//! Those that need the parts are in the module `bed`, so that a run without them can leave them out by that word.

#![allow(clippy::disallowed_methods, reason = "tests act as other clients")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails as a test does")]

mod bed;
mod support;
