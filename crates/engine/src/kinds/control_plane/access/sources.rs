//! What access can be acquired with: a client without a token, and what people supply.

use client::Client;
use jiff::Timestamp;
use secrecy::SecretString;
use uuid::Uuid;

use super::{ladder::Standing, tokens::TokenNames};
use crate::{
    kinds::control_plane::{
        account::{Account, username},
        token_record::TokenRecord,
    },
    ports::RandomBytes,
};

/// Something that a Secret was to hold.
#[derive(Debug, Clone)]
pub enum FromSecret<T> {
    NotDeclared,
    /// What is missing, in words.
    Missing(String),
    There(T),
}

/// The human owner of a deployment.
#[derive(Debug, Clone)]
pub struct FirstUser {
    pub email: String,
    pub username: String,
    pub password: SecretString,
}

/// Credentials of an owner, for a borrowed admin session.
#[derive(Debug, Clone)]
pub enum AdminCredentials {
    Password(Account),
    Token(SecretString),
}

/// The Job that makes our account.
#[derive(Debug, Clone)]
pub enum Job {
    NotPossible,
    /// An object of its name has another owner, in words.
    NotOurs(String),
    NotStarted,
    /// What it is at, in words.
    Running(String),
    /// What it said, and what it was to make. It may have made it all the same, and fail for another reason.
    Failed(String, Account),
    /// What it made.
    Done(Account),
}

/// The ways to an account of our own, with everything that they need.
#[derive(Debug)]
pub struct Ladder<'a> {
    /// A client of the deployment without a token.
    pub client: &'a Client,
    pub deployment: Uuid,
    pub control_plane_uid: &'a str,
    pub first_user: &'a FromSecret<FirstUser>,
    pub admin: &'a FromSecret<AdminCredentials>,
    pub job: &'a Job,
    /// See [`Observed::may_be_first`](super::ladder::Observed::may_be_first).
    pub may_be_first: bool,
    /// Whether accounts may be created.
    pub may_create: bool,
    pub now: Timestamp,
    /// What the account is made with, if one is made.
    pub random: RandomBytes,
}

impl Ladder<'_> {
    pub(super) fn names(&self) -> TokenNames {
        TokenNames::of(self.control_plane_uid)
    }

    pub(super) fn username(&self, record: &TokenRecord) -> String {
        let known = record.account.as_ref().map(|it| it.username.clone());
        known.unwrap_or_else(|| username(self.control_plane_uid, 1))
    }
}

impl<T> FromSecret<T> {
    pub(super) fn standing(&self) -> Standing {
        match self {
            Self::NotDeclared => Standing::NotDeclared,
            Self::Missing(what) => Standing::Missing(what.clone()),
            Self::There(_) => Standing::Available,
        }
    }
}
