//! Access to a control plane that we run: an account of our own, by the gentlest way that is open.

use api::{CoderControlPlane, Mode, Reason};
use client::Client;
use engine::{
    Blocked, Lookup as _, Trouble,
    control_plane::{
        access::{Account, AdminCredentials, Climbed, FirstUser, Given, Ladder, OwnAccount, Record},
        identity::check_identity,
        token_secret::{Contents, TokenSecret},
    },
    lookup::Values,
};
use jiff::Timestamp;
use kube::{ResourceExt as _, runtime::events::EventType};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::{
    access::{known, pause, paused, still_good},
    admin_job::AdminJob,
    name_of,
};
use crate::{
    cluster::Cluster,
    run::{
        Shared,
        planes::{Minted, Origin},
        record::{leave_behind, publish},
    },
};

/// What people gave us for it.
struct Means {
    first_user: Given<FirstUser>,
    admin: Given<AdminCredentials>,
}

/// The token of our own account: the one that is known while it is good, otherwise the one that is kept or minted now.
pub(super) async fn token(
    plane: &CoderControlPlane,
    client: &Client,
    deployment: Uuid,
    shared: &Shared,
) -> Result<SecretString, Blocked> {
    let (name, now) = (name_of(plane), Timestamp::now());
    let from = Origin::new(&[client.url().as_str().as_bytes(), deployment.as_bytes()]);
    let (secret, Contents { token: kept, mut record }) = TokenSecret::open(plane, &*shared.cluster).await?;
    // A token that was minted at another address stays there.
    let kept = kept.filter(|_| record.is_for(None));
    record.external_url = None;
    // A status may be lost, as by a backup that does not hold it.
    check_identity(plane, record.deployment_id, deployment)?;
    let is_disabled = plane.spec.operator_access.as_ref().is_some_and(api::OperatorAccess::is_disabled);
    // One that was to be minted and is not there yet is another reason to look.
    let is_settled = !is_disabled && record.minting.is_none();
    let is_good = |it: &Minted| is_settled && it.from == from && now < it.renewed_at;
    if let Some(known) = known(plane, kept.as_ref(), shared).filter(is_good) {
        return Ok(known.token);
    }
    if let Some(why) = paused(plane, &record, now, shared).filter(|_| !is_disabled) {
        return still_good(plane, kept.as_ref(), why, shared);
    }
    if kept.is_none() && plane.spec.changes.policy().mode() == Mode::Observe {
        let message =
            "mode is Observe: the operator creates no account for itself in the deployment".to_owned();
        return Err(Blocked { reason: Reason::Observed, message });
    }
    let means = means(plane, shared).await?;
    if kept.is_some() && record.deployment_id.is_none() {
        record.deployment_id = Some(deployment);
        secret.adopt(&record).await?;
    }
    let job = AdminJob::look(plane, shared).await?;
    let uid = plane.uid().unwrap_or_default();
    if record == Record::default() {
        record = remembered(plane, &uid, deployment);
    }
    let ladder = Ladder {
        client,
        deployment,
        control_plane_uid: &uid,
        first_user: &means.first_user,
        admin: &means.admin,
        job: job.standing(),
        // A manifest of coder-k8s names no first user and becomes ready all the same. Who wants a person to be the first
        // one names it.
        may_be_first: true,
        now,
    };
    if is_disabled {
        return Err(give_up(plane, &ladder, (kept.as_ref(), &record), &job, secret).await?);
    }
    let climbed = match ladder.climb(kept.as_ref(), &mut record, &secret).await {
        Ok(climbed) => climbed,
        Err(trouble) => {
            let why = trouble.into_blocked();
            pause(plane, &record, &why, now, shared);
            return still_good(plane, kept.as_ref(), why, shared);
        }
    };
    match climbed {
        Climbed::Granted(granted) => {
            if !granted.stays.is_empty() {
                let note = format!("not taken away, and tried again: {}", granted.stays.join("; "));
                tracing::warn!("{note}");
                publish(plane, EventType::Warning, (Reason::NotTakenAway, "Delete"), &note, shared);
            }
            match job.clear(Some(&granted.user.username)).await {
                Ok(()) => {
                    let minted = Minted { from, token: granted.token.clone(), renewed_at: granted.next };
                    shared.planes.set_minted(&name, Some(minted));
                }
                // What is not remembered is done again.
                Err(why) => tracing::warn!(reason = %why.reason, "{}", why.message),
            }
            Ok(granted.token)
        }
        Climbed::Wait(waiting) => Err(waiting),
        Climbed::RunAdminJob { username, email } => Err(job.run(&username, &email).await),
    }
}

/// Ends the access to a control plane that is to have none any more, and says so.
async fn give_up(
    plane: &CoderControlPlane,
    ladder: &Ladder<'_>,
    (kept, record): (Option<&SecretString>, &Record),
    job: &AdminJob<'_>,
    secret: TokenSecret<'_>,
) -> Result<Blocked, Blocked> {
    let shared = job.shared();
    for item in ladder.end(kept, record).await.map_err(Trouble::into_blocked)?.items {
        leave_behind(plane, Reason::AccessDisabled, &item, shared).await;
    }
    job.clear(record.account.as_ref().map(|it| it.username.as_str())).await?;
    secret.empty_out().await?;
    shared.planes.set_minted(&name_of(plane), None);
    let message = "operatorAccess.disabled: what needs access waits".to_owned();
    Ok(Blocked { reason: Reason::AccessDisabled, message })
}

/// What the status still knows when the Secret with everything else is gone: which account is ours.
fn remembered(plane: &CoderControlPlane, uid: &str, deployment: Uuid) -> Record {
    let status = plane.status.as_ref();
    let is_here = status.and_then(|it| it.deployment_id.as_ref()) == Some(&deployment.to_string());
    let id = status.and_then(|it| it.operator_account_id.as_deref()?.parse().ok()).filter(|_| is_here);
    Record {
        deployment_id: id.map(|_| deployment),
        account: id.map(|id| OwnAccount::remembered(uid, id)),
        ..Record::default()
    }
}

async fn means(plane: &CoderControlPlane, shared: &Shared) -> Result<Means, Blocked> {
    let access = plane.spec.operator_access.as_ref();
    let first_user = match access.and_then(|it| it.first_user_secret_ref.as_ref()) {
        None => Given::NotDeclared,
        Some(it) => given(&it.name, secret(plane, &it.name, shared).await?.as_ref(), first_user),
    };
    let admin = match access.and_then(|it| it.admin_credentials_secret_ref.as_ref()) {
        None => Given::NotDeclared,
        Some(it) => given(&it.name, secret(plane, &it.name, shared).await?.as_ref(), admin),
    };
    Ok(Means { first_user, admin })
}

async fn secret(plane: &CoderControlPlane, name: &str, shared: &Shared) -> Result<Option<Values>, Blocked> {
    let namespace = plane.namespace().unwrap_or_default();
    let found = Cluster(shared.client.clone()).secret(&namespace, name).await;
    found.map_err(|it| it.of_secret(name))
}

fn given<T>(name: &str, values: Option<&Values>, read: fn(&Values) -> Result<T, &'static str>) -> Given<T> {
    match values.map(read) {
        None => Given::Missing(format!("there is no Secret {name}: create it")),
        Some(Err(keys)) => Given::Missing(format!("Secret {name} has to have {keys}")),
        Some(Ok(found)) => Given::There(found),
    }
}

fn text(values: &Values, key: &str) -> Option<String> {
    values.text(key).map(|it| it.expose_secret().to_owned())
}

fn first_user(values: &Values) -> Result<FirstUser, &'static str> {
    let missing = "email, username and password";
    Ok(FirstUser {
        email: text(values, "email").ok_or(missing)?,
        username: text(values, "username").ok_or(missing)?,
        password: values.text("password").ok_or(missing)?,
    })
}

fn admin(values: &Values) -> Result<AdminCredentials, &'static str> {
    if let Some(token) = values.text("token") {
        return Ok(AdminCredentials::Token(token));
    }
    let missing = "email and password, or a token";
    let email = text(values, "email").ok_or(missing)?;
    let password = values.text("password").ok_or(missing)?;
    Ok(AdminCredentials::Password(Account { email, password }))
}
