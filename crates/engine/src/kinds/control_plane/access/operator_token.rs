//! The operator's own token for a control plane that it runs, as the Secret of that control plane has it.

use api::{CoderControlPlane, Reason};
use kube::{Resource as _, ResourceExt as _};
use secrecy::SecretString;
use uuid::Uuid;

use crate::{
    kinds::control_plane::{names::operator_token_secret, token_secret},
    pipeline::outcome::Blocked,
    ports::{Cluster, Reading, object::Key},
};

/// A token, and the deployment that it was minted for. It goes to no other one.
#[derive(Debug)]
pub struct OperatorToken {
    pub token: SecretString,
    pub deployment: Uuid,
}

impl OperatorToken {
    /// Reads the token from the Secret that the control plane in the cluster owns, whatever the manifest of a file says of
    /// itself.
    pub async fn read(
        plane: &CoderControlPlane,
        namespace: &str,
        cluster: &dyn Cluster,
    ) -> Result<Self, Blocked> {
        let unreadable = |what: &str, why: &dyn std::fmt::Display| Blocked {
            reason: Reason::SecretUnreadable,
            message: format!("{what} cannot be read: {why}"),
        };
        let name = plane.name_any();
        let kind = CoderControlPlane::kind(&());
        let key = Key::new(&CoderControlPlane::api_version(&()), &kind, namespace, &name);
        let stored = cluster.get(&key, Reading::Now).await.map_err(|it| unreadable(&key.to_string(), &it))?;
        let uid = stored.and_then(|it| it.metadata().uid.clone()).ok_or_else(|| Blocked {
            reason: Reason::ControlPlaneNotFound,
            message: format!("{key} is not in the cluster: apply it, so that the operator runs it"),
        })?;
        let secret = operator_token_secret(plane);
        let found = cluster.secret(namespace, &secret, &uid).await;
        let found = found.map_err(|it| unreadable(&format!("Secret {secret}"), &it))?;
        let missing = || Blocked {
            reason: Reason::OperatorAccessNotReady,
            message: format!("the operator has no token in Secret {secret} yet: see the status of {key}"),
        };
        let found =
            found.filter(|it| it.owner_references().iter().any(|it| it.uid == uid)).ok_or_else(missing)?;
        let record = token_secret::record(&found);
        let deployment = record.deployment_id.filter(|_| record.is_for(None)).ok_or_else(missing)?;
        Ok(Self { token: token_secret::token(&found).ok_or_else(missing)?, deployment })
    }
}
