//! What the life of keys needs of a deployment, and how it is had.

use std::collections::BTreeMap;

use crate::secrets::Revoked;
use api::Reason;
use client::{Class, provisioner_keys::ProvisionerKey};
use jiff::Timestamp;
use secrecy::SecretString;
use uuid::Uuid;

use crate::{
    coder::Coder,
    pipeline::outcome::{Blocked, Trouble},
    secrets::{
        record::Retiring,
        situation::{Fate, LiveKey, fate},
    },
};

/// What came of asking for a key.
#[derive(Debug)]
pub enum Minting {
    Minted(SecretString),
    /// There is a key of that name.
    Taken,
    /// It may have been made.
    Unclear(Trouble),
    /// It was not made.
    Refused(Trouble),
}

/// A list of keys, and when it was read.
#[derive(Debug, Clone)]
pub struct Listing {
    pub keys: Vec<LiveKey>,
    pub at: Timestamp,
    /// Whether coderd showed it. To somebody who may not see the organization it says the same as when there is none.
    pub is_shown: bool,
}

impl Coder {
    /// The keys of an organization: as they were read by whomever, or read after this call. An organization that is not
    /// there, or not for us to see, has none.
    pub async fn list_keys(
        &self,
        organization: Uuid,
        is_anew: bool,
        now: Timestamp,
    ) -> Result<Listing, Trouble> {
        let coder = if is_anew { &self.anew() } else { self };
        match coder.keys(organization, now).await {
            Ok(list) => {
                let keys = list.keys.iter().map(|it| live(&it.key, it.daemons.len())).collect();
                Ok(Listing { keys, at: list.read_at, is_shown: true })
            }
            Err(error) if error.class() == Class::Missing && !error.route_missing() => {
                Ok(Listing { keys: Vec::new(), at: now, is_shown: false })
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn mint_key(
        &self,
        organization: Uuid,
        name: &str,
        tags: &BTreeMap<String, String>,
    ) -> Minting {
        match self.client().create_provisioner_key(organization, name, tags).await {
            Ok(value) => {
                self.note_minted(organization, name);
                Minting::Minted(value)
            }
            Err(error) if error.class() == Class::Conflict => Minting::Taken,
            // coderd says 500 here to an account that may not, and has done nothing.
            Err(error) if error.nothing_was_done() || error.class() == Class::Forbidden => {
                Minting::Refused(error.into())
            }
            Err(error) => Minting::Unclear(error.into()),
        }
    }

    /// Deletes a key by name. Returns whether there was one, as far as coderd tells.
    pub(super) async fn delete_key(&self, organization: Uuid, name: &str) -> Result<bool, Trouble> {
        match self.client().delete_provisioner_key(organization, name).await {
            Ok(()) => {
                self.note_key_gone(organization, name).await;
                Ok(true)
            }
            Err(error) if error.class() == Class::Missing && !error.route_missing() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Which key a value is.
    pub(super) async fn prove_key(&self, value: &SecretString) -> Result<Option<LiveKey>, Trouble> {
        let key = self.client().prove_provisioner_key(value).await?;
        if let Some(key) = &key {
            self.note_key(key).await;
        }
        Ok(key.map(|it| live(&it, 0)))
    }

    /// Whether there is such an organization now, and we may see it.
    pub(super) async fn has_organization(&self, organization: Uuid) -> Result<bool, Trouble> {
        Ok(self.anew().organization_by_id(organization).await?.is_some())
    }
}

/// Revokes a key, if it is still the one that is meant. A name that says by itself that it is ours needs no look at the list.
/// A key that is gone after a deletion whose answer was lost counts as revoked.
pub async fn revoke(
    coder: &Coder,
    retiring: &Retiring,
    is_ours_by_name: bool,
    now: Timestamp,
) -> Result<Revoked, Trouble> {
    let compared = Compared { is_ours_by_name, is_anew: !is_ours_by_name };
    revoke_compared(coder, retiring, compared, now).await
}

/// The same with a list that is as recent as the deployment is read: for a caller who knows since when that has to be.
pub async fn revoke_as_read(
    coder: &Coder,
    retiring: &Retiring,
    is_ours_by_name: bool,
    now: Timestamp,
) -> Result<Revoked, Trouble> {
    revoke_compared(coder, retiring, Compared { is_ours_by_name, is_anew: false }, now).await
}

/// How it is known that the key of a name is the one that is meant.
#[derive(Clone, Copy)]
struct Compared {
    is_ours_by_name: bool,
    /// Whether the list is read after the call.
    is_anew: bool,
}

async fn revoke_compared(
    coder: &Coder,
    retiring: &Retiring,
    compared: Compared,
    now: Timestamp,
) -> Result<Revoked, Trouble> {
    let held = &retiring.held;
    let Some(organization) = held.organization_id else { return Ok(Revoked::OutOfReach) };
    let done = try_revoke(coder, retiring, organization, compared, now).await?;
    let was_asked = coder.own_intents().forget_deletion(organization, &held.name);
    Ok(if done == Revoked::Absent && was_asked { Revoked::Done } else { done })
}

async fn try_revoke(
    coder: &Coder,
    retiring: &Retiring,
    organization: Uuid,
    Compared { is_ours_by_name, is_anew }: Compared,
    now: Timestamp,
) -> Result<Revoked, Trouble> {
    let held = &retiring.held;
    let look = async |is_anew| {
        let listing = coder.list_keys(organization, is_anew, now).await?;
        let found = listing.keys.into_iter().find(|it| it.name.eq_ignore_ascii_case(&held.name));
        Ok::<_, Trouble>(listing.is_shown.then(|| fate(retiring, found.as_ref())))
    };
    let was_listed = match look(is_anew).await? {
        None => return unseen(coder, organization, &held.name).await,
        Some(Fate::NotOurs) => return Ok(Revoked::NotOurs),
        Some(Fate::Doubtful) => return Ok(Revoked::Doubtful),
        Some(Fate::Gone) if !is_ours_by_name => return Ok(Revoked::Absent),
        Some(fate) => fate == Fate::Delete,
    };
    let is_new = coder.own_intents().note_deletion(organization, &held.name);
    let deleted = coder.delete_key(organization, &held.name).await;
    let nothing_was_done = match &deleted {
        // One that was not listed before has not been deleted by us.
        Ok(found) => !found && !was_listed,
        Err(Trouble::Remote(error)) => error.nothing_was_done(),
        Err(Trouble::Blocked(_) | Trouble::Cluster(_) | Trouble::Stale) => false,
    };
    if nothing_was_done && is_new {
        coder.own_intents().forget_deletion(organization, &held.name);
    }
    if deleted? {
        return Ok(Revoked::Done);
    }
    // To an account that may not delete it coderd says the same as when it is gone.
    match look(true).await? {
        None => unseen(coder, organization, &held.name).await,
        Some(Fate::Gone) => Ok(Revoked::Absent),
        Some(Fate::NotOurs) => Ok(Revoked::NotOurs),
        Some(Fate::Doubtful) => Ok(Revoked::Doubtful),
        Some(Fate::Delete) => {
            coder.own_intents().forget_deletion(organization, &held.name);
            let message = format!(
                "cannot delete provisioner key {}: the account lacks the permission; grant it the role \
                 organization-template-admin",
                held.name
            );
            Err(Blocked { reason: Reason::Forbidden, message }.into())
        }
    }
}

/// The keys of the organization are not shown, so the key may well be there. A deleted organization still shows its keys; one
/// that nobody shows us at all is out of reach, and waiting would not change that.
async fn unseen(coder: &Coder, organization: Uuid, name: &str) -> Result<Revoked, Trouble> {
    if !coder.has_organization(organization).await? {
        return Ok(Revoked::OutOfReach);
    }
    let message = format!(
        "cannot determine whether provisioner key {name} exists: the account may not list the keys of the organization; grant \
         it the role organization-template-admin"
    );
    Err(Trouble::Blocked(Blocked { reason: Reason::Forbidden, message }))
}

fn live(key: &ProvisionerKey, daemons: usize) -> LiveKey {
    LiveKey {
        id: Some(key.id),
        name: key.name.clone(),
        organization_id: key.organization,
        tags: key.tags.clone(),
        created_at: key.created_at,
        daemons,
    }
}
