//! The engine: what manifests declare, compared with what a Coder deployment has, and the steps from one to the other.
//!
//! Owns the stages that every kind runs (`desire`, `observe`, `plan`, `apply`), the behaviour that all kinds
//! share ([`pipeline`]) and the kinds themselves ([`kinds`]), each of which is a small file.
//! `desire`, `plan` and `decide` are pure; `observe` and `apply` talk to coderd through a [`Coder`]. The
//! parts of a control plane are kinds, too ([`kinds::control_plane`]).
//!
//! It knows no clock, no environment, no terminal and no Kubernetes API: the doors (controller, command line) bring those.
//!
//! Entry points: [`Object::assess`] and [`Object::carry_out`] for one manifest, [`kinds::subject`] for its kind.

pub mod coder;
pub mod driver;
pub mod export;
pub mod keys;
pub mod kind;
pub mod kinds;
pub mod objects;
pub mod pipeline;
pub mod ports;
pub mod rbac;
pub mod secrets;

pub use coder::{
    Coder, Freshness,
    endpoint::{Credentials, Endpoint},
};
pub use driver::{Assessment, Object, Reference, Report, Subject, Verdict};
pub use kind::{Aside, Kind, Round, Runner};
pub use pipeline::{
    decide::{Contact, Decision, Door, Refusal},
    outcome::{Blocked, Invalid, Outcome, Trouble},
    plan::{Action, Change, Impact, Plan, PlanView, Step},
    reference::Ref,
    remote_name::RemoteName,
};
pub use ports::Cluster;
pub use secrets::own_secrets;
