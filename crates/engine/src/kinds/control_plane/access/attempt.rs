//! One attempt to acquire a token: reads what the decision needs, and carries out what was decided, all but the Job.

use api::Reason;
use client::{
    Class, Client,
    users::{CreateFirstUser, CreateUser, User},
};
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use uuid::Uuid;

use super::{
    account_tokens::AccountTokens,
    borrowed::{BorrowedSession, OWNER, refused},
    cleanup::delete_all,
    ladder::{
        self, AccountState, AdminJob, BorrowedRights, LEGACY_ACCOUNT, Observed, Rung, Standing, TokenHeld,
        recognise,
    },
    sources::{FirstUser, FromSecret, Job, Ladder},
    supplied_account::{Granted, with},
    tokens::{self, TokenSituation},
};
use crate::{
    kinds::control_plane::{
        account::{email, full_name, new_marker, new_password},
        token_record::{Former, OwnAccount, TokenRecord, id_of},
        token_secret::TokenSecret,
    },
    pipeline::outcome::{Blocked, Trouble},
};

/// The feature without which there are no accounts without a password.
const SERVICE_ACCOUNTS: &str = "service_accounts";
/// How soon it is tried again to take away what could not go.
const AGAIN: SignedDuration = SignedDuration::from_hours(1);
/// More than the ladder has rungs.
const MOST_STEPS: usize = 12;

/// How far we came.
#[derive(Debug)]
pub enum AccessOutcome {
    Granted(Box<Granted>),
    /// Run the Job with these; its password is the caller's to make and to keep until the Job is done.
    RunAdminJob {
        username: String,
        email: String,
    },
    Wait(Blocked),
    /// There is no account, and none may be created.
    NeedsAccount,
}

impl Ladder<'_> {
    /// Acquires a token. `current` and `record` are what the token Secret holds.
    pub async fn acquire(
        &self,
        current: Option<&SecretString>,
        record: &mut TokenRecord,
        secret: &TokenSecret<'_>,
    ) -> Result<AccessOutcome, Trouble> {
        // What belongs to another deployment is not shown to this one. Without a record it may be a token of coder-k8s.
        let is_elsewhere = record.deployment_id.is_some_and(|it| it != self.deployment);
        if is_elsewhere {
            *record = TokenRecord::default();
        }
        record.deployment_id = Some(self.deployment);
        let current = current.filter(|_| !is_elsewhere);
        let mut attempt = Attempt { ladder: self, record, secret, current, borrowed: Vec::new() };
        let outcome = attempt.acquire().await;
        for borrowed in attempt.borrowed {
            borrowed.close().await;
        }
        outcome
    }
}

/// The state of one attempt.
struct Attempt<'a> {
    ladder: &'a Ladder<'a>,
    record: &'a mut TokenRecord,
    secret: &'a TokenSecret<'a>,
    current: Option<&'a SecretString>,
    /// The last one is in use.
    borrowed: Vec<BorrowedSession>,
}

impl Attempt<'_> {
    async fn acquire(&mut self) -> Result<AccessOutcome, Trouble> {
        let (mut observed, user) = self.observe().await?;
        if let Some(user) = user.as_ref().filter(|_| observed.held == TokenHeld::Others) {
            self.note_legacy(user);
        }
        for _ in 0..MOST_STEPS {
            match ladder::next(&observed) {
                Rung::Use => return self.keep(user).await,
                Rung::Wait(waiting) => return Ok(AccessOutcome::Wait(waiting)),
                Rung::CreateFirstUser | Rung::CreateAccount(_) | Rung::RunAdminJob
                    if !self.ladder.may_create =>
                {
                    return Ok(AccessOutcome::NeedsAccount);
                }
                // An owner that cannot sign in is not created.
                Rung::RunAdminJob if !self.ladder.client.takes_passwords().await? => {
                    observed.job = AdminJob::NoPasswords;
                }
                Rung::RunAdminJob => {
                    let username = ladder::username_after(self.ladder.control_plane_uid, self.record);
                    let email = email(&username);
                    return Ok(AccessOutcome::RunAdminJob { username, email });
                }
                Rung::EnterAfterJob => match self.enter_after_job().await? {
                    Ok(outcome) => return Ok(outcome),
                    Err(words) => observed.job = AdminJob::Failed(words),
                },
                Rung::CreateFirstUser => match self.create_first_user().await {
                    Ok(()) => observed.has_users = true,
                    Err(error) if error.class() == Class::Invalid => {
                        observed.first_user = Standing::Refused(error.words());
                    }
                    Err(error) => return Err(error.into()),
                },
                Rung::Ask(source) => match self.sign_in(source).await? {
                    Ok(state) => observed.account = Some(state),
                    Err(words) => *standing(&mut observed, source) = Standing::Refused(words),
                },
                Rung::CreateAccount(source) => match self.create_account().await {
                    Ok(id) => observed.account = Some(AccountState::Ours(id)),
                    // Accounts with a password may not be made through the API, and are by the Job.
                    Err(Trouble::Remote(error)) if error.class() == Class::Forbidden => {
                        *standing(&mut observed, source) = Standing::Refused(error.words());
                        observed.account = None;
                    }
                    Err(trouble) => return Err(trouble),
                },
                Rung::MintFor(_, id) => return self.mint_for(id).await,
            }
        }
        Err(waiting(api::Reason::Progressing, "the operator's account is not ready yet; retrying").into())
    }

    async fn observe(&self) -> Result<(Observed, Option<User>), Trouble> {
        let Ladder { client, first_user, admin, job, may_be_first, .. } = self.ladder;
        let has_users = client.has_users().await?;
        let (mut held, mut held_token, mut user) = (TokenHeld::None, Standing::NotDeclared, None);
        // Also where there is no user: Coder does not count the account of coder-k8s as one.
        if let Some(token) = self.current {
            match with(client, token)?.current_user().await {
                Ok(found) => {
                    let is_ours = recognise(Some(&found), self.record) == AccountState::Ours(found.id)
                        // The holder of a token of that account has made it, or has the token from whoever has.
                        || self.record.account.is_none() && found.username == self.ladder.username(self.record);
                    held = if is_ours { TokenHeld::Ours } else { TokenHeld::Others };
                    held_token = if is_ours { Standing::NotDeclared } else { Standing::Available };
                    user = Some(found);
                }
                Err(error) if error.class() == Class::SignedOut => {}
                Err(error) => return Err(error.into()),
            }
        }
        let job = match job {
            Job::NotPossible => AdminJob::NotPossible,
            Job::NotOurs(words) => AdminJob::NotOurs(words.clone()),
            Job::NotStarted => AdminJob::NotStarted,
            Job::Running(words) => AdminJob::Running(words.clone()),
            Job::Failed(..) | Job::Done(_) => AdminJob::Ended,
        };
        let (first_user, admin) = (first_user.standing(), admin.standing());
        let may_be_first = *may_be_first;
        let observed =
            Observed { held, has_users, may_be_first, first_user, admin, held_token, account: None, job };
        Ok((observed, user))
    }

    /// The token is ours and good: renew it when that is due, and take away what it has replaced.
    async fn keep(&mut self, user: Option<User>) -> Result<AccessOutcome, Trouble> {
        let (Some(current), Some(user)) = (self.current, user) else {
            return Err(waiting(api::Reason::Progressing, "there is no token yet").into());
        };
        let client = self.ladder.client;
        let account_tokens = AccountTokens { client: with(client, current)?, user: user.id };
        if self.record.account.is_none() {
            // The record was lost. Whoever holds a token of the account of our name is the one who made it.
            let username = user.username.clone();
            let account = OwnAccount { username, marker: String::new(), id: Some(user.id) };
            (self.record.account, self.record.user_id) = (Some(account), Some(user.id));
            self.secret.store(self.record, None).await?;
        }
        let stays = self.delete_former(&account_tokens).await?;
        let mut granted = self.grant(&account_tokens, id_of(current), user).await?;
        if !stays.is_empty() {
            granted.next = granted.next.min(self.ladder.now.checked_add(AGAIN).unwrap_or(Timestamp::MAX));
            granted.stays = stays;
        }
        Ok(AccessOutcome::Granted(Box::new(granted)))
    }

    async fn grant(
        &mut self,
        account_tokens: &AccountTokens,
        held: Option<&str>,
        user: User,
    ) -> Result<Granted, Trouble> {
        let Ladder { client, now, .. } = *self.ladder;
        let (names, listed) = (self.ladder.names(), account_tokens.list().await?);
        let situation = TokenSituation { names: &names, record: self.record, held, listed: &listed, now };
        let plan = tokens::plan(&situation);
        let minted = account_tokens.carry_out(&plan, self.record, self.secret, now).await?;
        let (token, user) = match (minted, self.current) {
            (Some(token), _) => {
                let user = with(client, &token)?.current_user().await?;
                (token, user)
            }
            (None, Some(current)) => (current.clone(), user),
            (None, None) => return Err(waiting(api::Reason::Progressing, "there is no token yet").into()),
        };
        Ok(Granted { token, user, next: plan.next, stays: Vec::new() })
    }

    /// Gives what cannot go, as an account that owns workspaces. Whatever the reason, our own token does not wait for it.
    async fn delete_former(&mut self, account_tokens: &AccountTokens) -> Result<Vec<String>, Trouble> {
        let (former, words): (Vec<_>, Vec<_>) = delete_all(&self.record.former, &account_tokens.client)
            .await
            .into_iter()
            .map(|it| (it.what.clone(), it.words()))
            .unzip();
        if former != self.record.former {
            self.record.former = former;
            self.secret.store(self.record, None).await?;
        }
        Ok(words)
    }

    async fn create_first_user(&self) -> Result<(), client::Error> {
        let FromSecret::There(FirstUser { email, username, password }) = self.ladder.first_user else {
            return Ok(());
        };
        let wanted =
            CreateFirstUser { email: email.clone(), username: username.clone(), password: password.clone() };
        match self.ladder.client.create_first_user(&wanted).await {
            // Somebody was faster; whether the password is theirs shows when it is used.
            Err(error) if error.class() == Class::Conflict => Ok(()),
            done => done,
        }
    }

    /// Signs in with borrowed rights and looks for our account; the inner error is that they are not taken.
    async fn sign_in(&mut self, source: BorrowedRights) -> Result<Result<AccountState, String>, Trouble> {
        let borrowed = match self.ladder.borrow(source, self.current).await? {
            Ok(borrowed) => borrowed,
            Err(words) => return Ok(Err(words)),
        };
        let client = borrowed.client.clone();
        self.borrowed.push(borrowed);
        let found = match self.record.account.as_ref().and_then(|it| it.id) {
            Some(id) => client.living_user(id).await?,
            None => None,
        };
        let found = match found {
            Some(found) => Some(found),
            None => client.user_named(&self.ladder.username(self.record)).await?,
        };
        Ok(Ok(recognise(found.as_ref(), self.record)))
    }

    fn borrowed(&self) -> Result<Client, Trouble> {
        let client = self.borrowed.last().map(|it| it.client.clone());
        client.ok_or_else(|| waiting(api::Reason::Progressing, "there is no admin session").into())
    }

    /// Makes our account. Its name and its marker are written down first, so that it is known after a crash. It is an owner
    /// from the beginning: nothing that exists is ever promoted.
    async fn create_account(&mut self) -> Result<Uuid, Trouble> {
        let client = self.borrowed()?;
        let username = self.ladder.username(self.record);
        let marker = new_marker(&self.ladder.random);
        self.record.account =
            Some(OwnAccount { username: username.clone(), marker: marker.clone(), id: None });
        self.secret.store(self.record, None).await?;
        let entitlements = client.entitlements().await;
        let headless = entitlements.is_ok_and(|it| it.is_enabled(SERVICE_ACCOUNTS));
        let mut wanted = CreateUser {
            username: username.clone(),
            name: full_name(&marker),
            service_account: headless,
            // The default organization, whatever its id.
            organization_ids: vec![Uuid::nil()],
            roles: vec![OWNER.to_owned()],
            ..CreateUser::default()
        };
        if headless {
            wanted.login_type = Some("none".to_owned());
        } else {
            wanted.login_type = Some("password".to_owned());
            wanted.email = email(&username);
            // Nobody learns it: the account lives by its tokens.
            wanted.password = Some(new_password(&self.ladder.random));
        }
        let id = client.create_user(&wanted).await?.id;
        self.record.account = Some(OwnAccount { username, marker, id: Some(id) });
        self.secret.store(self.record, None).await?;
        Ok(id)
    }

    /// A token of coder-k8s goes once there is one of ours, whichever way that was come by.
    fn note_legacy(&mut self, user: &User) {
        let token = self.current.and_then(id_of).filter(|_| user.username == LEGACY_ACCOUNT);
        let former = token.map(|token| Former { user_id: user.id, token: Some(token.to_owned()) });
        let former = former.filter(|it| !self.record.former.contains(it));
        self.record.former.extend(former);
    }

    /// Mints a token for our account with borrowed rights.
    async fn mint_for(&mut self, id: Uuid) -> Result<AccessOutcome, Trouble> {
        let client = self.borrowed()?;
        let account_tokens = AccountTokens { client: client.clone(), user: id };
        let owner = client.current_user().await?;
        if let Some(account) = &mut self.record.account {
            account.id = Some(id);
        }
        self.grant(&account_tokens, None, owner).await.map(|it| AccessOutcome::Granted(Box::new(it)))
    }

    /// The Job made an account with a password that we know: it mints its own token, and the password is used no more. Who
    /// has a password that only we know was made by us, also by a Job that failed. The inner error is why nobody was let in.
    async fn enter_after_job(&mut self) -> Result<Result<AccessOutcome, String>, Trouble> {
        let (Job::Done(account) | Job::Failed(_, account)) = self.ladder.job else {
            return Err(waiting(api::Reason::Progressing, "the Job has not finished").into());
        };
        let borrowed = match BorrowedSession::by_password(
            self.ladder.client,
            &account.email,
            &account.password,
        )
        .await
        {
            Ok(borrowed) => borrowed,
            Err(trouble) => {
                let refusal = refused(trouble)?;
                return Ok(Err(match self.ladder.job {
                    Job::Failed(words, _) => words.clone(),
                    _ => format!(
                        "the Job has finished, and Coder rejects its account ({refusal}): the Job used another database \
                         than Coder, or password login is disabled"
                    ),
                }));
            }
        };
        let client = borrowed.client.clone();
        self.borrowed.push(borrowed);
        let user = client.current_user().await?;
        let account_tokens = AccountTokens { client, user: user.id };
        let former = self.record.account.as_ref().and_then(|it| it.id).filter(|it| *it != user.id);
        self.record.former.extend(former.map(|user_id| Former { user_id, token: None }));
        let username = user.username.clone();
        self.record.account = Some(OwnAccount { username, marker: String::new(), id: Some(user.id) });
        self.grant(&account_tokens, None, user).await.map(|it| Ok(AccessOutcome::Granted(Box::new(it))))
    }
}

fn standing(observed: &mut Observed, source: BorrowedRights) -> &mut Standing {
    match source {
        BorrowedRights::HeldToken => &mut observed.held_token,
        BorrowedRights::Admin => &mut observed.admin,
        BorrowedRights::FirstUser => &mut observed.first_user,
    }
}

fn waiting(reason: Reason, message: &str) -> Blocked {
    Blocked { reason, message: message.to_owned() }
}
