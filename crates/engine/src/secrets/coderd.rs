//! What the life of keys needs of a deployment, and how it is had.

use std::collections::BTreeMap;

use api::Reason;
use jiff::Timestamp;
use secrecy::SecretString;
use uuid::Uuid;

use super::{
    own::OwnIntents,
    record::Retiring,
    situation::{Fate, LiveKey, fate},
};
use crate::pipeline::outcome::{Blocked, Trouble};

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

/// What became of a key that was to be revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revoked {
    Done,
    /// There was no such key.
    Absent,
    /// Another key has the name by now; it was left alone.
    NotOurs,
    /// A key has the name that may be ours or a stranger's: it stays, and is named.
    Doubtful,
    /// Its place is gone, or nobody knows where it is: it stays, and is named.
    OutOfReach,
}

/// A list of keys, and when it was read.
#[derive(Debug, Clone)]
pub struct Listing {
    pub keys: Vec<LiveKey>,
    pub at: Timestamp,
    /// Whether coderd showed it. To somebody who may not see the organization it says the same as when there is none.
    pub is_shown: bool,
}

/// A deployment, as far as keys are concerned.
pub trait Coderd: Sync {
    /// The keys of an organization: as they were read by whomever, or read after this call. An organization that is not
    /// there, or not for us to see, has none.
    fn list(
        &self,
        organization: Uuid,
        is_anew: bool,
        now: Timestamp,
    ) -> impl Future<Output = Result<Listing, Trouble>> + Send;

    fn mint(
        &self,
        organization: Uuid,
        name: &str,
        tags: &BTreeMap<String, String>,
    ) -> impl Future<Output = Minting> + Send;

    /// Deletes a key by name. Says whether there was one, as far as coderd tells.
    fn delete(&self, organization: Uuid, name: &str) -> impl Future<Output = Result<bool, Trouble>> + Send;

    /// Which key a value is.
    fn prove(&self, value: &SecretString) -> impl Future<Output = Result<Option<LiveKey>, Trouble>> + Send;

    /// Whether there is such an organization now, and we may see it.
    fn has_organization(&self, organization: Uuid) -> impl Future<Output = Result<bool, Trouble>> + Send;

    /// What this process knows of its own intents.
    fn own_intents(&self) -> &OwnIntents;
}

/// Revokes a key, if it is still the one that is meant. A name that says by itself that it is ours needs no look at the list.
/// A key that is gone after a deletion whose answer was lost counts as revoked.
pub async fn revoke(
    coderd: &impl Coderd,
    retiring: &Retiring,
    is_ours_by_name: bool,
    now: Timestamp,
) -> Result<Revoked, Trouble> {
    let compared = Compared { is_ours_by_name, is_anew: !is_ours_by_name };
    revoke_compared(coderd, retiring, compared, now).await
}

/// The same with a list that is as recent as the deployment is read: for a caller who knows since when that has to be.
pub async fn revoke_as_read(
    coderd: &impl Coderd,
    retiring: &Retiring,
    is_ours_by_name: bool,
    now: Timestamp,
) -> Result<Revoked, Trouble> {
    revoke_compared(coderd, retiring, Compared { is_ours_by_name, is_anew: false }, now).await
}

/// How it is known that the key of a name is the one that is meant.
#[derive(Clone, Copy)]
struct Compared {
    is_ours_by_name: bool,
    /// Whether the list is read after the call.
    is_anew: bool,
}

async fn revoke_compared(
    coderd: &impl Coderd,
    retiring: &Retiring,
    compared: Compared,
    now: Timestamp,
) -> Result<Revoked, Trouble> {
    let held = &retiring.held;
    let Some(organization) = held.organization_id else { return Ok(Revoked::OutOfReach) };
    let done = try_revoke(coderd, retiring, organization, compared, now).await?;
    let was_asked = coderd.own_intents().forget_deletion(organization, &held.name);
    Ok(if done == Revoked::Absent && was_asked { Revoked::Done } else { done })
}

async fn try_revoke(
    coderd: &impl Coderd,
    retiring: &Retiring,
    organization: Uuid,
    Compared { is_ours_by_name, is_anew }: Compared,
    now: Timestamp,
) -> Result<Revoked, Trouble> {
    let held = &retiring.held;
    let look = async |is_anew| {
        let listing = coderd.list(organization, is_anew, now).await?;
        let found = listing.keys.into_iter().find(|it| it.name.eq_ignore_ascii_case(&held.name));
        Ok::<_, Trouble>(listing.is_shown.then(|| fate(retiring, found.as_ref())))
    };
    let was_listed = match look(is_anew).await? {
        None => return unseen(coderd, organization, &held.name).await,
        Some(Fate::NotOurs) => return Ok(Revoked::NotOurs),
        Some(Fate::Doubtful) => return Ok(Revoked::Doubtful),
        Some(Fate::Gone) if !is_ours_by_name => return Ok(Revoked::Absent),
        Some(fate) => fate == Fate::Delete,
    };
    let is_new = coderd.own_intents().note_deletion(organization, &held.name);
    let deleted = coderd.delete(organization, &held.name).await;
    let nothing_was_done = match &deleted {
        // One that was not listed before has not been deleted by us.
        Ok(found) => !found && !was_listed,
        Err(Trouble::Remote(error)) => error.nothing_was_done(),
        Err(Trouble::Blocked(_) | Trouble::Stale) => false,
    };
    if nothing_was_done && is_new {
        coderd.own_intents().forget_deletion(organization, &held.name);
    }
    if deleted? {
        return Ok(Revoked::Done);
    }
    // To an account that may not delete it coderd says the same as when it is gone.
    match look(true).await? {
        None => unseen(coderd, organization, &held.name).await,
        Some(Fate::Gone) => Ok(Revoked::Absent),
        Some(Fate::NotOurs) => Ok(Revoked::NotOurs),
        Some(Fate::Doubtful) => Ok(Revoked::Doubtful),
        Some(Fate::Delete) => {
            coderd.own_intents().forget_deletion(organization, &held.name);
            let message =
                format!("key {} is there and cannot be deleted: the account has no right to", held.name);
            Err(Blocked { reason: Reason::Forbidden, message }.into())
        }
    }
}

/// The keys of the organization are not shown, so the key may well be there. A deleted organization still shows its keys; one
/// that nobody shows us at all is out of reach, and waiting would not change that.
async fn unseen(coderd: &impl Coderd, organization: Uuid, name: &str) -> Result<Revoked, Trouble> {
    if !coderd.has_organization(organization).await? {
        return Ok(Revoked::OutOfReach);
    }
    let message = format!(
        "whether key {name} is there cannot be seen: the account has no right to the keys of its organization"
    );
    Err(Trouble::Blocked(Blocked { reason: Reason::Forbidden, message }))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::FutureExt as _;

    use super::*;
    use crate::secrets::Held;

    const ORGANIZATION: Uuid = Uuid::from_u128(1);

    /// What is answered to a deletion, which is always done.
    #[derive(Clone, Copy)]
    enum Answer {
        Told,
        Lost,
        /// The client has tried twice.
        NotFound,
    }

    struct Deployment {
        keys: Mutex<Vec<LiveKey>>,
        answer: Answer,
        own: OwnIntents,
        /// Which lists were read, and whether anew.
        lists: Mutex<Vec<bool>>,
    }

    impl Coderd for Deployment {
        async fn list(&self, _: Uuid, is_anew: bool, now: Timestamp) -> Result<Listing, Trouble> {
            self.lists.lock().unwrap().push(is_anew);
            Ok(Listing { keys: self.keys.lock().unwrap().clone(), at: now, is_shown: true })
        }

        async fn mint(&self, _: Uuid, _: &str, _: &BTreeMap<String, String>) -> Minting {
            Minting::Taken
        }

        async fn delete(&self, _: Uuid, _: &str) -> Result<bool, Trouble> {
            let was_there = self.keys.lock().unwrap().pop().is_some();
            match self.answer {
                Answer::Told => Ok(was_there),
                Answer::Lost => Err(Blocked { reason: Reason::Unreachable, message: String::new() }.into()),
                Answer::NotFound => Ok(false),
            }
        }

        async fn prove(&self, _: &SecretString) -> Result<Option<LiveKey>, Trouble> {
            Ok(None)
        }

        async fn has_organization(&self, _: Uuid) -> Result<bool, Trouble> {
            Ok(true)
        }

        fn own_intents(&self) -> &OwnIntents {
            &self.own
        }
    }

    #[test]
    fn revocation_compares_with_a_list_as_recent_as_it_was_asked_for() {
        let held = Held {
            name: "alpha".to_owned(),
            id: Some(Uuid::from_u128(2)),
            organization_id: Some(ORGANIZATION),
            is_ours: true,
            ..Held::default()
        };
        let retiring = Retiring { held, since: Timestamp::UNIX_EPOCH, lost: false };
        let deployment = || Deployment {
            keys: Mutex::default(),
            answer: Answer::Told,
            own: OwnIntents::default(),
            lists: Mutex::default(),
        };
        let (read, now) = (deployment(), Timestamp::UNIX_EPOCH);
        revoke(&read, &retiring, false, now).now_or_never().unwrap().unwrap();
        assert_eq!(*read.lists.lock().unwrap(), [true], "the name may be another key's by now");
        let read = deployment();
        revoke_as_read(&read, &retiring, false, now).now_or_never().unwrap().unwrap();
        assert_eq!(*read.lists.lock().unwrap(), [false]);
    }

    /// What two attempts to revoke a key come to; the second is made where the first fails.
    fn revoked(is_there: bool, answer: Answer, is_ours_by_name: bool) -> Revoked {
        let key = LiveKey {
            id: Uuid::from_u128(2),
            name: "alpha".to_owned(),
            organization_id: ORGANIZATION,
            tags: BTreeMap::new(),
            created_at: Timestamp::UNIX_EPOCH,
            daemons: 0,
        };
        let held = Held {
            name: key.name.clone(),
            id: Some(key.id),
            organization_id: Some(ORGANIZATION),
            is_ours: true,
            ..Held::default()
        };
        let keys = Mutex::new(is_there.then_some(key).into_iter().collect());
        let mut deployment = Deployment { keys, answer, own: OwnIntents::default(), lists: Mutex::default() };
        let retiring = Retiring { held, since: Timestamp::UNIX_EPOCH, lost: false };
        let attempt = |it: &Deployment| {
            revoke(it, &retiring, is_ours_by_name, Timestamp::UNIX_EPOCH).now_or_never().unwrap()
        };
        attempt(&deployment).unwrap_or_else(|_| {
            deployment.answer = Answer::Told;
            attempt(&deployment).unwrap()
        })
    }

    #[test]
    fn deletion_whose_answer_is_lost_counts_as_revocation() {
        for is_ours_by_name in [true, false] {
            for answer in [Answer::Told, Answer::Lost, Answer::NotFound] {
                assert_eq!(revoked(true, answer, is_ours_by_name), Revoked::Done);
            }
            assert_eq!(revoked(false, Answer::Told, is_ours_by_name), Revoked::Absent, "it was never there");
        }
    }
}
