//! A token of our own for a control plane of which we have an account: kept, renewed and given up.

use api::CoderControlPlane;
use client::{Class, Client};
use engine::{
    Trouble, Waiting,
    control_plane::access::{Account, Desk, Entrance, TokenNames, TokenStep, record::id_of, tokens},
    status,
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::{
    name_of,
    vault::{Contents, TokenSecret},
};
use crate::run::{
    Shared,
    planes::{Minted, Origin},
    record::leave_behind,
};

/// The token of ours: the one that is known while it is good, otherwise the one that is kept or minted now.
pub(super) async fn token(
    plane: &CoderControlPlane,
    client: &Client,
    deployment: Uuid,
    account: &Account,
    shared: &Shared,
) -> Result<SecretString, Waiting> {
    let (name, now) = (name_of(plane), Timestamp::now());
    let password = account.password.expose_secret().as_bytes();
    let from = Origin::new(&[client.url().as_str().as_bytes(), account.email.as_bytes(), password]);
    let (vault, Contents { token: kept, mut record }) = TokenSecret::open(plane, shared).await?;
    if let Some(known) = shared.planes.minted(&name) {
        let is_kept = kept.as_ref().is_some_and(|it| it.expose_secret() == known.token.expose_secret());
        if is_kept && known.from == from && now < known.renewed_at {
            return Ok(known.token);
        }
    }
    let names = TokenNames::of(&plane.uid().unwrap_or_default());
    let entrance = Entrance { client, deployment, account, names: &names, now };
    let granted = entrance.keep(kept.as_ref(), &mut record, &vault).await.map_err(waiting)?;
    let minted = Minted { from, token: granted.token.clone(), renewed_at: granted.next };
    shared.planes.set_minted(&name, Some(minted));
    Ok(granted.token)
}

/// Gives up every token that we minted for a control plane that goes, with the last of them. What cannot be given up is
/// named; it dies within a day.
pub(super) async fn end(plane: &CoderControlPlane, shared: &Shared) -> Result<(), kube::Error> {
    let Ok((vault, Contents { token, record })) = TokenSecret::open(plane, shared).await else {
        // Not ours, or out of reach: then nothing of ours is in it.
        return Ok(());
    };
    if let (Some(token), Some(known)) = (token, shared.planes.last_known(&name_of(plane))) {
        let desk = known.client().with_token(token.clone()).map(|it| (it, id_of(&token)));
        if let Ok((client, held)) = desk
            && record.deployment_id == Some(known.deployment())
            && let Err(error) = revoke_all(client, held, &record, plane).await
        {
            let note = format!("a token of ours is left, and dies within a day: {}", error.words());
            leave_behind(plane, engine::outcome::reason_of(error.class()), &note, shared).await;
        }
    }
    vault.release(shared).await
}

async fn revoke_all(
    client: Client,
    held: Option<&str>,
    record: &engine::control_plane::access::Record,
    plane: &CoderControlPlane,
) -> Result<(), client::Error> {
    let user = match client.current_user().await {
        Ok(user) => user.id,
        // It is dead already.
        Err(error) if error.class() == Class::SignedOut => return Ok(()),
        Err(error) => return Err(error),
    };
    let desk = Desk { client, user };
    let (names, listed) = (TokenNames::of(&plane.uid().unwrap_or_default()), desk.tokens().await?);
    let situation = tokens::Situation { names: &names, record, held, listed: &listed, now: Timestamp::now() };
    for step in tokens::plan_end(&situation) {
        if let TokenStep::Revoke { id, name: _ } = step {
            desk.revoke(&id).await?;
        }
    }
    Ok(())
}

/// What stopped us, as what has to come first.
pub(super) fn waiting(trouble: Trouble) -> Waiting {
    match trouble {
        Trouble::Waiting(waiting) => waiting,
        remote @ Trouble::Remote(_) => {
            let outcome = engine::Outcome::Failed(remote);
            let message = status::message(&outcome, &engine::Plan::<()>::empty().view(""));
            Waiting { reason: outcome.reason(), message }
        }
    }
}
