//! A Coder deployment and a Kubernetes cluster in memory, for tests, scale runs and a sandbox.
//!
//! Owns the behaviour of coderd 2.36 for every route that the client knows: statuses, bodies, and what later reads
//! show. The suite in `tests/it` sends the same requests to a real coderd and fails on any difference.
//!
//! The deployment knows the client's route table and transport, the cluster the engine's port. Neither has a clock or a source
//! of randomness: both are arguments, so that a run can be repeated exactly.
//!
//! Entry points: [`Coder::new`], [`Coder::transport`], [`MemoryCluster::new`].

#![expect(
    clippy::unnecessary_wraps,
    reason = "every handler has the same signature, also one that never refuses"
)]

mod ai_providers;
mod answer;
mod appearance;
mod audit;
mod authorization;
mod body;
mod builds;
mod call;
pub mod cluster;
mod coder;
mod entitlements;
mod features;
mod files;
mod groups;
mod ids;
mod licenses;
mod members;
mod model_configs;
mod names;
mod organizations;
mod password;
mod people;
mod provisioner_daemons;
mod provisioner_keys;
mod rate_limit;
mod regex;
mod rights;
mod roles;
mod router;
mod server_config;
mod sessions;
mod settings;
mod sharing;
pub mod state;
mod sync;
mod templates;
mod tokens;
mod user_view;
mod users;
mod variables;
mod versions;
mod workspaces;

pub use cluster::{ManualClock, MemoryCluster};
pub use coder::{Clock, Coder, Options};
pub use settings::LicenseCheck;
