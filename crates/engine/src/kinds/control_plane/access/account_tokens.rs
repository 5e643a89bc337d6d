//! The tokens of one account: listed, minted and revoked by the account itself, or by an owner for it.

use client::{
    Class, Client, Error,
    users::{CreateToken, Token},
};
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use uuid::Uuid;

use super::tokens::{LIFETIME, TokenPlan, TokenStep};
use crate::{
    kinds::control_plane::{
        token_record::{TokenKept, TokenRecord, id_of},
        token_secret::TokenSecret,
    },
    pipeline::outcome::Trouble,
};

/// A client that may manage the tokens of an account.
#[derive(Debug, Clone)]
pub struct AccountTokens {
    pub client: Client,
    pub user: Uuid,
}

impl AccountTokens {
    /// All tokens of the account, expired ones included.
    pub async fn list(&self) -> Result<Vec<Token>, Error> {
        self.client.list_tokens(&self.user.to_string()).await
    }

    /// Deletes a token. A token that is gone already is no error.
    pub async fn revoke(&self, id: &str) -> Result<(), Error> {
        match self.client.delete_token(&self.user.to_string(), id).await {
            Err(error) if error.class() == Class::Missing && !error.route_missing() => Ok(()),
            done => done,
        }
    }

    /// Carries out the steps of a plan. Returns the token that was minted, once it is in the Secret. `None` where none was.
    pub async fn carry_out(
        &self,
        plan: &TokenPlan,
        record: &mut TokenRecord,
        secret: &TokenSecret<'_>,
        now: Timestamp,
    ) -> Result<Option<SecretString>, Trouble> {
        let mut minted = None;
        for step in &plan.steps {
            match step {
                TokenStep::Intend { name } => {
                    record.minting = Some(name.clone());
                    secret.store(record, None).await?;
                }
                TokenStep::Revoke { id, name: _ } => self.revoke(id).await?,
                TokenStep::Mint { name } => minted = Some(self.mint(name, record, secret, now).await?),
            }
        }
        Ok(minted)
    }

    async fn mint(
        &self,
        name: &str,
        record: &mut TokenRecord,
        secret: &TokenSecret<'_>,
        now: Timestamp,
    ) -> Result<SecretString, Trouble> {
        let user = self.user.to_string();
        let lifetime = self.client.longest_token_lifetime(&user).await?.min(LIFETIME);
        let wanted =
            CreateToken { token_name: Some(name.to_owned()), lifetime: Some(lifetime), scopes: None };
        let token = self.client.create_token(&user, &wanted).await?;
        let life = SignedDuration::try_from(lifetime).unwrap_or(SignedDuration::MAX);
        let kept = TokenKept {
            name: name.to_owned(),
            minted_at: now,
            expires_at: now.checked_add(life).unwrap_or(Timestamp::MAX),
        };
        let written =
            TokenRecord { user_id: Some(self.user), token: Some(kept), minting: None, ..record.clone() };
        if let Err(blocked) = secret.store(&written, Some(&token)).await {
            // Nobody holds it now. If this fails too, the record still names it.
            if let Some(id) = id_of(&token) {
                self.revoke(id).await.ok();
            }
            return Err(blocked.into());
        }
        *record = written;
        Ok(token)
    }
}
