//! The operator's own token for a control plane that it runs, as the Secret of that control plane has it.

use api::{CoderControlPlane, Reason, annotation};
use kube::{Resource as _, ResourceExt as _};
use secrecy::SecretString;
use uuid::Uuid;

use super::record::Record;
use crate::{
    control_plane::{names::operator_token_secret, report::TOKEN_KEY},
    objects::Key,
    outcome::Blocked,
    ports::{Cluster, Reading},
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
        let record = found.annotations().get(annotation::OPERATOR_ACCESS);
        let record = record.and_then(|it| serde_json::from_str::<Record>(it).ok());
        let record = record.filter(|it| it.is_for(None)).ok_or_else(missing)?;
        let deployment = record.deployment_id.ok_or_else(missing)?;
        let value = found.data.as_ref().and_then(|it| it.get(TOKEN_KEY)).ok_or_else(missing)?;
        let text = str::from_utf8(&value.0).ok().map(str::trim).filter(|it| !it.is_empty());
        Ok(Self { token: SecretString::from(text.ok_or_else(missing)?), deployment })
    }
}
