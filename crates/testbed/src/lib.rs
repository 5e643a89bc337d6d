//! A bed of real parts: etcd, kube-apiserver, kube-controller-manager, PostgreSQL and coderd as local processes,
//! and pods as local processes too.
//!
//! Owns how the parts are had ([`parts`]), how they start and end ([`run`], [`process`]) and the node agent
//! that turns pods into processes (`node`). For tests and the demo only.
//!
//! It knows nothing of the product: no crate of this workspace may appear among its dependencies, so that what the
//! product claims is checked by something that does not share its mistakes.
//!
//! Entry points: [`shared`] for a test, [`Bed::start`] for a program that owns a bed.

#![allow(clippy::disallowed_methods, reason = "the bed has no port")]

pub mod bed;
pub mod cache;
pub mod coderd;
pub mod kubernetes;
pub mod loopback;
mod node;
pub mod parts;
pub mod postgres;
pub mod process;
pub mod run;
pub mod shared;

pub use bed::{Bed, BedInfo, Options};
pub use coderd::{Coderd, Flavour, FreshCoderd, Session};
pub use shared::shared;
