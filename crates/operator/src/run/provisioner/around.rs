//! What is around the keys of one provisioner: other deployments, and the first status.

use api::{CoderProvisioner, CoderProvisionerStatus, Reason};
use engine::{
    Blocked, Freshness, Outcome, Trouble,
    provisioner::report::{self, Findings},
    provisioner_keys::{
        Names, Retiring, Revoked,
        coderd::{revoke, revoke_as_read},
    },
};
use jiff::Timestamp;
use kube::runtime::events::EventType;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::run::{
    Shared,
    letting_go::{Obstacle, plane},
    planes::Plane,
    record::publish,
    wake::PERIODIC,
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
    let plane = match plane(&name, shared).await {
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
            let world = plane.world(Freshness::BegunAfter(since));
            revoke_as_read(&world, retiring, is_ours_by_name, now).await
        }
        None => revoke(&plane.world(PERIODIC), retiring, is_ours_by_name, now).await,
    }
}

/// The fields of the first status of a provisioner. Empty where it has one.
pub(super) fn first_status(provisioner: &Value) -> Map<String, Value> {
    let Ok(provisioner) = serde_json::from_value::<CoderProvisioner>(provisioner.clone()) else {
        return Map::new();
    };
    if report::is_begun(&provisioner) {
        return Map::new();
    }
    let before = provisioner.status.clone().unwrap_or_default();
    let CoderProvisionerStatus { observed_generation, conditions, phase, .. } =
        report::status(&provisioner, before, &Findings::default(), Timestamp::now());
    let fields = json!({"observedGeneration": observed_generation, "conditions": conditions, "phase": phase});
    fields.as_object().cloned().unwrap_or_default()
}

/// Reports the keys that were minted. Nothing of it is secret.
pub(super) fn report_minted(provisioner: &CoderProvisioner, minted: Vec<String>, shared: &Shared) {
    for name in minted {
        tracing::info!(key = name, "a key was made");
        let note = format!("provisioner key {name} was made");
        publish(provisioner, EventType::Normal, (Reason::KeyMinted, "Create"), &note, shared);
    }
}
