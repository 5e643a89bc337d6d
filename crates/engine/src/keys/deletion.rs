//! The end of keys: each is revoked where it lives, and named where that is not possible any more.

use super::drive::is_anothers;
use crate::{
    pipeline::outcome::Trouble,
    secrets::{Names, Retiring, Revoked, Why, around::Around, around::Elsewhere},
};

/// What became of keys that were to be revoked.
#[derive(Debug, Default)]
pub struct Revocations {
    /// Keys that no longer exist, that belong to another object, or that were reported because their deployment cannot be reached.
    pub done: Vec<Retiring>,
    /// Keys that may still be there, by name, and why.
    pub failed: Vec<(String, Trouble)>,
}

/// Revokes keys of an object that is deleted. A key that cannot be revoked holds up no other.
pub async fn revoke_all(
    keys: &[Retiring],
    names: &Names,
    around: &Around<'_>,
    revoke: Elsewhere<'_>,
) -> Revocations {
    let mut revocations = Revocations::default();
    for retiring in keys {
        let held = &retiring.held;
        let revoked = match is_anothers(around, retiring, names.is_ours(&held.name)).await {
            Ok(true) => Ok(Revoked::NotOurs),
            Ok(false) => revoke(retiring.clone()).await,
            Err(trouble) => Err(trouble),
        };
        match revoked {
            Ok(Revoked::OutOfReach) => around.leave(held).await,
            Ok(how) => around.revoked(held, how, &Why::Deleted).await,
            Err(trouble) => {
                revocations.failed.push((held.name.clone(), trouble));
                continue;
            }
        }
        revocations.done.push(retiring.clone());
    }
    revocations
}
