//! The ways to an account of our own, from the gentlest to the last: which one is next, as far as is known.

use std::fmt::Write as _;

use api::Reason;
use client::users::User;
use uuid::Uuid;

use crate::{
    kinds::control_plane::{
        account::{full_name, username},
        token_record::{OwnAccount, TokenRecord},
    },
    pipeline::outcome::Blocked,
};

/// The account that coder-k8s made for itself.
pub const LEGACY_ACCOUNT: &str = "coder-k8s-operator";
/// What PostgreSQL says of a name that is taken. The command inserts and never updates, so no account is promoted.
const NAME_IS_TAKEN: &str = "duplicate key";

/// Whose rights a borrowed admin session has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BorrowedRights {
    /// A token in our Secret that belongs to another account: coder-k8s', or one that a person put there.
    HeldToken,
    /// `adminCredentialsSecretRef`.
    Admin,
    /// `firstUserSecretRef`.
    FirstUser,
}

/// How a source stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    NotDeclared,
    /// It is declared, and this is what is missing.
    Missing(String),
    Available,
    /// Coder did not take it, and this is what it said.
    Refused(String),
}

/// The token in our Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenHeld {
    /// There is none, it is no longer good, or it is for another deployment.
    None,
    /// It is good and belongs to our own account.
    Ours,
    /// It is good and belongs to another account.
    Others,
}

/// The account of our name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountState {
    Absent,
    Ours(Uuid),
    /// Somebody else made it. It is neither used nor changed.
    Others,
}

/// The Job that makes an account with the image's own command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminJob {
    /// The deployment is not ours to run a Job for, or keeps its database in its pod.
    NotPossible,
    /// What it makes could not sign in: Coder takes no passwords.
    NoPasswords,
    /// An object of its name has another owner, in words.
    NotOurs(String),
    NotStarted,
    /// What it is at, in words.
    Running(String),
    /// What it said, and that its account cannot be entered.
    Failed(String),
    /// It has ended, and the password of the account that it was to make is at hand.
    Ended,
}

/// What is known when it is decided.
#[derive(Debug, Clone)]
pub struct Observed {
    pub held: TokenHeld,
    pub has_users: bool,
    /// Whether our account may be the first one. Then the setup page of the deployment is gone.
    pub may_be_first: bool,
    pub first_user: Standing,
    pub admin: Standing,
    pub held_token: Standing,
    /// `None` until an admin session has looked for it.
    pub account: Option<AccountState>,
    pub job: AdminJob,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rung {
    /// The token is ours: keep it.
    Use,
    CreateFirstUser,
    /// Sign in with these rights and look for our account.
    Ask(BorrowedRights),
    CreateAccount(BorrowedRights),
    /// The account exists, and its token is lost.
    MintFor(BorrowedRights, Uuid),
    RunAdminJob,
    /// Sign in as the account that the Job made.
    EnterAfterJob,
    Wait(Blocked),
}

/// Decides.
pub fn next(observed: &Observed) -> Rung {
    if observed.held == TokenHeld::Ours {
        return Rung::Use;
    }
    if observed.job == AdminJob::Ended {
        return Rung::EnterAfterJob;
    }
    if !observed.has_users
        && let Some(next) = without_users(observed)
    {
        return next;
    }
    let Some(source) = source(observed) else { return job(observed) };
    match observed.account {
        None => Rung::Ask(source),
        Some(AccountState::Absent) => Rung::CreateAccount(source),
        Some(AccountState::Ours(id)) => Rung::MintFor(source, id),
        Some(AccountState::Others) => wait(
            Reason::AccountTaken,
            "an account with the operator's name exists and was not created by this control plane: delete or rename it in \
             Coder"
                .to_owned(),
        ),
    }
}

/// What comes first where there is no user; nothing where the other rungs are open all the same. Coder does not count the
/// account of coder-k8s as a user.
fn without_users(observed: &Observed) -> Option<Rung> {
    let no_users = || {
        let message = "the deployment has no user yet: set operatorAccess.firstUserSecretRef, or create the first user \
                       in a browser";
        wait(Reason::NoUsers, message.to_owned())
    };
    match &observed.first_user {
        Standing::Available => Some(Rung::CreateFirstUser),
        Standing::NotDeclared if !observed.may_be_first => Some(no_users()),
        Standing::NotDeclared if observed.held_token == Standing::Available => None,
        Standing::NotDeclared if observed.job == AdminJob::NotPossible => Some(no_users()),
        Standing::NotDeclared => Some(job(observed)),
        Standing::Missing(what) => Some(wait(api::Reason::SecretNotFound, what.clone())),
        Standing::Refused(words) => Some(wait(
            api::Reason::Unauthorized,
            format!(
                "Coder refuses the first user: {words}: correct the Secret of operatorAccess.firstUserSecretRef"
            ),
        )),
    }
}

/// The gentlest rights that are at hand.
fn source(observed: &Observed) -> Option<BorrowedRights> {
    let all = [
        (BorrowedRights::HeldToken, &observed.held_token),
        (BorrowedRights::Admin, &observed.admin),
        (BorrowedRights::FirstUser, &observed.first_user),
    ];
    all.into_iter().find(|(_, it)| **it == Standing::Available).map(|(source, _)| source)
}

fn job(observed: &Observed) -> Rung {
    match &observed.job {
        AdminJob::NotPossible => wait(Reason::NoCredentials, no_credentials(observed)),
        AdminJob::NoPasswords => wait(
            Reason::NoCredentials,
            format!(
                "password login is disabled in Coder, so that only the token of an owner can be used: {}",
                no_credentials(observed)
            ),
        ),
        AdminJob::NotOurs(words) => wait(api::Reason::NotOurs, words.clone()),
        AdminJob::NotStarted => Rung::RunAdminJob,
        AdminJob::Running(words) => {
            wait(Reason::AdminJobRunning, format!("the operator's account is being created: {words}"))
        }
        AdminJob::Failed(words) if words.contains(NAME_IS_TAKEN) => wait(
            Reason::AccountTaken,
            format!(
                "an account with the operator's name or e-mail exists and was not created by this control plane: {words}; \
                 delete or rename it in Coder"
            ),
        ),
        AdminJob::Failed(words) => wait(
            Reason::AdminJobFailed,
            format!("cannot create the operator's account: {words}; retrying; {}", no_credentials(observed)),
        ),
        AdminJob::Ended => Rung::EnterAfterJob,
    }
}

fn wait(reason: Reason, message: String) -> Rung {
    Rung::Wait(Blocked { reason, message })
}

/// What to do, and why the supplied credentials do not do.
fn no_credentials(observed: &Observed) -> String {
    let mut message =
        "set operatorAccess.adminCredentialsSecretRef to the credentials of an owner".to_owned();
    let sources = [
        ("the token in the operator's Secret", &observed.held_token),
        ("adminCredentialsSecretRef", &observed.admin),
        ("firstUserSecretRef", &observed.first_user),
    ];
    for (name, standing) in sources {
        if let Standing::Missing(words) | Standing::Refused(words) = standing {
            // Writing to a String does not fail.
            write!(message, "; {name}: {words}").ok();
        }
    }
    message
}

/// The account after this one, for a Job that cannot have a name that is taken.
pub fn username_after(control_plane_uid: &str, record: &TokenRecord) -> String {
    let first = username(control_plane_uid, 1);
    let Some(account) = record.account.as_ref().filter(|it| it.id.is_some()) else { return first };
    let number =
        account.username.strip_prefix(&first).map(|it| it.trim_start_matches('-').parse().unwrap_or(1));
    username(control_plane_uid, number.unwrap_or(1) + 1)
}

/// Pure: whose account it is that has our name.
pub fn recognise(found: Option<&User>, record: &TokenRecord) -> AccountState {
    let Some(found) = found else { return AccountState::Absent };
    let is_ours = |it: &OwnAccount| match it.id {
        // Without a marker the name has to tell as well: an id alone may stand where others write.
        Some(id) => id == found.id && (!it.marker.is_empty() || found.username.starts_with(&it.username)),
        None => it.username == found.username && found.name == full_name(&it.marker),
    };
    if record.account.as_ref().is_some_and(is_ours) {
        AccountState::Ours(found.id)
    } else {
        AccountState::Others
    }
}

#[cfg(test)]
mod tests;
