//! The credentials of the operator: acquired, renewed and cleaned up.
//!
//! Decisions are pure: what is recorded, what coderd shows and the time go in, steps come out. The functions that
//! carry steps out talk to coderd, and keep the token and its record in the [`TokenSecret`](super::token_secret::TokenSecret).
//!
//! Secrets that are shown once are handled the same way everywhere: the name of what is about to be made is recorded
//! first, then it is made, then secret and record are written together. After a crash the record names what was lost.

pub mod account_tokens;
mod acquire;
pub mod admin_job;
mod attempt;
mod borrowed;
pub mod cleanup;
pub mod job;
mod kind;
pub mod ladder;
mod operator_token;
mod revoke;
mod sources;
mod supplied_account;
mod supplied_credentials;
mod supplied_token;
pub mod tokens;

pub use super::{
    account::Account,
    token_record::{Former, OwnAccount, TokenKept, TokenRecord},
};
pub use account_tokens::AccountTokens;
pub use acquire::{AccessContext, AccessRights, Acquired, account_token, own_token};
pub use attempt::AccessOutcome;
pub use cleanup::Left;
pub use kind::{ObservedAccess, OperatorAccess};
pub use operator_token::OperatorToken;
pub use revoke::revoke_all;
pub use sources::{AdminCredentials, FirstUser, FromSecret, Job, Ladder};
pub use supplied_account::{Granted, SuppliedAccount};
pub use supplied_token::Lifetime;
pub use tokens::{TokenNames, TokenPlan, TokenStep};
