//! Fingerprints of secret values that a manifest has sent to its deployment, for the status of the manifest.
//!
//! Coder shows such values masked or not at all. The fingerprint of what was last sent stands in the status, so that a changed
//! Secret is noticed without a copy of its value.

use api::{CoderControlPlane, Reason};
use secrecy::{ExposeSecret as _, SecretString};

use super::control_plane::token_secret::{FingerprintKey, TokenSecret, fingerprint_key};
use crate::{
    coder::{Beside, Coder, OwedFingerprintKey},
    pipeline::outcome::Blocked,
    ports::Reading,
    secrets::{fingerprints::fingerprint, referenced::Unreadable},
};

/// The fingerprint of a list of values, made with the key in the token Secret of the control plane. A key that is made for it has to be
/// stored with [`store_key`] before the fingerprint is recorded. `None` on the command line, which writes no status.
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
    let FingerprintKey { key, is_stored } = fingerprint_key(&plane, known, &**cluster).await?;
    if !is_stored {
        coder.owe_fingerprint_key(&plane, key.clone());
    }
    Ok(Some(fingerprint(values.into_iter().map(|it| it.expose_secret().as_bytes()), &key)))
}

/// Stores the key of the fingerprints that were made with this `Coder`, where it is not stored yet.
pub async fn store_key(coder: &Coder) -> Result<(), Blocked> {
    let Some(Beside { cluster, fingerprints: Some(known), .. }) = coder.cluster() else { return Ok(()) };
    let Some(OwedFingerprintKey { plane, key }) = coder.take_owed_fingerprint_key() else { return Ok(()) };
    let (secret, _) = TokenSecret::open(&plane, &**cluster).await?;
    secret.store_fingerprint_key(&plane, &key, known).await
}
