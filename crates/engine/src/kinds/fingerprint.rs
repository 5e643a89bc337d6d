//! Fingerprints of secret values that a manifest has sent to its deployment, for the status of the manifest.
//!
//! Coder shows such values masked or not at all. The fingerprint of what was last sent stands in the status, so that a changed
//! Secret is noticed without a copy of its value.

use api::{CoderControlPlane, Reason};
use secrecy::{ExposeSecret as _, SecretString};

use super::control_plane::token_secret::fingerprint_key;
use crate::{
    coder::{Beside, Coder},
    pipeline::outcome::Blocked,
    ports::Reading,
    secrets::{fingerprints::fingerprint, referenced::Unreadable},
};

/// The fingerprint of a list of values, made with the key in the token Secret of the control plane; the key is made when it is
/// first needed. `None` on the command line, which writes no status.
pub async fn of_values<'a>(
    namespace: &str,
    control_plane: &str,
    values: impl IntoIterator<Item = &'a SecretString>,
    coder: &Coder,
) -> Result<Option<String>, Blocked> {
    let Some(Beside { cluster, fingerprints: Some(known), .. }) = coder.cluster() else { return Ok(None) };
    let read = cluster.read::<CoderControlPlane>(namespace, control_plane, Reading::Known).await;
    let plane = read.map_err(|error| Blocked {
        reason: Reason::ControlPlaneNotReady,
        message: format!("control plane {control_plane} cannot be read: {}", Unreadable::from(error).words()),
    })?;
    let plane = plane.ok_or_else(|| Blocked {
        reason: Reason::ControlPlaneNotFound,
        message: format!("there is no control plane {control_plane} in this namespace: create it"),
    })?;
    let key = fingerprint_key(&plane, known, &**cluster).await?;
    Ok(Some(fingerprint(values.into_iter().map(|it| it.expose_secret().as_bytes()), &key)))
}
