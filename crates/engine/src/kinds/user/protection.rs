//! Accounts that are never harmed: the one that we ask with, and the last owner. Which they are is read only when a plan would
//! do them harm.

use api::Reason;
use client::users::User;
use uuid::Uuid;

use super::{Desired, Observed, is_suspended, roles_of};
use crate::{
    coder::Coder,
    pipeline::outcome::{Blocked, Trouble},
};

/// The role of those who may do everything.
pub(super) const OWNER: &str = "owner";

/// What a plan would do to an account that may matter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one plan")]
pub(super) struct Harm {
    deletes: bool,
    suspends: bool,
    /// Roles are given or taken.
    changes_roles: bool,
    /// The role of an owner is taken away.
    demotes: bool,
    /// The account leaves an organization.
    leaves: bool,
}

impl Harm {
    pub(super) fn of(desired: &Desired, found: &User, observed: &Observed) -> Self {
        let roles = desired.roles.as_ref().filter(|_| observed.provider.is_none());
        Self {
            deletes: desired.is_deletion,
            suspends: desired.suspended == Some(true) && !is_suspended(found),
            changes_roles: roles.is_some_and(|it| *it != roles_of(found)),
            demotes: found.has_role(OWNER) && roles.is_some_and(|it| !it.contains(OWNER)),
            leaves: observed.declared.as_ref().is_some_and(|it| !observed.memberships.is_subset(it)),
        }
    }

    pub(super) fn deletion() -> Self {
        Self { deletes: true, ..Self::default() }
    }

    /// Whether the user loses the rights of an owner.
    fn ends_ownership(self, user: &User) -> bool {
        user.has_role(OWNER) && (self.deletes || self.suspends || self.demotes)
    }

    fn in_words(self) -> &'static str {
        match self {
            Self { deletes: true, .. } => "deleted",
            Self { suspends: true, .. } => "suspended",
            Self { changes_roles: true, .. } => "given other roles",
            _ => "removed from an organization",
        }
    }
}

/// Why an account is left as it is. `None` where nothing speaks against the plan.
pub(super) async fn check(
    harm: &Harm,
    user: &User,
    users: &[User],
    coder: &Coder,
) -> Result<Option<Blocked>, Trouble> {
    if *harm == Harm::default() {
        return Ok(None);
    }
    let own = coder.own_account().await?;
    Ok(refusal(*harm, user, users, own.id))
}

/// Pure: why an account is left as it is. `own` is the account that we ask with.
pub(super) fn refusal(harm: Harm, user: &User, users: &[User], own: Uuid) -> Option<Blocked> {
    let name = &user.username;
    if user.id == own && harm != Harm::default() {
        return Some(Blocked {
            reason: Reason::OwnAccount,
            message: format!(
                "user {name} is the account that the operator itself uses, and is not {}: correct the manifest, or use another \
                 account for the control plane",
                harm.in_words()
            ),
        });
    }
    if harm.suspends && user.has_role(OWNER) && !harm.demotes {
        return Some(Blocked {
            reason: Reason::Invalid,
            message: format!(
                "spec.suspended: user {name} is an owner, and Coder suspends no owner: take the role away with spec.roles"
            ),
        });
    }
    // An account without a way to sign in does not count: people would lose the deployment with the last other owner.
    let is_left = |it: &&User| {
        it.id != user.id && it.has_role(OWNER) && !is_suspended(it) && !it.is_service_account && !is_ours(it)
    };
    if harm.ends_ownership(user) && users.iter().find(is_left).is_none() {
        return Some(Blocked {
            reason: Reason::LastOwner,
            message: format!(
                "user {name} is the last owner of the deployment who can sign in, and is not {}: make another user an owner first",
                harm.in_words()
            ),
        });
    }
    None
}

/// Whether an operator created the account for itself, with a password that was not kept.
fn is_ours(user: &User) -> bool {
    user.email.ends_with("@coder-operator.invalid")
}

#[cfg(test)]
mod tests {
    use client::users::UserRole;

    use super::*;

    fn user(id: u128, roles: &[&str]) -> User {
        let role = |it: &&str| UserRole { name: (*it).to_owned(), display_name: String::new() };
        User {
            id: Uuid::from_u128(id),
            username: format!("user-{id}"),
            email: format!("user-{id}@example.com"),
            name: String::new(),
            avatar_url: String::new(),
            status: "active".to_owned(),
            login_type: "password".to_owned(),
            is_service_account: false,
            organization_ids: Vec::new(),
            roles: roles.iter().map(role).collect(),
        }
    }

    fn reason(harm: Harm, target: &User, users: &[User]) -> Option<Reason> {
        refusal(harm, target, users, Uuid::from_u128(9)).map(|it| it.reason)
    }

    const DELETES: Harm =
        Harm { deletes: true, suspends: false, changes_roles: false, demotes: false, leaves: false };
    const DEMOTES: Harm =
        Harm { deletes: false, suspends: false, changes_roles: true, demotes: true, leaves: false };
    const SUSPENDS: Harm =
        Harm { deletes: false, suspends: true, changes_roles: false, demotes: false, leaves: false };

    #[test]
    fn own_account_is_neither_deleted_nor_suspended_nor_demoted() {
        let own = user(9, &[OWNER]);
        let users = [own.clone(), user(1, &[OWNER]), user(2, &[OWNER])];
        let leaves = Harm { leaves: true, ..Harm::default() };
        for harm in [DELETES, DEMOTES, SUSPENDS, leaves] {
            assert_eq!(reason(harm, &own, &users), Some(Reason::OwnAccount), "{harm:?}");
        }
        assert_eq!(reason(Harm::default(), &own, &users), None);
    }

    #[test]
    fn last_owner_who_can_sign_in_is_kept() {
        let last = user(1, &[OWNER]);
        let mut suspended = user(2, &[OWNER]);
        suspended.status = "suspended".to_owned();
        let mut service = user(3, &[OWNER]);
        service.is_service_account = true;
        let mut ours = user(9, &[OWNER]);
        ours.email = "coder-operator-1@coder-operator.invalid".to_owned();
        let users = [last.clone(), suspended, service, ours, user(4, &["user-admin"])];
        assert_eq!(reason(DELETES, &last, &users), Some(Reason::LastOwner));
        assert_eq!(reason(DEMOTES, &last, &users), Some(Reason::LastOwner));
        let more: Vec<User> = users.iter().cloned().chain([user(5, &[OWNER])]).collect();
        assert_eq!(reason(DELETES, &last, &more), None);
        assert_eq!(reason(DEMOTES, &last, &more), None);
        assert_eq!(reason(DELETES, &user(4, &["user-admin"]), &users), None);
    }

    #[test]
    fn owner_is_suspended_only_together_with_the_loss_of_the_role() {
        let owner = user(1, &[OWNER]);
        let users = [owner.clone(), user(2, &[OWNER])];
        assert_eq!(reason(SUSPENDS, &owner, &users), Some(Reason::Invalid));
        let both = Harm { suspends: true, ..DEMOTES };
        assert_eq!(reason(both, &owner, &users), None);
        assert_eq!(reason(both, &owner, &users[..1]), Some(Reason::LastOwner));
    }
}
