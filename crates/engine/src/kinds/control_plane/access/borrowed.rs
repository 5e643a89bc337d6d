//! Borrowed admin sessions: opened with supplied credentials or a token of another account, used once, and closed.

use client::{Class, Client, users::ME};
use secrecy::SecretString;

use super::{
    ladder::BorrowedRights,
    sources::{AdminCredentials, FromSecret, Ladder},
    supplied_account::with,
};
use crate::{kinds::control_plane::token_record::id_of, pipeline::outcome::Trouble};

/// The role that creating an account like ours takes.
pub(super) const OWNER: &str = "owner";

/// A session of another account.
pub(super) struct BorrowedSession {
    pub(super) client: Client,
    /// To be closed afterwards.
    session: Option<String>,
}

impl BorrowedSession {
    pub(super) async fn by_password(
        client: &Client,
        email: &str,
        password: &SecretString,
    ) -> Result<Self, Trouble> {
        let token = client.login(email, password).await?;
        Ok(Self { client: with(client, &token)?, session: id_of(&token).map(str::to_owned) })
    }

    /// Closes the session, if one was opened. It expires by itself where this fails.
    pub(super) async fn close(self) {
        if let Some(session) = self.session {
            self.client.delete_token(ME, &session).await.ok();
        }
    }
}

impl Ladder<'_> {
    /// Opens a borrowed admin session. The inner error is why the credentials do not do.
    pub(super) async fn borrow(
        &self,
        source: BorrowedRights,
        current: Option<&SecretString>,
    ) -> Result<Result<BorrowedSession, String>, Trouble> {
        let Ladder { client, first_user, admin, .. } = *self;
        let token = match (source, admin) {
            (BorrowedRights::HeldToken, _) => current,
            (BorrowedRights::Admin, FromSecret::There(AdminCredentials::Token(token))) => Some(token),
            _ => None,
        };
        let account = match (source, first_user, admin) {
            (BorrowedRights::FirstUser, FromSecret::There(it), _) => Some((&it.email, &it.password)),
            (BorrowedRights::Admin, _, FromSecret::There(AdminCredentials::Password(it))) => {
                Some((&it.email, &it.password))
            }
            _ => None,
        };
        let borrowed = match (token, account) {
            (Some(token), _) => Ok(BorrowedSession { client: with(client, token)?, session: None }),
            (None, Some((email, password))) => BorrowedSession::by_password(client, email, password).await,
            (None, None) => return Ok(Err("there are no credentials".to_owned())),
        };
        let borrowed = match borrowed {
            Err(trouble) => return refused(trouble).map(Err),
            Ok(borrowed) => borrowed,
        };
        match borrowed.client.current_user().await {
            Ok(me) if me.has_role(OWNER) => Ok(Ok(borrowed)),
            Ok(me) => {
                borrowed.close().await;
                Ok(Err(format!("the account {} does not have the role owner", me.username)))
            }
            Err(error) => {
                borrowed.close().await;
                refused(error.into()).map(Err)
            }
        }
    }
}

/// Whether Coder said no to the credentials, and its words; anything else is trouble.
pub(super) fn refused(trouble: Trouble) -> Result<String, Trouble> {
    match trouble {
        Trouble::Remote(error)
            if matches!(error.class(), Class::SignedOut | Class::Forbidden | Class::Invalid) =>
        {
            Ok(error.words())
        }
        trouble => Err(trouble),
    }
}
