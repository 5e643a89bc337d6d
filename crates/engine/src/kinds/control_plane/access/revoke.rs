//! Revokes the operator's tokens when a control plane is deleted.

use api::{CoderControlPlane, Reason};
use client::Class;
use jiff::Timestamp;
use kube::ResourceExt as _;
use secrecy::SecretString;

use super::{AccountTokens, TokenNames, TokenStep, supplied_account::with, tokens};
use crate::{
    kinds::control_plane::{
        identity::ReachedDeployment,
        token_record::{TokenRecord, id_of},
        token_secret::Contents,
    },
    pipeline::{
        cleanup::{Cleanup, CleanupFailure},
        outcome::{Blocked, Trouble},
    },
};

/// Revokes every token that was minted for a control plane that is deleted, with the last of them. The accounts stay.
pub async fn revoke_all(
    plane: &CoderControlPlane,
    contents: &Contents,
    reached: Result<ReachedDeployment<'_>, &CleanupFailure>,
    cleanup: &mut Cleanup,
    now: Timestamp,
) {
    let Contents { token: Some(token), record } = contents else { return };
    let revoked = match reached {
        Ok(reached) => revoke(plane, reached, (token, record), now).await.map_err(CleanupFailure::from),
        Err(failure) => Err(failure.clone()),
    };
    if let Err(failure) = revoked {
        cleanup.fail("the operator's token, which expires within a day,", failure);
    }
    if let Some(account) = record.account.as_ref().filter(|it| it.id.is_some()) {
        cleanup.stays(format!(
            "the account {} stays in Coder without a token, and its password is not stored anywhere: delete it there if \
             the deployment is kept",
            account.username
        ));
    }
    for former in &record.former {
        cleanup
            .stays(format!("{}, stays in Coder: delete it there if the deployment is kept", former.words()));
    }
}

/// Revokes the tokens with the one that is kept, if it is this deployment's.
async fn revoke(
    plane: &CoderControlPlane,
    reached: ReachedDeployment<'_>,
    (token, record): (&SecretString, &TokenRecord),
    now: Timestamp,
) -> Result<(), Trouble> {
    let ReachedDeployment { client, deployment } = reached;
    if record.deployment_id != Some(deployment) {
        let message = "the token was minted for another deployment".to_owned();
        return Err(Blocked { reason: Reason::DeploymentChanged, message }.into());
    }
    if !record.is_for(plane.spec.external.as_ref().map(|_| client.url().as_str())) {
        let message = "the token was minted at another address".to_owned();
        return Err(Blocked { reason: Reason::OriginChanged, message }.into());
    }
    reached.check_same().await?;
    let client = with(client, token)?;
    let user = match client.current_user().await {
        Ok(user) => user.id,
        // It is dead already.
        Err(error) if error.class() == Class::SignedOut => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let account_tokens = AccountTokens { client, user };
    let (names, listed) = (TokenNames::of(&plane.uid().unwrap_or_default()), account_tokens.list().await?);
    let situation =
        tokens::TokenSituation { names: &names, record, held: id_of(token), listed: &listed, now };
    for step in tokens::plan_revocation(&situation) {
        if let TokenStep::Revoke { id, name: _ } = step {
            account_tokens.revoke(&id).await?;
        }
    }
    Ok(())
}
