//! Keys of other deployments than the one that a provisioner uses now.

use api::Reason;
use engine::{
    Blocked, Freshness, Outcome, Trouble,
    keys::coderd::{revoke, revoke_as_read},
    secrets::{Names, Retiring, Revoked},
};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::{
    controller::{
        Shared,
        reach::{Obstacle, for_deletion},
        wake::PERIODIC,
    },
    planes::Plane,
};

/// Revokes a key of another deployment, with what that deployment is reached by. See [`revoke_at`].
pub(super) async fn revoke_elsewhere(
    retiring: &Retiring,
    namespace: &str,
    names: &Names,
    since: Option<Instant>,
    shared: &Shared,
) -> Result<Revoked, Trouble> {
    let place = &retiring.held.place;
    let name = (namespace.to_owned(), place.control_plane.clone());
    let plane = match for_deletion(&name, shared).await {
        Ok(plane) => plane,
        Err(Obstacle::Gone(_)) => return Ok(Revoked::OutOfReach),
        Err(Obstacle::NotNow(Outcome::Failed(trouble))) => return Err(trouble),
        Err(Obstacle::NotNow(outcome)) => {
            let message = format!("control plane {} cannot be used: {}", name.1, outcome.reason());
            return Err(Blocked { reason: Reason::ControlPlaneNotReady, message }.into());
        }
    };
    if place.deployment_id.is_some_and(|it| it != plane.deployment()) {
        // Another deployment has taken its place: nothing there is ours.
        return Ok(Revoked::OutOfReach);
    }
    revoke_at(&plane, retiring, names, since).await
}

/// Revokes a key of this deployment. A list of keys that began after `since` shows which key has the name; without an instant
/// the list is read anew.
pub(super) async fn revoke_at(
    plane: &Plane,
    retiring: &Retiring,
    names: &Names,
    since: Option<Instant>,
) -> Result<Revoked, Trouble> {
    let (is_ours_by_name, now) = (names.is_ours(&retiring.held.name), Timestamp::now());
    match since {
        Some(since) => {
            let coder = plane.coder(Freshness::BegunAfter(since));
            revoke_as_read(&coder, retiring, is_ours_by_name, now).await
        }
        None => revoke(&plane.coder(PERIODIC), retiring, is_ours_by_name, now).await,
    }
}
