//! The kinds of `coder.com/v1alpha1`: what a manifest may say, and what a status reports.
//!
//! Owns the spec and status of every kind, the CEL rules and bounds that the API server enforces, the columns of
//! `kubectl get`, and the words that programs rely on: annotations, finalizers, conditions and reasons. The doc comments
//! of the fields are the users' reference.
//!
//! It decides nothing and reaches nobody: no client, no clock, no other crate of this workspace. Defaults are
//! methods here and never defaults in a CRD, because a GitOps tool would fight over what the API server writes into a spec.
//!
//! Entry points: [`crds`], [`AppState`], and one file per kind.

#![expect(
    unreachable_pub,
    reason = "the derive of schemas repeats every struct, `pub` and all, inside a function"
)]

#[macro_use]
pub mod kinds;

mod app_state;
mod crds;
mod interval;
mod key;
mod policy;
mod quantity;
mod reason;
pub mod reasons;
mod reference;
mod rules;
mod schema;
mod status;
mod words;

macro_rules! declare {
    ($($module:ident: $kind:ident => $driver:ident),+ $(,)?; $($with_pods:ident: $other:ident),+ $(,)?) => {
        $(mod $module; pub use $module::*;)+
        $(mod $with_pods; pub use $with_pods::*;)+
    };
}

for_each_kind!(declare);

pub use app_state::{AppState, Manifest};
pub use crds::crds;
pub use interval::{Interval, InvalidInterval, parse_duration};
pub use key::{OtherKey, ProvisionerKeyState, RESERVED_KEY_NAMES};
pub use policy::{AdoptionPolicy, Approval, ChangePolicy, DeletionPolicy, Mode, Policy};
pub use reason::{KeptClient, Reason};
pub use reference::{ControlPlaneRef, SecretKeyRef, SecretRef};
pub use status::{ApprovedPlan, Difference, Plan, Status, Step};
pub use words::{annotation, condition, finalizer, label};

/// The API group of every kind.
pub const GROUP: &str = "coder.com";

/// The version of every kind.
pub const VERSION: &str = "v1alpha1";

/// The name that stands for the default organization, whatever that one is called.
pub const DEFAULT_ORGANIZATION: &str = "default";
