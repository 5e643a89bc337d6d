//! The engine from the outside: manifests go in, and what is asked of coderd is watched at the wire.
//!
//! Those that need the bed are in the module `bed`, so that a run without it can leave them out by that word.

#![allow(clippy::disallowed_methods, reason = "tests act as other clients")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a helper of tests fails as a test does, and says what it measured"
)]

mod ai;
mod attribution;
mod bed;
mod cases;
mod coder_k8s;
mod examples;
mod export;
mod holding;
mod keys;
mod ledger;
mod license;
mod memory;
mod own_secrets;
mod own_token;
mod plane_objects;
mod properties;
mod provisioner;
mod provisioner_gate;
mod provisioner_key;
mod rounds;
mod stages;
mod status_fields;
mod support;
mod template;
mod token_secret;
mod users;
mod wire;
mod writes;
