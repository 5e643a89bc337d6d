//! The way to a control plane: proved, or for a deletion whatever state it is in.

pub(super) mod proof;

use std::sync::Arc;

use api::Reason;
use engine::{Blocked, Outcome};
use kube::Resource as _;

use self::proof::{known, prove};
use crate::{
    controller::Shared,
    planes::{Plane, PlaneName},
};

/// Why nothing can be taken away.
pub(super) enum Obstacle {
    /// What it would take is gone, and will not come back.
    Gone(Blocked),
    /// It may work later.
    NotNow(Outcome),
}

/// The control plane as it was last known, or as it can be reached now: one that is suspended, or being deleted itself,
/// is good enough for a deletion.
pub(super) async fn for_deletion(name: &PlaneName, shared: &Shared) -> Result<Arc<Plane>, Obstacle> {
    let not_now = |waiting| Obstacle::NotNow(Outcome::Blocked(waiting));
    if let Some(watched) = shared.known_control_plane(name)
        && let Some(known) = known(&watched, shared).await
    {
        return Ok(known);
    }
    let declared = match shared.read_control_plane(name).await {
        Ok(Some(declared)) => declared,
        Ok(None) => {
            let message = format!("its control plane {} is gone", name.1);
            return Err(Obstacle::Gone(Blocked { reason: Reason::ControlPlaneNotFound, message }));
        }
        Err(unreadable) => {
            let message = format!("control plane {} cannot be read: {}", name.1, unreadable.words());
            return Err(not_now(Blocked { reason: Reason::ControlPlaneNotReady, message }));
        }
    };
    if let Some(known) = known(&declared, shared).await {
        return Ok(known);
    }
    match prove(&declared, shared).await {
        Ok(proved) => Ok(shared.planes.remember(name, proved.into_plane(shared))),
        Err(missing) if missing.reason == Reason::SecretNotFound => Err(Obstacle::Gone(missing)),
        // Nobody mends the credentials of a control plane that is going.
        Err(refused)
            if refused.reason == Reason::Unauthorized && declared.meta().deletion_timestamp.is_some() =>
        {
            Err(Obstacle::Gone(refused))
        }
        Err(waiting) => Err(not_now(waiting)),
    }
}
