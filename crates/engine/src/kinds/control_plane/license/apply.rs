//! Carries out the steps of a plan of licences.

use client::{Class, Error};

use super::{
    claims::Claims,
    declared::Declared,
    plan::LicenseEffect,
    record::{LicenseRecord, Refused},
};
use crate::{
    coder::Coder,
    pipeline::{outcome::Trouble, plan::Step},
};

/// What a step came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    Uploaded,
    /// coderd does not take it, and will not until the Secret changes.
    Refused,
    Deleted,
}

/// Writes down what is about to be done. The record has to be stored before [`apply`]: after a crash it says whose a
/// licence is.
pub fn intend(steps: &[Step<LicenseEffect>], record: &mut LicenseRecord) {
    for step in steps {
        if let LicenseEffect::Upload { slot, identity } = &step.effect {
            record.intend(slot, identity);
        }
    }
}

/// Does one step and nothing else, and writes down what it came to.
pub async fn apply(
    effect: &LicenseEffect,
    declared: &[Declared],
    coder: &Coder,
    record: &mut LicenseRecord,
) -> Result<Done, Trouble> {
    match effect {
        LicenseEffect::Upload { slot: _, identity } => {
            let is_it = |it: &&Declared| it.identity().as_ref() == Some(identity);
            let jwt = declared.iter().find(is_it).and_then(|it| it.jwt.as_ref());
            let Some(jwt) = jwt else { return Ok(Done::Uploaded) };
            match coder.client().add_license(jwt.secret()).await {
                Ok(added) => {
                    coder.note_license(&added).await;
                    record.uploaded(identity, added.id);
                }
                Err(error) if error.class() == Class::Invalid && error.status().is_some() => {
                    let refused = Refused { hash: jwt.hash().to_owned(), words: error.words() };
                    record.refused(identity, refused);
                    return Ok(Done::Refused);
                }
                Err(error) => record.uploaded(identity, look_for(identity, error, coder).await?),
            }
            Ok(Done::Uploaded)
        }
        LicenseEffect::Delete { id, identity: _ } => {
            match coder.client().delete_license(*id).await {
                Err(error) if error.class() == Class::Missing && !error.route_missing() => {}
                Err(error) => {
                    coder.forget_licenses().await;
                    return Err(error.into());
                }
                Ok(()) => {}
            }
            coder.note_license_gone(*id).await;
            record.deleted(*id);
            Ok(Done::Deleted)
        }
    }
}

/// After an upload that failed: coderd stores a licence first and fails then, and refuses the same one twice.
async fn look_for(identity: &str, error: Error, coder: &Coder) -> Result<i32, Trouble> {
    coder.forget_licenses().await;
    let may_be_there = !error.nothing_was_done() && error.class() != Class::Forbidden;
    if may_be_there {
        let live = coder.licenses().await?;
        let found = live.iter().rfind(|it| Claims::of(it).identity() == identity);
        if let Some(found) = found {
            return Ok(found.id);
        }
    }
    Err(error.into())
}
