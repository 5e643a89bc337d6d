//! Which deployment answers for a control plane: nothing is written to another one until a person accepts it.

use api::{CoderControlPlane, Reason, annotation};
use client::Client;
use kube::ResourceExt as _;
use uuid::Uuid;

use crate::pipeline::outcome::{Blocked, Trouble};

/// A deployment that answers, with a client of it.
#[derive(Debug, Clone, Copy)]
pub struct ReachedDeployment<'a> {
    pub client: &'a Client,
    /// The id that the deployment had when the client was made.
    pub deployment: Uuid,
}

impl ReachedDeployment<'_> {
    /// Fails where another deployment answers by now: nothing is deleted in that one.
    pub async fn check_same(&self) -> Result<(), Trouble> {
        if self.client.build_info().await?.deployment_id == self.deployment {
            return Ok(());
        }
        let message = "another deployment answers there now".to_owned();
        Err(Blocked { reason: Reason::DeploymentChanged, message }.into())
    }
}

/// The deployment that the status of a control plane names.
pub fn recorded_deployment(plane: &CoderControlPlane) -> Option<Uuid> {
    plane.status.as_ref()?.deployment_id.as_deref()?.parse().ok()
}

/// Fails where another deployment than the known one answers, and no annotation of the manifest accepts it.
pub fn check_identity(
    plane: &CoderControlPlane,
    known: Option<Uuid>,
    deployment: Uuid,
) -> Result<(), Blocked> {
    let found = deployment.to_string();
    let accepted = plane.annotations().get(annotation::ACCEPT_DEPLOYMENT);
    if known.is_none_or(|it| it == deployment) || accepted == Some(&found) {
        return Ok(());
    }
    let message = format!(
        "another deployment answers: to let it take the place of the one known so far, annotate with {}: {found}",
        annotation::ACCEPT_DEPLOYMENT,
    );
    Err(Blocked { reason: Reason::DeploymentChanged, message })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn another_deployment_is_refused_until_a_person_names_it() {
        let plane = |annotations: serde_json::Value| -> CoderControlPlane {
            serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
                "metadata": {"name": "main", "annotations": annotations}, "spec": {}}))
            .unwrap()
        };
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(check_identity(&plane(json!({})), None, two), Ok(()), "a first contact");
        assert_eq!(check_identity(&plane(json!({})), Some(two), two), Ok(()));
        let refused = check_identity(&plane(json!({})), Some(one), two).unwrap_err();
        assert_eq!(refused.reason, Reason::DeploymentChanged);
        assert!(refused.message.ends_with(&two.to_string()), "{}", refused.message);
        let accepted = |id: Uuid| plane(json!({annotation::ACCEPT_DEPLOYMENT: id.to_string()}));
        assert_eq!(check_identity(&accepted(two), Some(one), two), Ok(()));
        assert!(check_identity(&accepted(one), Some(one), two).is_err(), "it is that one and no other");
    }
}
