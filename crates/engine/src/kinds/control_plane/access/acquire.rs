//! Acquires the operator's own token for a control plane: the one that is known while it is good, otherwise the one that is kept
//! or minted now.

use api::{CoderControlPlane, Mode, Reason};
use jiff::{SignedDuration, Timestamp};
use kube::{Resource as _, ResourceExt as _};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::{
    AccessOutcome, Granted, Ladder, SuppliedAccount, TokenNames, admin_job::AdminJob,
    supplied_credentials::SuppliedCredentials,
};
use crate::{
    coder::{OwnToken, Pause, TokenMemory, endpoint::Origin},
    kinds::control_plane::{
        account::Account,
        facts::PlaneContext,
        identity::{ReachedDeployment, check_identity, recorded_deployment},
        token_record::{OwnAccount, TokenRecord},
        token_secret::{Contents, TokenSecret},
    },
    pipeline::outcome::{Blocked, Trouble},
    ports::{Cluster, Event},
};

/// How soon a token that could not be minted is tried again.
const RETRY: SignedDuration = SignedDuration::from_secs(30);

/// What tokens are acquired with.
#[derive(Debug, Clone, Copy)]
pub struct AccessContext<'a> {
    pub objects: PlaneContext<'a>,
    pub tokens: &'a TokenMemory,
}

/// What may be done to have access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessRights {
    /// Whether an account may be created.
    pub create: bool,
    /// Whether the account of a control plane whose access is disabled may be deleted.
    pub remove: bool,
}

impl AccessRights {
    /// What the policy of a control plane allows without a plan.
    pub fn of(plane: &CoderControlPlane) -> Self {
        let is_automatic = plane.spec.changes.is_automatic();
        Self { create: is_automatic, remove: is_automatic }
    }
}

/// A token, and what did not work and is tried again.
#[derive(Debug)]
pub struct Acquired {
    pub token: SecretString,
    pub warning: Option<Blocked>,
}

impl Acquired {
    fn token(token: SecretString) -> Self {
        Self { token, warning: None }
    }
}

/// One acquisition for one control plane.
struct Acquisition<'a> {
    plane: &'a CoderControlPlane,
    name: (String, String),
    context: &'a AccessContext<'a>,
    now: Timestamp,
}

/// The token of an account whose e-mail and password a Secret holds. The client has no token.
pub async fn account_token(
    plane: &CoderControlPlane,
    reached: ReachedDeployment<'_>,
    account: &Account,
    context: &AccessContext<'_>,
) -> Result<Acquired, Blocked> {
    let ReachedDeployment { client, deployment } = reached;
    let acquisition = Acquisition::of(plane, context);
    let now = acquisition.now;
    let from = account_origin(reached, account);
    let (secret, contents) = TokenSecret::open(plane, context.objects.cluster).await?;
    let Contents { token: kept, mut record } = of_account(contents, plane, reached)?;
    if let Some(known) = acquisition.good(kept.as_ref(), &record, &from) {
        return Ok(Acquired::token(known.token));
    }
    if let Some(why) = acquisition.paused(&record) {
        return acquisition.still_good(kept.as_ref(), &from, why);
    }
    let names = TokenNames::of(&plane.uid().unwrap_or_default());
    let supplied = SuppliedAccount { client, deployment, account, names: &names, now };
    match supplied.keep(kept.as_ref(), &mut record, &secret).await.map_err(Trouble::into_blocked) {
        Ok(granted) => {
            let minted = OwnToken { from, token: granted.token.clone(), renewed_at: granted.next };
            context.tokens.set_minted(&acquisition.name, Some(minted));
            Ok(Acquired::token(granted.token))
        }
        Err(why) => {
            acquisition.pause(&record, &why);
            acquisition.still_good(kept.as_ref(), &from, why)
        }
    }
}

/// The token of the operator's own account in a managed control plane. The client has no token.
pub async fn own_token(
    plane: &CoderControlPlane,
    reached: ReachedDeployment<'_>,
    rights: AccessRights,
    context: &AccessContext<'_>,
) -> Result<Acquired, Blocked> {
    let ReachedDeployment { client, deployment } = reached;
    let acquisition = Acquisition::of(plane, context);
    let (cluster, now) = (context.objects.cluster, acquisition.now);
    let (secret, contents) = TokenSecret::open(plane, cluster).await?;
    let Contents { token: kept, mut record } = of_managed(contents, plane, deployment)?;
    let is_disabled = is_disabled(plane) && (rights.remove || kept.is_none());
    let from = deployment_origin(reached);
    if let Some(known) = acquisition.good(kept.as_ref(), &record, &from).filter(|_| !is_disabled) {
        return Ok(Acquired::token(known.token));
    }
    if let Some(why) = acquisition.paused(&record).filter(|_| !is_disabled) {
        return acquisition.still_good(kept.as_ref(), &from, why);
    }
    if is_disabled && !rights.remove {
        return Err(disabled());
    }
    let read = async {
        let supplied = SuppliedCredentials::of(plane, cluster).await?;
        Ok((supplied, AdminJob::find(plane, &context.objects).await?))
    };
    let (supplied, job) = match read.await {
        Ok(read) => read,
        Err(why) if is_disabled => return Err(why),
        Err(why) => return acquisition.still_good(kept.as_ref(), &from, why),
    };
    if kept.is_some() && record.deployment_id.is_none() {
        record.deployment_id = Some(deployment);
        secret.adopt(&record).await?;
    }
    let uid = plane.uid().unwrap_or_default();
    if record == TokenRecord::default() {
        record = remembered(plane, &uid, deployment);
    }
    if !is_disabled && kept.is_none() && record.account.is_none() && !rights.create {
        let is_observed = plane.spec.changes.policy().mode() == Mode::Observe;
        let reason = if is_observed { Reason::Observed } else { Reason::ApprovalRequired };
        let message =
            "the operator has no account in the deployment, and creates one only by a plan".to_owned();
        return Err(Blocked { reason, message });
    }
    let ladder = Ladder {
        client,
        deployment,
        control_plane_uid: &uid,
        first_user: &supplied.first_user,
        admin: &supplied.admin,
        job: job.standing(),
        // A manifest of coder-k8s names no first user and becomes ready all the same. Who wants a person to be the first
        // one names it.
        may_be_first: true,
        may_create: rights.create,
        now,
        random: cluster.random(),
    };
    if is_disabled {
        return Err(acquisition.give_up(&ladder, (kept.as_ref(), &record), &job, secret).await?);
    }
    match ladder.acquire(kept.as_ref(), &mut record, &secret).await.map_err(Trouble::into_blocked) {
        Ok(AccessOutcome::Granted(granted)) => Ok(acquisition.enter(*granted, from, &job).await),
        Ok(AccessOutcome::Wait(waiting)) => Err(waiting),
        Ok(AccessOutcome::NeedsAccount) => {
            context.tokens.set_needs_account(&acquisition.name);
            let message = "the operator's account is gone: the next reconcile plans another one".to_owned();
            Err(Blocked { reason: Reason::Progressing, message })
        }
        Ok(AccessOutcome::RunAdminJob { username, email }) => Err(job.run(&username, &email).await),
        Err(why) => {
            acquisition.pause(&record, &why);
            acquisition.still_good(kept.as_ref(), &from, why)
        }
    }
}

/// How the operator's own access to a managed control plane stands, by the token Secret and by what this process remembers.
#[derive(Debug)]
pub(super) struct AccessStanding {
    /// The token that is in use. `None` until one was acquired by this process.
    pub(super) token: Option<SecretString>,
    /// What is to be done. `None` where the token is good.
    pub(super) due: Option<Due>,
}

/// What is to be done about the operator's access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// There is no account of the operator: one has to be created. `former` is the one that is on record and gone.
    Account { former: Option<Uuid> },
    /// The token of the operator's account is checked, renewed or replaced.
    Token,
    /// Access is disabled, and the account and its tokens have to go.
    Removal,
    /// Access is disabled, and no account and no token is on record.
    Disabled,
}

/// Finds out how the operator's access stands. Nothing is written, and coderd is not asked.
pub(super) async fn standing(
    plane: &CoderControlPlane,
    reached: ReachedDeployment<'_>,
    context: &AccessContext<'_>,
) -> Result<AccessStanding, Blocked> {
    let acquisition = Acquisition::of(plane, context);
    let (contents, is_deleted) = Contents::read(plane, context.objects.cluster).await?;
    let Contents { token: kept, record } = of_managed(contents, plane, reached.deployment)?;
    let is_remembered = || {
        let uid = plane.uid().unwrap_or_default();
        remembered(plane, &uid, reached.deployment).account.is_some()
    };
    if is_disabled(plane) {
        let is_held = kept.is_some() || record != TokenRecord::default() || is_remembered();
        return Ok(AccessStanding {
            token: None,
            due: Some(if is_held { Due::Removal } else { Due::Disabled }),
        });
    }
    let from = deployment_origin(reached);
    let is_good = !is_deleted && acquisition.good(kept.as_ref(), &record, &from).is_some();
    let known = acquisition.known(kept.as_ref()).filter(|it| it.from == from);
    let is_recorded = record.account.is_some() && record.deployment_id == Some(reached.deployment);
    let is_gone = context.tokens.needs_account(&acquisition.name);
    let is_on_record = || !is_gone && (is_recorded || is_remembered());
    let due = match is_good {
        true => None,
        false if is_on_record() => Some(Due::Token),
        false => Some(Due::Account { former: record.account.and_then(|it| it.id) }),
    };
    Ok(AccessStanding { token: known.map(|it| it.token), due })
}

/// The same for an account whose e-mail and password a Secret holds. It is neither created nor deleted: only its token is kept.
pub(super) async fn account_standing(
    plane: &CoderControlPlane,
    reached: ReachedDeployment<'_>,
    account: &Account,
    context: &AccessContext<'_>,
) -> Result<AccessStanding, Blocked> {
    let acquisition = Acquisition::of(plane, context);
    let (contents, is_deleted) = Contents::read(plane, context.objects.cluster).await?;
    let Contents { token: kept, record } = of_account(contents, plane, reached)?;
    let from = account_origin(reached, account);
    let is_good = !is_deleted && acquisition.good(kept.as_ref(), &record, &from).is_some();
    let known = acquisition.known(kept.as_ref()).filter(|it| it.from == from);
    Ok(AccessStanding { token: known.map(|it| it.token), due: (!is_good).then_some(Due::Token) })
}

/// What the token of a supplied account is minted with.
fn account_origin(reached: ReachedDeployment<'_>, account: &Account) -> Origin {
    let Account { email, password } = account;
    let password = password.expose_secret().as_bytes();
    deployment_origin(reached).with(email.as_bytes()).with(password)
}

/// What the token Secret holds for a supplied account. Fails where the record names another deployment.
fn of_account(
    contents: Contents,
    plane: &CoderControlPlane,
    reached: ReachedDeployment<'_>,
) -> Result<Contents, Blocked> {
    let Contents { token, mut record } = contents;
    // A token that was minted at another address stays there: whoever answers here may only claim to be that deployment.
    let here = reached.client.url().as_str();
    let token = token.filter(|_| record.is_for(Some(here)));
    record.external_url = Some(here.to_owned());
    // A status may be lost, as by a backup that does not hold it.
    check_identity(plane, record.deployment_id, reached.deployment)?;
    Ok(Contents { token, record })
}

fn is_disabled(plane: &CoderControlPlane) -> bool {
    plane.spec.operator_access.as_ref().is_some_and(api::OperatorAccess::is_disabled)
}

/// Where a token is minted, and by which deployment.
fn deployment_origin(reached: ReachedDeployment<'_>) -> Origin {
    Origin::new(&[reached.client.url().as_str().as_bytes(), reached.deployment.as_bytes()])
}

/// What the token Secret holds for a managed control plane. Fails where the record names another deployment.
fn of_managed(contents: Contents, plane: &CoderControlPlane, deployment: Uuid) -> Result<Contents, Blocked> {
    let Contents { token, mut record } = contents;
    // A token that was minted at another address stays there.
    let token = token.filter(|_| record.is_for(None));
    record.external_url = None;
    // A status may be lost, as by a backup that does not hold it.
    check_identity(plane, record.deployment_id, deployment)?;
    Ok(Contents { token, record })
}

impl<'a> Acquisition<'a> {
    fn of(plane: &'a CoderControlPlane, context: &'a AccessContext<'a>) -> Self {
        let name = (plane.namespace().unwrap_or_default(), plane.name_any());
        Self { plane, name, context, now: context.objects.cluster.now() }
    }

    fn cluster(&self) -> &dyn Cluster {
        self.context.objects.cluster
    }

    /// The token that is remembered, if it is the one that is kept.
    fn known(&self, kept: Option<&SecretString>) -> Option<OwnToken> {
        let minted = self.context.tokens.minted(&self.name)?;
        kept.is_some_and(|it| it.expose_secret() == minted.token.expose_secret()).then_some(minted)
    }

    /// The token that is remembered, if it needs no attention now. One that was to be minted and is not there yet needs some.
    fn good(&self, kept: Option<&SecretString>, record: &TokenRecord, from: &Origin) -> Option<OwnToken> {
        let is_good =
            |it: &OwnToken| record.minting.is_none() && it.from == *from && self.now < it.renewed_at;
        self.known(kept).filter(is_good)
    }

    /// Why a token that was about to be minted could not be, if that is not long ago.
    fn paused(&self, record: &TokenRecord) -> Option<Blocked> {
        let pause = self.context.tokens.pause(&self.name)?;
        (record.minting.as_ref() == Some(&pause.minting) && self.now < pause.until).then_some(pause.why)
    }

    /// Remembers that a token could not be minted after it was recorded that one would be.
    fn pause(&self, record: &TokenRecord, why: &Blocked) {
        let pause = record.minting.as_ref().map(|minting| Pause {
            minting: minting.clone(),
            until: self.now.checked_add(RETRY).unwrap_or(Timestamp::MAX),
            why: why.clone(),
        });
        self.context.tokens.set_pause(&self.name, pause);
    }

    /// A renewal that fails is no reason to stop while the token before it lives; coderd says when it does not.
    fn still_good(
        &self,
        kept: Option<&SecretString>,
        from: &Origin,
        why: Blocked,
    ) -> Result<Acquired, Blocked> {
        // A token of other credentials, or of another deployment, is no token for these.
        let known = self.known(kept).filter(|it| it.from == *from && why.reason != Reason::Unauthorized);
        let Some(known) = known else { return Err(why) };
        let renewed_at = self.cluster().now().checked_add(RETRY).unwrap_or(Timestamp::MAX);
        let token = known.token.clone();
        self.context.tokens.set_minted(&self.name, Some(OwnToken { renewed_at, ..known }));
        let message = format!("cannot renew the operator's token: {}; retrying", why.message);
        Ok(Acquired { token, warning: Some(Blocked { reason: why.reason, message }) })
    }

    /// Remembers a token that was granted, and deletes the Job that may have led to it.
    async fn enter(&self, granted: Granted, from: Origin, job: &AdminJob<'_>) -> Acquired {
        if !granted.stays.is_empty() {
            let note = format!("cannot delete in Coder: {}; retrying", granted.stays.join("; "));
            let (reason, action) = (Reason::NotTakenAway, "Delete");
            let event = Event { is_warning: true, reason, action, note: &note, must_be_written: false };
            self.cluster().event(&self.plane.object_ref(&()), event).await;
        }
        let cleared = job.clear(Some(&granted.user.username)).await;
        // A Job that is still there is deleted by the next reconcile.
        let soon = self.now.checked_add(RETRY).unwrap_or(Timestamp::MAX);
        let renewed_at = if cleared.is_ok() { granted.next } else { granted.next.min(soon) };
        let minted = OwnToken { from, token: granted.token.clone(), renewed_at };
        self.context.tokens.set_minted(&self.name, Some(minted));
        Acquired { token: granted.token, warning: cleared.err() }
    }

    /// Cleans up the access to a control plane that is to have none any more, and returns what the condition reports.
    async fn give_up(
        &self,
        ladder: &Ladder<'_>,
        (kept, record): (Option<&SecretString>, &TokenRecord),
        job: &AdminJob<'_>,
        secret: TokenSecret<'_>,
    ) -> Result<Blocked, Blocked> {
        for item in ladder.clean_up(kept, record).await.map_err(Trouble::into_blocked)?.items {
            self.cluster().left_behind(&self.plane.object_ref(&()), Reason::AccessDisabled, &item).await;
        }
        job.clear(record.account.as_ref().map(|it| it.username.as_str())).await?;
        secret.empty_out().await?;
        self.context.tokens.set_minted(&self.name, None);
        Ok(disabled())
    }
}

fn disabled() -> Blocked {
    let message = "operatorAccess.disabled is true: dependent objects are not reconciled".to_owned();
    Blocked { reason: Reason::AccessDisabled, message }
}

/// What the status still knows when the Secret with everything else is gone: which account is ours.
fn remembered(plane: &CoderControlPlane, uid: &str, deployment: Uuid) -> TokenRecord {
    let is_here = recorded_deployment(plane) == Some(deployment);
    let id = plane.status.as_ref().and_then(|it| it.operator_account_id.as_deref()?.parse().ok());
    let id = id.filter(|_| is_here);
    TokenRecord {
        deployment_id: id.map(|_| deployment),
        account: id.map(|id| OwnAccount::remembered(uid, id)),
        ..TokenRecord::default()
    }
}
