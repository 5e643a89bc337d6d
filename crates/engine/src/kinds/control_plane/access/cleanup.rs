//! Cleanup of access: tokens are revoked, and the account that we made is deleted where somebody can delete it.

use client::{Class, Client};
use secrecy::SecretString;
use uuid::Uuid;

use super::{
    account_tokens::AccountTokens,
    borrowed::BorrowedSession,
    ladder::{BorrowedRights, LEGACY_ACCOUNT},
    sources::Ladder,
    supplied_account::with,
    tokens::{self, TokenSituation, TokenStep},
};
use crate::{
    kinds::control_plane::token_record::{Former, TokenRecord, id_of},
    pipeline::outcome::Trouble,
};

/// What is refused stays, and a person has to see to it.
const REFUSED: [Class; 3] = [Class::Conflict, Class::Forbidden, Class::SignedOut];

/// What could not be taken away, to be named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    /// In words: what it is, and what to do about it.
    pub items: Vec<String>,
}

impl Ladder<'_> {
    /// Revokes what we minted and deletes the account that we made. Coder lets no account delete itself: without
    /// a borrowed admin session the account stays, without a token and with a password that nobody knows.
    pub async fn clean_up(
        &self,
        current: Option<&SecretString>,
        record: &TokenRecord,
    ) -> Result<Left, Trouble> {
        if record.deployment_id.is_some_and(|it| it != self.deployment) {
            let item = "tokens on the deployment that was here before: they expire within a day";
            return Ok(Left { items: vec![item.to_owned()] });
        }
        let Some(account) = record.account.as_ref() else {
            if let Some(current) = current {
                self.revoke_legacy(current).await?;
            }
            return Ok(Left::default());
        };
        let mut left = Left::default();
        let borrowed = match self.borrow(BorrowedRights::Admin, None).await? {
            Ok(borrowed) => Some(borrowed),
            Err(_) => self.borrow(BorrowedRights::FirstUser, None).await?.ok(),
        };
        let done = match (&borrowed, account.id) {
            (borrowed, None) => {
                let client = borrowed.as_ref().map(|it| it.client.clone());
                clean_up_former(&record.former, client.as_ref(), &mut left).await
            }
            (Some(borrowed), Some(id)) => self.delete(borrowed, id, record, &mut left).await,
            (None, Some(id)) => {
                let item = format!(
                    "the account {}: delete it in Coder, which lets no account delete itself, or set \
                     operatorAccess.adminCredentialsSecretRef",
                    account.username
                );
                left.items.push(item);
                self.revoke_own(id, current, record, &mut left).await
            }
        };
        if let Some(borrowed) = borrowed {
            borrowed.close().await;
        }
        done.map(|()| left)
    }

    async fn delete(
        &self,
        borrowed: &BorrowedSession,
        id: Uuid,
        record: &TokenRecord,
        left: &mut Left,
    ) -> Result<(), Trouble> {
        let client = &borrowed.client;
        clean_up_former(&record.former, Some(client), left).await?;
        let Some(user) = client.living_user(id).await? else { return Ok(()) };
        // Deleting an account takes its tokens along.
        match client.delete_user(user.id).await {
            Err(error) if error.class() == Class::Conflict => {
                left.items.push(format!("the account {}: {}", user.username, error.words()));
                let account_tokens = AccountTokens { client: client.clone(), user: user.id };
                self.revoke(&account_tokens, None, record).await
            }
            done => Ok(gone(done)?),
        }
    }

    /// Without borrowed rights: our own token revokes the others and then itself.
    async fn revoke_own(
        &self,
        id: Uuid,
        current: Option<&SecretString>,
        record: &TokenRecord,
        left: &mut Left,
    ) -> Result<(), Trouble> {
        let Some(current) = current else { return clean_up_former(&record.former, None, left).await };
        let account_tokens = AccountTokens { client: with(self.client, current)?, user: id };
        clean_up_former(&record.former, Some(&account_tokens.client), left).await?;
        match self.revoke(&account_tokens, id_of(current), record).await {
            Err(Trouble::Remote(error)) if error.class() == Class::SignedOut => {
                let item = "tokens that can no longer be listed: they expire within a day";
                left.items.push(item.to_owned());
                Ok(())
            }
            done => done,
        }
    }

    /// A token that coder-k8s left behind, and that we have not used yet, revokes itself.
    async fn revoke_legacy(&self, current: &SecretString) -> Result<(), Trouble> {
        let client = with(self.client, current)?;
        let user = match client.current_user().await {
            Ok(user) => user,
            Err(error) if error.class() == Class::SignedOut => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        match id_of(current).filter(|_| user.username == LEGACY_ACCOUNT) {
            Some(token) => Ok(gone(client.delete_token(&user.id.to_string(), token).await)?),
            None => Ok(()),
        }
    }

    async fn revoke(
        &self,
        account_tokens: &AccountTokens,
        held: Option<&str>,
        record: &TokenRecord,
    ) -> Result<(), Trouble> {
        let (names, listed) = (self.names(), account_tokens.list().await?);
        let situation = TokenSituation { names: &names, record, held, listed: &listed, now: self.now };
        for step in tokens::plan_revocation(&situation) {
            if let TokenStep::Revoke { id, name: _ } = step {
                account_tokens.revoke(&id).await?;
            }
        }
        Ok(())
    }
}

/// Something that was ours before and cannot go.
#[derive(Debug)]
pub(super) struct Stays<'a> {
    pub(super) what: &'a Former,
    pub(super) why: client::Error,
}

impl Stays<'_> {
    pub(super) fn words(&self) -> String {
        format!("{}: {}", self.what.words(), self.why.words())
    }
}

/// Takes away what was ours before, and names what is refused. Without anybody who could do it all of it stays.
async fn clean_up_former(former: &[Former], client: Option<&Client>, left: &mut Left) -> Result<(), Trouble> {
    let Some(client) = client else {
        left.items.extend(former.iter().map(|it| format!("{}: delete it in Coder", it.words())));
        return Ok(());
    };
    for stays in delete_all(former, client).await {
        if !REFUSED.contains(&stays.why.class()) {
            return Err(stays.why.into());
        }
        left.items.push(stays.words());
    }
    Ok(())
}

/// Takes away what was ours before: tokens, and accounts that another one has taken the place of. Gives those that stay: one
/// of them does not keep the others.
pub(super) async fn delete_all<'a>(former: &'a [Former], client: &Client) -> Vec<Stays<'a>> {
    let mut stay = Vec::new();
    for what in former {
        let Former { user_id, token } = what;
        let done = match token {
            Some(token) => client.delete_token(&user_id.to_string(), token).await,
            None => client.delete_user(*user_id).await,
        };
        stay.extend(gone(done).err().map(|why| Stays { what, why }));
    }
    stay
}

/// What is gone already is what was wanted.
fn gone(done: Result<(), client::Error>) -> Result<(), client::Error> {
    match done {
        Err(error) if error.class() == Class::Missing && !error.route_missing() => Ok(()),
        done => done,
    }
}
