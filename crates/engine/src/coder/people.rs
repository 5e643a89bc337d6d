//! The accounts of a deployment, as one list, and the account that we ask with.

use std::sync::Arc;

use client::{Error, members::MemberRef, users::User};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

use super::{Coder, shared, shared::Shared};

/// What was read of accounts.
#[derive(Debug, Default)]
pub(super) struct People {
    users: Shared<Vec<User>>,
    own: Shared<User>,
    /// Held while the number of owners becomes smaller.
    owners: Mutex<()>,
}

impl Coder {
    /// Every account that is not deleted.
    pub async fn users(&self) -> Result<Arc<Vec<User>>, Error> {
        let read = || self.client.list_users();
        Ok(self.used(self.reads.people.users.get(self.need, read).await?))
    }

    /// The account that we ask with.
    pub async fn own_account(&self) -> Result<Arc<User>, Error> {
        let read = || self.client.current_user();
        Ok(self.used(self.reads.people.own.get(self.need, read).await?))
    }

    /// Waits until no other reconcile of this process takes rights from owners: two at once could remove the last two owners.
    pub(crate) async fn owners_turn(&self) -> MutexGuard<'_, ()> {
        self.reads.people.owners.lock().await
    }

    /// Drops the list of accounts, after a write whose effect is unknown.
    pub(crate) async fn forget_users(&self) {
        self.reads.people.users.forget().await;
    }

    /// Enters an account that coderd has just answered with, also among the members of its organizations.
    pub(crate) async fn note_user(&self, user: &User) {
        let answered = Instant::now();
        let enter = |list: &mut Vec<User>| shared::enter(list, user, |it| it.id);
        self.reads.people.users.note(answered, enter).await;
        for organization in &user.organization_ids {
            let member = MemberRef {
                user_id: user.id,
                username: user.username.clone(),
                email: user.email.clone(),
                status: user.status.clone(),
                roles: Vec::new(),
            };
            let enter = |list: &mut Vec<MemberRef>| match list.iter_mut().find(|it| it.user_id == user.id) {
                Some(known) => known.status = member.status,
                None => list.push(member),
            };
            self.reads.members.of(*organization).note(answered, enter).await;
        }
    }

    /// Removes an account that was deleted.
    pub(crate) async fn note_user_gone(&self, user: &User) {
        let answered = Instant::now();
        self.reads.people.users.note(answered, |list| list.retain(|it| it.id != user.id)).await;
        for organization in &user.organization_ids {
            let remove = |list: &mut Vec<MemberRef>| list.retain(|it| it.user_id != user.id);
            self.reads.members.of(*organization).note(answered, remove).await;
        }
    }
}
