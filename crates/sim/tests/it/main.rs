//! Conformance: the same calls to the memory coderd and to the real one of the test bed.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]
#![expect(clippy::panic, reason = "a helper of tests fails as a test does")]

mod bed;
mod cases;
mod covered;
mod memory;
mod side;
mod transcript;
