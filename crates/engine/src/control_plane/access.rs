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
pub mod climb;
pub mod desk;
pub mod end;
mod given;
pub mod job;
pub mod ladder;
mod lent;
mod means;
mod memory;
mod operator_token;
pub mod record;
mod revoke;
pub mod tokens;

pub use account::{Account, Entrance, Granted};
pub use acquire::{AccessContext, Acquired, account_token, own_token};
pub use climb::{AdminCredentials, Climbed, FirstUser, FromSecret, Job, Ladder};
pub use desk::Desk;
pub use end::Left;
pub use given::Lifetime;
pub use memory::{OwnToken, Pause, TokenMemory};
pub use operator_token::OperatorToken;
pub use record::{Former, OwnAccount, TokenKept, TokenRecord};
pub use revoke::revoke_all;
pub use tokens::{TokenNames, TokenPlan, TokenStep};
