//! How the operator comes to a credential of its own, keeps it and gives it up.
//!
//! Decisions are pure: what is recorded, what coderd shows and the time go in, steps come out. The functions that
//! carry steps out talk to coderd, and keep the token and its record in the [`TokenSecret`](super::token_secret::TokenSecret).
//!
//! Secrets that are shown once are handled the same way everywhere: the name of what is about to be made is recorded
//! first, then it is made, then secret and record are written together. After a crash the record names what was lost.

pub mod account;
mod acquire;
pub mod admin_job;
mod borrowed;
pub mod cleanup;
pub mod desk;
pub mod job;
pub mod ladder;
mod means;
mod memory;
mod operator_token;
mod revoke;
mod sources;
mod supplied;
pub mod tokens;
pub mod ways;

pub use super::{
    account::Account,
    token_record::{Former, OwnAccount, TokenKept, TokenRecord},
};
pub use account::{Entrance, Granted};
pub use acquire::{AccessContext, Acquired, account_token, own_token};
pub use cleanup::Left;
pub use desk::Desk;
pub use memory::{OwnToken, Pause, TokenMemory};
pub use operator_token::OperatorToken;
pub use revoke::revoke_all;
pub use sources::{AdminCredentials, FirstUser, FromSecret, Job, Ladder};
pub use supplied::Lifetime;
pub use tokens::{TokenNames, TokenPlan, TokenStep};
pub use ways::AccessOutcome;
