//! Tests of the binary, as a person or a script runs it.

#![allow(clippy::disallowed_methods, reason = "tests act as other clients")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails as a test does")]

mod address;
mod bed;
mod ci;
/// The engine's own, so that there is one form of what coder-k8s leaves behind.
#[path = "../../../engine/tests/it/coder_k8s.rs"]
mod coder_k8s;
/// The engine's own, so that a kind has one example for all suites.
#[path = "../../../engine/tests/it/examples.rs"]
mod examples;
mod export;
mod help;
mod plugin;
mod refusals;
mod sandbox;
mod silent;
mod support;
mod terminal;
mod unsupported;
mod validate;
