//! Reads what the plan of a provisioner is made of. Nothing is written.

use api::{CoderControlPlane, CoderProvisioner};

use super::{
    compared::{Objects, Unplanned, compare},
    keys::Keys,
};
use crate::{
    coder::Beside,
    keys::Looked,
    pipeline::outcome::Trouble,
    secrets::{Act, KeyPreview, Wanted},
};

/// What was observed of a provisioner.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) wanted: Wanted,
    pub(super) key: KeyPreview,
    /// The objects, or why they cannot be compared. `None` where it is not known which key pods get.
    pub(super) objects: Result<Option<Objects>, Unplanned>,
}

/// Observes a provisioner whose control plane is `declared`. `reads_names` is that of [`compare`]. The second value is what the key is driven from.
pub(super) async fn observe(
    provisioner: &CoderProvisioner,
    (keys, wanted): (&Keys<'_>, &Wanted),
    declared: &CoderControlPlane,
    (reads_names, beside): (bool, &Beside),
) -> Result<(Observed, Looked), Trouble> {
    let (key, looked) = keys.drive(wanted).look_first().await?;
    let objects = match given(&key, wanted) {
        Some(given) => compare(provisioner, given, reads_names, declared, beside).await.map(Some),
        None => Ok(None),
    };
    Ok((Observed { wanted: wanted.clone(), key, objects }, looked))
}

/// What pods get, by address and checksum: the key that is there, until there is the next one. `None` where that is not known.
fn given<'a>(key: &'a KeyPreview, wanted: &'a Wanted) -> Option<(&'a str, &'a str)> {
    let mints = key.acts.iter().any(|it| matches!(it, Act::Mint { .. }));
    match (&key.known.current, &key.rest.key) {
        (current, _) if mints => {
            // Pods get a later key as upkeep, and the address of its deployment with it.
            Some((wanted.place.url.as_str(), current.as_ref().map_or("", |it| it.checksum.as_str())))
        }
        (_, Ok(held)) => Some((held.place.url.as_str(), held.checksum.as_str())),
        (_, Err(_)) => None,
    }
}
