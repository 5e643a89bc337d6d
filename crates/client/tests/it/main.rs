//! The client against real coderds, and against answers of ones that do not exist yet.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod bed;
mod newer;
