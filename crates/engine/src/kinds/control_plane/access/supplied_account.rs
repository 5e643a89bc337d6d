//! An account of a deployment that runs elsewhere, whose e-mail and password a Secret holds: a token is minted with them and
//! renewed, so that the password is sent seldom.

use client::{
    Class, Client,
    users::{ME, Token, User},
};
use jiff::Timestamp;
use secrecy::SecretString;
use uuid::Uuid;

use super::{
    account_tokens::AccountTokens,
    tokens::{self, TokenNames, TokenSituation},
};
use crate::{
    kinds::control_plane::{
        account::Account,
        token_record::{TokenRecord, id_of},
        token_secret::TokenSecret,
    },
    pipeline::outcome::{Blocked, Trouble},
};

/// A supplied account, and what its token is acquired with.
#[derive(Debug)]
pub struct SuppliedAccount<'a> {
    /// A client of the deployment without a token.
    pub client: &'a Client,
    /// Which deployment answers there.
    pub deployment: Uuid,
    pub account: &'a Account,
    pub names: &'a TokenNames,
    pub now: Timestamp,
}

/// Access, proved by coderd having taken it.
#[derive(Debug, Clone)]
pub struct Granted {
    pub token: SecretString,
    pub user: User,
    /// When the next reconcile of the token is due.
    pub next: Timestamp,
    /// What was ours before and cannot go now, with what coderd says. It is tried again.
    pub stays: Vec<String>,
}

/// Signed in, with the token that we keep or with the password.
struct SignedIn {
    account_tokens: AccountTokens,
    user: User,
    held: Option<String>,
    listed: Vec<Token>,
    /// A session that was opened for this and is closed after it.
    session: Option<String>,
    /// A token of another account that was used before.
    foreign: Option<(Client, String)>,
}

impl SuppliedAccount<'_> {
    /// Keeps a token that is good and mints one where that is due. `current` and `record` are what the token Secret holds.
    pub async fn keep(
        &self,
        current: Option<&SecretString>,
        record: &mut TokenRecord,
        secret: &TokenSecret<'_>,
    ) -> Result<Granted, Trouble> {
        let signed_in = self.sign_in(current, record).await?;
        let done = self.keep_signed_in(&signed_in, current, record, secret).await;
        signed_in.leave(done.is_ok()).await;
        done
    }

    /// Revokes every token that we minted. The account is not ours and stays.
    pub async fn revoke_all(
        &self,
        current: Option<&SecretString>,
        record: &TokenRecord,
    ) -> Result<(), Trouble> {
        let signed_in = self.sign_in(current, record).await?;
        let SignedIn { account_tokens, user: _, held, listed, .. } = &signed_in;
        let held = held.as_deref();
        let steps = tokens::plan_revocation(&TokenSituation {
            names: self.names,
            record,
            held,
            listed,
            now: self.now,
        });
        let mut done = Ok(());
        for step in steps {
            if let tokens::TokenStep::Revoke { id, name: _ } = step {
                done = done.and(account_tokens.revoke(&id).await);
            }
        }
        signed_in.leave(true).await;
        Ok(done?)
    }

    async fn keep_signed_in(
        &self,
        signed_in: &SignedIn,
        current: Option<&SecretString>,
        record: &mut TokenRecord,
        secret: &TokenSecret<'_>,
    ) -> Result<Granted, Trouble> {
        let SignedIn { account_tokens, user, held, listed, .. } = signed_in;
        let held = held.as_deref();
        let plan = tokens::plan(&TokenSituation { names: self.names, record, held, listed, now: self.now });
        record.deployment_id = Some(self.deployment);
        let minted = account_tokens.carry_out(&plan, record, secret, self.now).await?;
        let granted = |token: &SecretString, user: &User| Granted {
            token: token.clone(),
            user: user.clone(),
            stays: Vec::new(),
            next: plan.next,
        };
        match (minted, current) {
            (Some(token), _) => Ok(granted(&token, &with(self.client, &token)?.current_user().await?)),
            (None, Some(token)) => Ok(granted(token, user)),
            (None, None) => Err(Trouble::Blocked(Blocked {
                reason: api::Reason::Progressing,
                message: "there is no token yet".to_owned(),
            })),
        }
    }

    /// With the token that is kept as long as it is good; with the password otherwise.
    async fn sign_in(
        &self,
        current: Option<&SecretString>,
        record: &TokenRecord,
    ) -> Result<SignedIn, Trouble> {
        let mut foreign = None;
        // It was minted on one deployment and is shown to no other.
        let current = current.filter(|_| record.deployment_id == Some(self.deployment));
        if let Some((token, id)) = current.and_then(|it| Some((it, id_of(it)?))) {
            let client = with(self.client, token)?;
            match client.current_user().await {
                Ok(user) if user.email.eq_ignore_ascii_case(&self.account.email) => {
                    let account_tokens = AccountTokens { client, user: user.id };
                    let listed = account_tokens.list().await?;
                    let held = Some(id.to_owned());
                    return Ok(SignedIn { account_tokens, user, held, listed, session: None, foreign: None });
                }
                Ok(_) => foreign = Some((client, id.to_owned())),
                Err(error) if error.class() == Class::SignedOut => {}
                Err(error) => return Err(error.into()),
            }
        }
        let session = self.login().await?;
        let client = with(self.client, &session)?;
        let session = id_of(&session).map(str::to_owned);
        let looked = async {
            let user = client.current_user().await?;
            let account_tokens = AccountTokens { client: client.clone(), user: user.id };
            let listed = account_tokens.list().await?;
            Ok::<_, Trouble>((user, account_tokens, listed))
        };
        match looked.await {
            Ok((user, account_tokens, listed)) => {
                Ok(SignedIn { account_tokens, user, held: None, listed, session, foreign })
            }
            Err(trouble) => {
                // Each try would leave another one.
                if let Some(session) = session {
                    client.delete_token(ME, &session).await.ok();
                }
                Err(trouble)
            }
        }
    }

    async fn login(&self) -> Result<SecretString, Trouble> {
        let Account { email, password } = self.account;
        self.client.login(email, password).await.map_err(|error| match error.class() {
            Class::SignedOut | Class::Forbidden => Trouble::Blocked(Blocked {
                reason: api::Reason::Unauthorized,
                message: format!(
                    "Coder refuses the e-mail and the password: correct them in the Secret ({})",
                    error.words()
                ),
            }),
            _ => error.into(),
        })
    }
}

impl SignedIn {
    /// Closes the session; a token of an account that is no longer named goes once another one has taken its place. What
    /// is left here expires by itself.
    async fn leave(self, is_replaced: bool) {
        if let Some((client, id)) = self.foreign.filter(|_| is_replaced) {
            client.delete_token(ME, &id).await.ok();
        }
        if let Some(session) = self.session {
            self.account_tokens.client.delete_token(ME, &session).await.ok();
        }
    }
}

/// The same deployment with that token.
pub(super) fn with(client: &Client, token: &SecretString) -> Result<Client, Trouble> {
    client.with_token(token.clone()).map_err(|error| {
        Trouble::Blocked(Blocked { reason: api::Reason::Unauthorized, message: error.to_string() })
    })
}
