//! Acquires the operator's own token for a control plane: the one that is known while it is good, otherwise the one that is kept
//! or minted now.

use api::{CoderControlPlane, Mode, Reason};
use jiff::{SignedDuration, Timestamp};
use kube::{Resource as _, ResourceExt as _};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::{
    AccessOutcome, Granted, Ladder, SuppliedAccount, TokenNames,
    admin_job::AdminJob,
    memory::{OwnToken, Pause, TokenMemory},
    supplied_credentials::SuppliedCredentials,
};
use crate::{
    coder::endpoint::Origin,
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
    let password = account.password.expose_secret().as_bytes();
    let from = Origin::new(&[client.url().as_str().as_bytes(), account.email.as_bytes(), password]);
    let (secret, Contents { token: kept, mut record }) =
        TokenSecret::open(plane, context.objects.cluster).await?;
    // A token that was minted at another address stays there: whoever answers here may only claim to be that deployment.
    let here = client.url().as_str();
    let kept = kept.filter(|_| record.is_for(Some(here)));
    record.external_url = Some(here.to_owned());
    // A status may be lost, as by a backup that does not hold it.
    check_identity(plane, record.deployment_id, deployment)?;
    let is_good = |it: &OwnToken| record.minting.is_none() && it.from == from && now < it.renewed_at;
    if let Some(known) = acquisition.known(kept.as_ref()).filter(is_good) {
        return Ok(Acquired::token(known.token));
    }
    if let Some(why) = acquisition.paused(&record) {
        return acquisition.still_good(kept.as_ref(), why);
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
            acquisition.still_good(kept.as_ref(), why)
        }
    }
}

/// The token of the operator's own account in a managed control plane. The client has no token.
pub async fn own_token(
    plane: &CoderControlPlane,
    reached: ReachedDeployment<'_>,
    context: &AccessContext<'_>,
) -> Result<Acquired, Blocked> {
    let ReachedDeployment { client, deployment } = reached;
    let acquisition = Acquisition::of(plane, context);
    let (cluster, now) = (context.objects.cluster, acquisition.now);
    let from = Origin::new(&[client.url().as_str().as_bytes(), deployment.as_bytes()]);
    let (secret, Contents { token: kept, mut record }) = TokenSecret::open(plane, cluster).await?;
    // A token that was minted at another address stays there.
    let kept = kept.filter(|_| record.is_for(None));
    record.external_url = None;
    // A status may be lost, as by a backup that does not hold it.
    check_identity(plane, record.deployment_id, deployment)?;
    let is_disabled = plane.spec.operator_access.as_ref().is_some_and(api::OperatorAccess::is_disabled);
    // One that was to be minted and is not there yet is another reason to compare.
    let is_settled = !is_disabled && record.minting.is_none();
    let is_good = |it: &OwnToken| is_settled && it.from == from && now < it.renewed_at;
    if let Some(known) = acquisition.known(kept.as_ref()).filter(is_good) {
        return Ok(Acquired::token(known.token));
    }
    if let Some(why) = acquisition.paused(&record).filter(|_| !is_disabled) {
        return acquisition.still_good(kept.as_ref(), why);
    }
    if kept.is_none() && plane.spec.changes.policy().mode() == Mode::Observe {
        let message =
            "mode is Observe: the operator creates no account for itself in the deployment".to_owned();
        return Err(Blocked { reason: Reason::Observed, message });
    }
    let supplied = SuppliedCredentials::of(plane, cluster).await?;
    if kept.is_some() && record.deployment_id.is_none() {
        record.deployment_id = Some(deployment);
        secret.adopt(&record).await?;
    }
    let job = AdminJob::find(plane, &context.objects).await?;
    let uid = plane.uid().unwrap_or_default();
    if record == TokenRecord::default() {
        record = remembered(plane, &uid, deployment);
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
        now,
        random: cluster.random(),
    };
    if is_disabled {
        return Err(acquisition.give_up(&ladder, (kept.as_ref(), &record), &job, secret).await?);
    }
    match ladder.acquire(kept.as_ref(), &mut record, &secret).await.map_err(Trouble::into_blocked) {
        Ok(AccessOutcome::Granted(granted)) => Ok(acquisition.enter(*granted, from, &job).await),
        Ok(AccessOutcome::Wait(waiting)) => Err(waiting),
        Ok(AccessOutcome::RunAdminJob { username, email }) => Err(job.run(&username, &email).await),
        Err(why) => {
            acquisition.pause(&record, &why);
            acquisition.still_good(kept.as_ref(), why)
        }
    }
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
    fn still_good(&self, kept: Option<&SecretString>, why: Blocked) -> Result<Acquired, Blocked> {
        let Some(known) = self.known(kept).filter(|_| why.reason != Reason::Unauthorized) else {
            return Err(why);
        };
        let renewed_at = self.cluster().now().checked_add(RETRY).unwrap_or(Timestamp::MAX);
        let token = known.token.clone();
        self.context.tokens.set_minted(&self.name, Some(OwnToken { renewed_at, ..known }));
        let message = format!("our token cannot be renewed yet: {}", why.message);
        Ok(Acquired { token, warning: Some(Blocked { reason: why.reason, message }) })
    }

    /// Remembers a token that was granted, and deletes the Job that may have led to it.
    async fn enter(&self, granted: Granted, from: Origin, job: &AdminJob<'_>) -> Acquired {
        if !granted.stays.is_empty() {
            let note = format!("not deleted, and tried again: {}", granted.stays.join("; "));
            let (reason, action) = (Reason::NotTakenAway, "Delete");
            let event = Event { is_warning: true, reason, action, note: &note, must_be_written: false };
            self.cluster().event(&self.plane.object_ref(&()), event).await;
        }
        let cleared = job.clear(Some(&granted.user.username)).await;
        if cleared.is_ok() {
            let minted = OwnToken { from, token: granted.token.clone(), renewed_at: granted.next };
            self.context.tokens.set_minted(&self.name, Some(minted));
        }
        // What is not remembered is done again.
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
        let message = "operatorAccess.disabled: what needs access waits".to_owned();
        Ok(Blocked { reason: Reason::AccessDisabled, message })
    }
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
