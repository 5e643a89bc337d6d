//! The client against real coderds.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod bed;
