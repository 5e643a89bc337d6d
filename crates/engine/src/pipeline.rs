//! The pure half of a reconcile: the plan as a value, the policies that decide about it, and the status that it leaves behind.

pub mod approval;
pub mod attribution;
pub mod cleanup;
pub mod conditions;
pub mod contention;
pub mod decide;
pub mod diff;
pub mod export;
pub mod field_gate;
pub mod gate;
pub(crate) mod given;
pub mod ledger;
pub mod masked;
pub mod outcome;
pub mod ownership;
pub mod plan;
pub mod reference;
pub mod remote_name;
pub(crate) mod short;
pub mod status;
pub mod version;
