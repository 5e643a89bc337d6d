//! What is wanted and what is seen when it is decided; and how each answer changes what is seen.

use std::collections::{BTreeMap, BTreeSet};

use api::Reason;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::{
    names::{Names, tags_hash},
    own::{Came, OwnIntent},
    record::{Held, Intent, Place, Record, Retiring, SecretPlace},
};
use crate::pipeline::outcome::Blocked;

/// How old a list may be for a name to be free in it.
const RECENT: SignedDuration = SignedDuration::from_secs(10);
/// How far from an intent the key may have been made that came of it. The clocks are two.
pub(crate) const AROUND_INTENT: SignedDuration = SignedDuration::from_mins(15);

/// When a key is minted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Whatever is lost or differs is minted again: the daemons are ours too.
    Recreate,
    /// Only where there is none, and when somebody asks or the schedule says so: somebody else holds copies.
    OnRequest,
}

/// What a manifest asks for.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub policy: Policy,
    pub names: Names,
    pub organization_id: Uuid,
    pub organization_name: String,
    pub tags: BTreeMap<String, String>,
    pub place: Place,
    pub secret: SecretPlace,
    pub rotate_every: Option<SignedDuration>,
    /// The value of the annotation that asks for a rotation.
    pub rotate_request: Option<String>,
    /// After this time a retiring key goes in any case.
    pub grace: SignedDuration,
    /// Why no key is minted, and no value moved, although that is needed. What was begun is brought to its end.
    pub held_back: Option<Blocked>,
    /// Where keys are held back: whether a key that was begun is, too.
    pub leaves_begun: bool,
}

impl Wanted {
    /// The same while the plan waits: no key is minted, unless it was begun before, and no value moved.
    pub(crate) fn without_mint(&self) -> Self {
        Self { held_back: Some(not_minted()), ..self.clone() }
    }

    /// The same where keys are revoked, and none is minted, whatever was begun.
    pub(crate) fn only_revoking(&self) -> Self {
        Self { leaves_begun: true, ..self.without_mint() }
    }
}

/// Why a key is not there before its plan is carried out.
pub(crate) fn not_minted() -> Blocked {
    let message = "the key is minted once the plan is carried out".to_owned();
    Blocked { reason: Reason::Progressing, message }
}

/// Whose a Secret is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// It belongs to the object.
    Ours,
    Users,
}

/// A Secret, without its value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretSeen {
    /// Nothing when there is no such Secret.
    pub owner: Option<Owner>,
    /// Of the value, if there is one.
    pub checksum: Option<String>,
    pub record: Option<Record>,
    /// Another object that keeps its own key in it, in words.
    pub keeper: Option<String>,
    /// Why this object must not use the Secret.
    pub withheld: Option<Blocked>,
    /// It takes no other value; what is written about it can still change.
    pub is_immutable: bool,
}

/// A key in coderd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveKey {
    /// `None` for a key that was just minted: a list tells its id.
    pub id: Option<Uuid>,
    pub name: String,
    pub organization_id: Uuid,
    pub tags: BTreeMap<String, String>,
    pub created_at: Timestamp,
    /// How many daemons were seen on it lately.
    pub daemons: usize,
}

impl LiveKey {
    /// The key that coderd makes when it is asked for that of an intent. It keeps names in small letters.
    pub(crate) fn of_intent(intent: &Intent, wanted: &Wanted, now: Timestamp) -> Self {
        Self {
            id: None,
            name: intent.name.to_lowercase(),
            organization_id: intent.organization_id.unwrap_or(wanted.organization_id),
            tags: wanted.tags.clone(),
            created_at: now,
            daemons: 0,
        }
    }

    /// Whether both are the same key.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self.id, other.id) {
            (Some(id), Some(other)) => id == other,
            _ => self.name.eq_ignore_ascii_case(&other.name) && self.organization_id == other.organization_id,
        }
    }
}

/// Which key the value in the Secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    NotAsked,
    /// The record says so, and coderd lists the key.
    Before(LiveKey),
    /// coderd said so in this pass.
    Now(LiveKey),
    /// coderd does not take it.
    Refused,
}

/// The pods that use the keys; those that are terminating included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pods {
    /// The checksums that they carry.
    pub carried: BTreeSet<String>,
    /// The checksums that pods get which come now; nothing where nobody has looked.
    pub given: Option<BTreeSet<String>>,
    /// The entries that they read.
    pub secrets: BTreeSet<SecretPlace>,
    /// Whether there should be any.
    pub are_wanted: bool,
    /// How long any of them may take to end: those that are there may have more time than is declared now.
    pub grace: SignedDuration,
}

/// A key that was minted in this pass. Its value is with whoever does the actions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Minted {
    pub intent: Intent,
    pub checksum: String,
    pub key: LiveKey,
}

/// What is known when it is decided.
#[derive(Debug, Clone)]
pub struct Seen {
    pub secret: SecretSeen,
    /// The entry where the value was before, where that is another one.
    pub former: Option<SecretSeen>,
    /// What the object's status says.
    pub mirror: Record,
    /// Whether records are written into the status.
    pub writes_status: bool,
    /// The newest copy that this process has read or written.
    pub remembered: Option<Record>,
    /// The keys of the organization.
    pub listed: Vec<LiveKey>,
    pub listed_at: Timestamp,
    pub proof: Proof,
    /// Nothing where the pods are not ours.
    pub pods: Option<Pods>,
    /// The intent that this process wrote last.
    pub(crate) own_intent: Option<OwnIntent>,
    /// Whether list and Secret were read, in this order, since we last asked for a key.
    pub(crate) has_looked: bool,
    pub(crate) minted: Option<Minted>,
    /// The intents whose keys coderd has made in this pass.
    pub(crate) made: Vec<Intent>,
    /// Keys of other objects that have the names of such as we may have lost.
    pub(crate) others: Vec<Held>,
    /// Retiring keys that are gone, or not ours to revoke.
    pub(crate) gone: Vec<Held>,
    /// Retiring keys that nobody can reach any more.
    pub(crate) left: Vec<Held>,
    /// Retiring keys that could not be revoked in this pass.
    pub(crate) failed: Vec<Held>,
    /// Former entries that are removed.
    pub(crate) removed: Vec<SecretPlace>,
}

/// What may become of a key that is to be revoked, given what coderd has under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Gone,
    Delete,
    /// Another key has the name by now.
    NotOurs,
    /// Only the time says that it is another key, and the clocks are two.
    Doubtful,
}

impl Seen {
    pub fn new(secret: SecretSeen, mirror: Record, listed: Vec<LiveKey>, listed_at: Timestamp) -> Self {
        Self {
            secret,
            former: None,
            mirror,
            writes_status: false,
            remembered: None,
            listed,
            listed_at,
            proof: Proof::NotAsked,
            pods: None,
            own_intent: None,
            has_looked: false,
            minted: None,
            made: Vec::new(),
            others: Vec::new(),
            gone: Vec::new(),
            left: Vec::new(),
            failed: Vec::new(),
            removed: Vec::new(),
        }
    }

    /// The list and then the Secret were read anew.
    pub fn looked(&mut self, listed: Vec<LiveKey>, secret: SecretSeen, now: Timestamp) {
        (self.listed, self.listed_at, self.has_looked) = (listed, now, true);
        self.reread(secret);
    }

    /// The Secret is not as it was: somebody else has written it, or made it.
    pub fn overtaken(&mut self, secret: SecretSeen) {
        self.has_looked = false;
        self.reread(secret);
    }

    /// The Secret was read anew.
    pub fn reread(&mut self, secret: SecretSeen) {
        if secret.checksum != self.secret.checksum {
            self.proof = Proof::NotAsked;
        }
        self.secret = secret;
    }

    /// A record was written, with a value or without.
    pub fn wrote(&mut self, record: &Record, value: &Value) {
        self.own_intent = self.own_after(record);
        match value {
            Value::Keep => {}
            Value::Minted => {
                let minted = self.minted.take();
                let checksum = minted.as_ref().map(|it| it.checksum.clone());
                self.reread(SecretSeen { checksum, ..self.secret.clone() });
                if let Some(minted) = minted {
                    // The answer to the request for a key is the proof.
                    self.proved(Some(minted.key));
                }
            }
            Value::Former => {
                let checksum = self.former.as_ref().and_then(|it| it.checksum.clone());
                self.reread(SecretSeen { checksum, ..self.secret.clone() });
            }
        }
        let is_intended = |it: &Intent| {
            record.intent.as_ref().is_some_and(|intent| intent.is_called(&it.name, it.organization_id))
        };
        if self.minted.as_ref().is_some_and(|it| !is_intended(&it.intent)) {
            // It is in the record as lost.
            self.minted = None;
        }
        self.secret.owner.get_or_insert(Owner::Ours);
        self.secret.record = Some(record.clone());
        self.remember(record);
    }

    /// Keeps a copy, unless a newer one is kept.
    pub fn remember(&mut self, record: &Record) {
        if self.remembered.as_ref().is_none_or(|it| it.rank() <= record.rank()) {
            self.remembered = Some(record.clone());
        }
    }

    /// The intent that is ours when that record is written. One that stays as somebody else wrote it stays theirs.
    fn own_after(&self, record: &Record) -> Option<OwnIntent> {
        let intent = record.intent.as_ref()?;
        let stored = self.secret.record.as_ref().and_then(|it| it.intent.as_ref());
        if stored == Some(intent) {
            return self.own_intent.clone();
        }
        let is_it = |it: &Intent| it.is_called(&intent.name, intent.organization_id);
        let former = self.former.iter().filter_map(|it| it.record.as_ref());
        let records = self.secret.record.iter().chain(former).chain([&self.mirror]);
        let came = match &self.own_intent {
            Some(own) if stored == Some(&own.intent) && is_it(&own.intent) => own.came,
            _ if records.filter_map(|it| it.intent.as_ref()).any(is_it) => Came::Maybe,
            _ => Came::Nothing,
        };
        Some(OwnIntent { intent: intent.clone(), came })
    }

    /// What came of an intent, if this process wrote it last.
    pub(crate) fn came(&self, intent: &Intent) -> Option<Came> {
        self.own_intent.as_ref().filter(|it| it.intent == *intent).map(|it| it.came)
    }

    /// What is about to be minted stands in the status.
    pub fn begun(&mut self, record: &Record) {
        self.own_intent = self.own_after(record);
        self.mirror = record.clone();
        self.remember(record);
    }

    pub fn mirrored(&mut self, record: &Record) {
        let is_given_up = |it: &Minted| {
            record.retiring.iter().any(|one| one.held.is_called(&it.intent.name, it.intent.organization_id))
        };
        self.minted = self.minted.take().filter(|it| !is_given_up(it));
        self.mirror = record.clone();
        self.remember(record);
    }

    /// coderd has made the key of an intent.
    pub fn minted(&mut self, intent: &Intent, checksum: String, key: LiveKey) {
        self.minted = Some(Minted { intent: intent.clone(), checksum, key });
        self.made.push(intent.clone());
        self.unclear();
    }

    /// The key that the value in the Secret is by the newest record, if coderd still lists that key: the value of a key never
    /// changes, so coderd need not be asked.
    pub(crate) fn recorded(&self, wanted: &Wanted, newest: &Record) -> Option<&LiveKey> {
        let held = newest.current.as_ref().filter(|it| it.place.is_same(&wanted.place))?;
        let is_value = !held.checksum.is_empty() && self.secret.checksum.as_ref() == Some(&held.checksum);
        self.listed.iter().find(|it| is_value && is_listed_as(newest, held, it))
    }

    /// Whether a key was minted is not known.
    pub fn unclear(&mut self) {
        self.has_looked = false;
        if let Some(own) = &mut self.own_intent {
            own.came = Came::Maybe;
        }
    }

    /// Somebody else has the name of our intent.
    pub fn taken(&mut self) {
        if let Some(own) = &mut self.own_intent {
            own.came = Came::Others;
        }
    }

    pub fn proved(&mut self, key: Option<LiveKey>) {
        if let Some(key) = &key
            && !self.listed.iter().any(|it| it.is(key))
        {
            self.listed.push(key.clone());
        }
        self.proof = key.map_or(Proof::Refused, Proof::Now);
    }

    /// A retiring key is gone, or not ours after all.
    pub fn gone(&mut self, held: &Held) {
        self.listed.retain(|it| !held.is_called(&it.name, Some(it.organization_id)));
        self.gone.push(held.clone());
    }

    /// Nobody can reach a retiring key any more.
    pub fn left(&mut self, held: &Held) {
        self.left.push(held.clone());
    }

    /// A retiring key could not be revoked now.
    pub fn failed(&mut self, held: &Held) {
        self.failed.push(held.clone());
    }

    pub fn removed(&mut self, place: &SecretPlace) {
        self.removed.push(place.clone());
    }

    /// The key in coderd that has this name.
    pub fn find(&self, name: &str) -> Option<&LiveKey> {
        self.listed.iter().find(|it| it.name.eq_ignore_ascii_case(name))
    }

    /// Whether nothing about the list can have changed for long.
    pub(crate) fn is_recent(&self, now: Timestamp) -> bool {
        now.duration_since(self.listed_at).abs() <= RECENT
    }

    /// The key that the value in the Secret is, if coderd takes it.
    pub(crate) fn live(&self) -> Option<&LiveKey> {
        match &self.proof {
            Proof::Before(key) | Proof::Now(key) => Some(key),
            Proof::NotAsked | Proof::Refused => None,
        }
    }

    /// The record in the Secret, if it is this object's.
    pub(crate) fn stored(&self, wanted: &Wanted) -> Option<&Record> {
        let is_own = |it: &&Record| it.holder.is_empty() || it.holder == wanted.names.uid;
        self.secret.record.as_ref().filter(is_own)
    }

    pub(crate) fn is_others(&self, held: &Held) -> bool {
        self.others.iter().any(|it| it.is_called(&held.name, held.organization_id))
    }

    pub(crate) fn was_tried(&self, held: &Held) -> bool {
        let mut tried = self.gone.iter().chain(&self.left).chain(&self.failed);
        tried.any(|it| it.is_called(&held.name, held.organization_id))
    }
}

impl SecretSeen {
    /// Whether a person brought it: then nothing of it is ever written.
    pub fn is_users(&self, uid: &str) -> bool {
        let has_own_record = self.record.as_ref().is_some_and(|it| it.holder == uid);
        self.owner == Some(Owner::Users) && !has_own_record
    }
}

/// Whether a key of a list is the current one of a record. One that we minted, and whose id nobody has told yet, is known by its
/// name, its tags and its time.
fn is_listed_as(record: &Record, held: &Held, key: &LiveKey) -> bool {
    if held.id.is_some() {
        return held.id == key.id;
    }
    let is_of_its_time =
        record.rotated_at.is_some_and(|it| key.created_at.duration_since(it).abs() <= AROUND_INTENT);
    held.is_ours
        && is_of_its_time
        && held.is_called(&key.name, Some(key.organization_id))
        && held.tags_hash == tags_hash(&key.tags)
}

/// Pure: whether the key that coderd has is the one that is to be revoked. Names alone are not enough: a person may have
/// made another key under a name that was free again, and a lost key has never had a daemon.
pub fn fate(retiring: &Retiring, found: Option<&LiveKey>) -> Fate {
    let Some(found) = found else { return Fate::Gone };
    let Retiring { held, since, lost } = retiring;
    if let Some(id) = held.id {
        return if found.id == Some(id) { Fate::Delete } else { Fate::NotOurs };
    }
    let has_its_tags = held.tags_hash.is_empty() || held.tags_hash == tags_hash(&found.tags);
    let is_of_its_time = found.created_at.duration_since(*since).abs() <= AROUND_INTENT;
    match (has_its_tags, lost) {
        (true, false) => Fate::Delete,
        (true, true) if found.daemons == 0 => {
            if is_of_its_time {
                Fate::Delete
            } else {
                Fate::Doubtful
            }
        }
        _ => Fate::NotOurs,
    }
}

/// What is written into the Secret beside the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The value that is there, or none.
    Keep,
    /// The one that was minted.
    Minted,
    /// The one from where it was before.
    Former,
}
