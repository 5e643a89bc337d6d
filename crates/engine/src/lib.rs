//! The engine: what manifests declare, compared with what a Coder deployment has, and the steps from one to the other.
//!
//! Owns the stages that every kind runs (`desire`, `observe`, `plan`, `apply`), the behaviour that all kinds
//! share ([`decide`], [`gate`]) and the kinds themselves ([`kinds`]), each of which is a small file.
//! `desire`, `plan` and `decide` are pure; `observe` and `apply` talk to coderd through a [`World`]. A control plane
//! has stages of its own ([`control_plane`]).
//!
//! It knows no clock, no environment, no terminal and no Kubernetes API: the doors (controller, command line) bring those.
//!
//! Entry points: [`Object::assess`] and [`Object::carry_out`] for one manifest, [`kinds::subject`] for its kind.

pub mod address;
pub mod assess;
pub mod conditions;
pub mod contention;
pub mod control_plane;
pub mod decide;
pub mod diff;
pub mod endpoint;
pub mod gate;
pub mod held_back;
pub mod kind;
pub mod kinds;
pub mod lookup;
mod names;
pub mod object;
pub mod objects;
pub mod outcome;
pub mod ownership;
pub mod plan;
pub mod ports;
pub mod provisioner;
pub mod provisioner_keys;
pub mod rbac;
pub mod references;
pub mod remote_name;
mod short;
pub mod status;
pub mod version;
pub mod world;

pub use assess::{Assessment, Object, Reference, Report, Runner, Subject, Verdict};
pub use decide::{Contact, Decision, Door, Refusal};
pub use endpoint::{Credentials, Endpoint};
pub use kind::{Aside, Kind};
pub use lookup::Lookup;
pub use outcome::{Blocked, Invalid, Outcome, Trouble};
pub use plan::{Action, Change, Impact, Plan, PlanView, Step};
pub use ports::Cluster;
pub use provisioner_keys::own_secrets;
pub use remote_name::RemoteName;
pub use world::{Freshness, World};
