//! A typed client of Coder's HTTP API, for the part of it that the product uses.
//!
//! Owns the wire and its manners: which routes exist ([`routes`]), how they are asked ([`client`]), how fast and how
//! often (`rate_limiter`, `retry`, `circuit`), and what a refusal means ([`error`]). One file per area of the API holds the
//! types as coderd spells them.
//!
//! It knows no other crate of the workspace, no Kubernetes and no terminal; it decides nothing about what should be
//! done to a deployment, and it keeps no state but connections, rate limiter and circuit.
//!
//! Entry points: [`Client::new`] with an [`HttpTransport`]; in tests with any other [`Transport`].

pub mod address;
pub mod ai_providers;
mod answer;
pub mod appearance;
pub mod audit;
pub mod authorization;
mod circuit;
pub mod client;
pub mod deployment;
pub mod downloads;
pub mod error;
pub mod files;
pub mod groups;
pub mod idp_sync;
pub mod licenses;
pub mod members;
pub mod model_configs;
mod null;
pub mod observer;
pub mod organizations;
pub mod people;
pub mod provisioner_keys;
mod rate_limiter;
mod retry;
pub mod roles;
mod route;
pub mod routes;
pub mod scrub;
pub mod server_config;
pub mod template_versions;
pub mod templates;
mod text;
pub mod transport;
pub mod users;
pub mod workspaces;

#[cfg(test)]
mod script;

pub use address::AddressPolicy;
pub use client::{Client, ClientOptions, ClientOptionsError, Guard};
pub use downloads::{DownloadPermit, Downloads};
pub use error::{Class, Error, Validation};
pub use observer::Observer;
pub use rate_limiter::{RateLimiter, Share};
pub use transport::{CertificateProblem, HttpOptions, HttpTransport, Transport, TransportError, Unreached};
