//! A token of our own for a control plane of which we have an account: kept, renewed and given up.

use api::{CoderControlPlane, Reason};
use client::{Class, Client};
use engine::{
    Blocked, Trouble,
    control_plane::{
        access::{Account, Desk, Entrance, Record, TokenNames, TokenStep, record::id_of, tokens},
        cleanup::{Cleanup, CleanupFailure},
        identity::check_identity,
        token_secret::{Contents, TokenSecret},
    },
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::name_of;
use crate::run::{
    Shared,
    planes::{Minted, Origin, Pause, Plane},
};

/// How soon a token that could not be minted is tried again.
const RETRY: SignedDuration = SignedDuration::from_secs(30);

/// The token of ours: the one that is known while it is good, otherwise the one that is kept or minted now.
pub(super) async fn token(
    plane: &CoderControlPlane,
    client: &Client,
    deployment: Uuid,
    account: &Account,
    shared: &Shared,
) -> Result<SecretString, Blocked> {
    let (name, now) = (name_of(plane), Timestamp::now());
    let password = account.password.expose_secret().as_bytes();
    let from = Origin::new(&[client.url().as_str().as_bytes(), account.email.as_bytes(), password]);
    let (secret, Contents { token: kept, mut record }) = TokenSecret::open(plane, &*shared.cluster).await?;
    // A token that was minted at another address stays there: whoever answers here may only claim to be that deployment.
    let here = client.url().as_str();
    let kept = kept.filter(|_| record.is_for(Some(here)));
    record.external_url = Some(here.to_owned());
    // A status may be lost, as by a backup that does not hold it.
    check_identity(plane, record.deployment_id, deployment)?;
    let is_good = |it: &Minted| record.minting.is_none() && it.from == from && now < it.renewed_at;
    if let Some(known) = known(plane, kept.as_ref(), shared).filter(is_good) {
        return Ok(known.token);
    }
    if let Some(why) = paused(plane, &record, now, shared) {
        return still_good(plane, kept.as_ref(), why, shared);
    }
    let names = TokenNames::of(&plane.uid().unwrap_or_default());
    let entrance = Entrance { client, deployment, account, names: &names, now };
    let granted =
        match entrance.keep(kept.as_ref(), &mut record, &secret).await.map_err(Trouble::into_blocked) {
            Ok(granted) => granted,
            Err(why) => {
                pause(plane, &record, &why, now, shared);
                return still_good(plane, kept.as_ref(), why, shared);
            }
        };
    let minted = Minted { from, token: granted.token.clone(), renewed_at: granted.next };
    shared.planes.set_minted(&name, Some(minted));
    Ok(granted.token)
}

/// The token that we know of, if it is the one that is kept.
pub(super) fn known(
    plane: &CoderControlPlane,
    kept: Option<&SecretString>,
    shared: &Shared,
) -> Option<Minted> {
    let minted = shared.planes.minted(&name_of(plane))?;
    kept.is_some_and(|it| it.expose_secret() == minted.token.expose_secret()).then_some(minted)
}

/// Why a token that was about to be minted could not be, if that is not long ago.
pub(super) fn paused(
    plane: &CoderControlPlane,
    record: &Record,
    now: Timestamp,
    shared: &Shared,
) -> Option<Blocked> {
    let pause = shared.planes.pause(&name_of(plane))?;
    (record.minting.as_ref() == Some(&pause.minting) && now < pause.until).then_some(pause.why)
}

/// Remembers that a token could not be minted after it was written down that one would be.
pub(super) fn pause(
    plane: &CoderControlPlane,
    record: &Record,
    why: &Blocked,
    now: Timestamp,
    shared: &Shared,
) {
    let pause = record.minting.as_ref().map(|minting| Pause {
        minting: minting.clone(),
        until: now.checked_add(RETRY).unwrap_or(Timestamp::MAX),
        why: why.clone(),
    });
    shared.planes.set_pause(&name_of(plane), pause);
}

/// A renewal that fails is no reason to stop while the token before it lives; coderd says when it does not.
pub(super) fn still_good(
    plane: &CoderControlPlane,
    kept: Option<&SecretString>,
    why: Blocked,
    shared: &Shared,
) -> Result<SecretString, Blocked> {
    match known(plane, kept, shared).filter(|_| why.reason != Reason::Unauthorized) {
        Some(known) => {
            tracing::warn!(reason = %why.reason, "our token cannot be renewed yet: {}", why.message);
            let renewed_at = Timestamp::now().checked_add(RETRY).unwrap_or(Timestamp::MAX);
            let postponed = Minted { renewed_at, ..known };
            let token = postponed.token.clone();
            shared.planes.set_minted(&name_of(plane), Some(postponed));
            Ok(token)
        }
        None => Err(why),
    }
}

/// Revokes every token that we minted for a control plane that is deleted, with the last of them. The accounts stay.
pub(super) async fn end(
    plane: &CoderControlPlane,
    contents: &Contents,
    reached: Result<&Plane, &CleanupFailure>,
    cleanup: &mut Cleanup,
) {
    let Contents { token: Some(token), record } = contents else { return };
    let revoked = match reached {
        Ok(known) => revoke_all(known, token, record, plane).await.map_err(CleanupFailure::from),
        Err(failure) => Err(failure.clone()),
    };
    if let Err(failure) = revoked {
        cleanup.fail("the operator's token, which expires within a day,", failure);
    }
    if let Some(account) = record.account.as_ref().filter(|it| it.id.is_some()) {
        cleanup.stays(format!(
            "the account {} stays in Coder without a token, and nobody knows its password: delete it there if the \
             deployment lives on",
            account.username
        ));
    }
    for former in &record.former {
        cleanup
            .stays(format!("{}, stays in Coder: delete it there if the deployment lives on", former.words()));
    }
}

/// Revokes the tokens of ours with the one that is kept, if it is this deployment's.
async fn revoke_all(
    known: &Plane,
    token: &SecretString,
    record: &Record,
    plane: &CoderControlPlane,
) -> Result<(), Blocked> {
    if record.deployment_id != Some(known.deployment()) {
        let message = "it was for another deployment".to_owned();
        return Err(Blocked { reason: Reason::DeploymentChanged, message });
    }
    let external_url = plane.spec.external.as_ref().map(|_| known.client().url().as_str());
    if !record.is_for(external_url) {
        let message = "it was minted at another address".to_owned();
        return Err(Blocked { reason: Reason::OriginChanged, message });
    }
    let revoked = async {
        known.reached().check_same().await?;
        let unusable = |error: client::ClientOptionsError| Blocked {
            reason: Reason::Unauthorized,
            message: error.to_string(),
        };
        let client = known.client().with_token(token.clone()).map_err(unusable)?;
        let user = match client.current_user().await {
            Ok(user) => user.id,
            // It is dead already.
            Err(error) if error.class() == Class::SignedOut => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let desk = Desk { client, user };
        let (names, listed) = (TokenNames::of(&plane.uid().unwrap_or_default()), desk.tokens().await?);
        let (held, now) = (id_of(token), Timestamp::now());
        let situation = tokens::Situation { names: &names, record, held, listed: &listed, now };
        for step in tokens::plan_end(&situation) {
            if let TokenStep::Revoke { id, name: _ } = step {
                desk.revoke(&id).await?;
            }
        }
        Ok::<(), Trouble>(())
    };
    revoked.await.map_err(Trouble::into_blocked)
}
