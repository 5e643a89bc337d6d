//! The Secrets with the value of a key and the record beside it: always written together, on the version that was read.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use api::{Reason, annotation};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use client::scrub::clean;
use jiff::SignedDuration;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt as _;
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    holder::Holder,
    memory::KeyStore,
    record::{Record, SecretPlace},
    secret_read::SecretRead,
    situation::Owner,
};
use crate::{
    pipeline::outcome::{Blocked, Trouble},
    ports::{ClusterError, Only, object::Key},
    secrets::own_secrets,
};

/// The pauses before a value that is nowhere else is written once more. Definitions, namespaces and webhooks that have just come
/// are known to every API server within seconds.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// The longest pause that the API server may ask for. After a longer one the next reconcile goes on.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// After this time no other attempt is begun.
const LONGEST: SignedDuration = SignedDuration::from_secs(20);

/// What came of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The version from now on.
    Done(String),
    /// It is no longer as it was read.
    Conflict,
}

/// Why a Secret was not written.
#[derive(Debug)]
pub(crate) struct Unwritten {
    blocked: Blocked,
    /// Whether the API server may have written the Secret all the same.
    pub(crate) may_be_done: bool,
    /// How long the API server asks to wait.
    asked: Duration,
}

impl Unwritten {
    /// What the API server says may repeat what was sent.
    fn new(error: &ClusterError, secret: &Secret) -> Self {
        let values = secret.data.iter().flat_map(BTreeMap::values);
        let values =
            values.flat_map(|it| [String::from_utf8_lossy(&it.0).into_owned(), STANDARD.encode(&it.0)]);
        let values: Vec<String> = values.filter(|it| !it.is_empty()).collect();
        let said = clean(&error.to_string(), &values.iter().map(String::as_str).collect::<Vec<_>>());
        let seconds = match error {
            ClusterError::Refused(status) => status.details.as_ref().map(|it| it.retry_after_seconds),
            ClusterError::NoAnswer(_) | ClusterError::NoCluster(_) => None,
        };
        let message = format!("Secret {} cannot be written: {said}", secret.name_any());
        Self {
            blocked: Blocked { reason: Reason::SecretNotWritten, message },
            may_be_done: error.may_have_taken_effect(),
            asked: Duration::from_secs(seconds.unwrap_or_default().into()),
        }
    }
}

impl From<Unwritten> for Trouble {
    fn from(unwritten: Unwritten) -> Self {
        unwritten.blocked.into()
    }
}

/// The Secrets of one object.
#[derive(Debug)]
pub struct KeySecrets<'a> {
    store: KeyStore<'a>,
    holder: &'a Holder,
    /// As they were last read or written, by name.
    last: Mutex<HashMap<String, Kept>>,
}

/// A Secret, which nobody sees by accident.
#[derive(Clone)]
struct Kept(Secret);

impl std::fmt::Debug for Kept {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Secret {}", self.0.name_any())
    }
}

impl<'a> KeySecrets<'a> {
    pub fn new(store: KeyStore<'a>, holder: &'a Holder) -> Self {
        Self { store, holder, last: Mutex::default() }
    }

    async fn find(&self, name: &str) -> Result<Option<Secret>, Trouble> {
        let Holder { namespace, uid, .. } = self.holder;
        self.store.cluster.secret(namespace, name, uid).await.map_err(|error| {
            let message = format!("Secret {name} cannot be read: {error}");
            Blocked { reason: Reason::SecretUnreadable, message }.into()
        })
    }

    /// Whether it may be taken away: where Secrets have no owner, the record says whose they are.
    fn is_ours_to_remove(&self, secret: &Secret) -> bool {
        let is_its = |holder: &str| holder == self.holder.uid || holder == self.holder.of_file();
        let holds = || record(secret).is_some_and(|it| is_its(&it.holder));
        is_owned_by(&self.holder.uid, secret) || (self.holder.owner.is_none() && holds())
    }

    /// The record of a key that the command line has minted from a file is that of the object of the same name.
    fn with_holder(&self, mut read: SecretRead) -> SecretRead {
        let of_file = self.holder.of_file();
        if let Some(record) = read.record.as_mut().filter(|it| it.holder == of_file) {
            record.holder.clone_from(&self.holder.uid);
        }
        read
    }

    /// Keeps a Secret as it is now, and returns what it holds.
    fn keep(&self, place: &SecretPlace, secret: Secret) -> SecretRead {
        let read = self.with_holder(read(&secret, &self.holder.uid, &place.key));
        self.store.memory.keep_read(self.holder, place, Some(&read));
        self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(secret.name_any(), Kept(secret));
        read
    }

    fn last(&self, name: &str) -> Option<Secret> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(name).map(|it| it.0.clone())
    }

    fn new_secret(&self, name: &str) -> Secret {
        let Holder { namespace, labels, owner, .. } = self.holder;
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.clone()),
            labels: (!labels.is_empty()).then(|| labels.clone()),
            owner_references: owner.clone().map(|it| vec![it]),
            ..ObjectMeta::default()
        };
        Secret { metadata, type_: Some("Opaque".to_owned()), ..Secret::default() }
    }
}

impl KeySecrets<'_> {
    /// Reads a Secret as it is now.
    pub async fn read(&self, place: &SecretPlace) -> Result<Option<SecretRead>, Trouble> {
        let Some(secret) = self.find(&place.name).await? else {
            self.last.lock().unwrap_or_else(PoisonError::into_inner).remove(&place.name);
            self.store.memory.keep_read(self.holder, place, None);
            return Ok(None);
        };
        Ok(Some(self.keep(place, secret)))
    }

    /// Returns what is known of a Secret without reading it, and without its value. `None` where it has to be read.
    pub async fn last_read(&self, place: &SecretPlace) -> Option<SecretRead> {
        let known = self.store.memory.last_read(self.holder, place);
        if known.is_none() && self.holder.verified.is_none() {
            return None;
        }
        let now = self.store.cluster.secret_metadata(&self.holder.namespace, &place.name).await.ok()??;
        let known = known.or_else(|| self.verified(place, &now))?;
        (known.version == version(&now)).then_some(known)
    }

    /// What a Secret holds that has not changed since its value was verified: the status says which version that was, and the
    /// metadata has the rest.
    fn verified(&self, place: &SecretPlace, now: &ObjectMeta) -> Option<SecretRead> {
        let verified = self.holder.verified.as_ref()?;
        let secret = Secret { metadata: now.clone(), ..Secret::default() };
        let read = self.with_holder(read(&secret, &self.holder.uid, &place.key));
        let checksum = read.record.as_ref()?.current.as_ref()?.checksum.clone();
        let is_it = verified.place == *place && verified.version == read.version;
        (is_it && verified.checksum == checksum).then(|| SecretRead { checksum: Some(checksum), ..read })
    }

    /// The version of a Secret that holds the value with this checksum. `None` where that is not known.
    pub fn version_of(&self, place: &SecretPlace, checksum: &str) -> Option<String> {
        if let Some(known) = self.store.memory.last_read(self.holder, place) {
            return (known.checksum.as_deref() == Some(checksum)).then_some(known.version);
        }
        let verified = self.holder.verified.as_ref().filter(|it| it.place == *place);
        verified.filter(|it| it.checksum == checksum).map(|it| it.version.clone())
    }

    /// Writes record, and value where there is one, at once; only if the Secret still has that version, or, without
    /// one, if there is no such Secret.
    pub(crate) async fn write(
        &self,
        place: &SecretPlace,
        record: &Record,
        value: Option<&SecretString>,
        version: Option<&str>,
    ) -> Result<Written, Unwritten> {
        let known = self.last(&place.name).filter(|it| version == Some(&self::version(&it.metadata)));
        if version.is_some() && known.is_none() {
            return Ok(Written::Conflict);
        }
        let is_there = known.is_some();
        let mut secret = known.unwrap_or_else(|| self.new_secret(&place.name));
        let text = serde_json::to_string(record).unwrap_or_default();
        secret.annotations_mut().insert(annotation::PROVISIONER_KEY.to_owned(), text);
        if let Some(value) = value {
            let bytes = ByteString(value.expose_secret().as_bytes().to_vec());
            secret.data.get_or_insert_with(BTreeMap::new).insert(place.key.clone(), bytes);
        }
        match self.store.cluster.put(&secret, is_there, &self.holder.uid).await {
            Ok(written) => {
                let version = self::version(&written.metadata);
                self.keep(place, written);
                Ok(Written::Done(version))
            }
            Err(error) if is_overtaken(&error, &place.name) => Ok(Written::Conflict),
            Err(error) => Err(Unwritten::new(&error, &secret)),
        }
    }

    /// The same for a value that is nowhere else: a write that is refused is made again a few times.
    pub(crate) async fn write_surely(
        &self,
        place: &SecretPlace,
        record: &Record,
        value: &SecretString,
        version: Option<&str>,
    ) -> Result<Written, Unwritten> {
        let cluster = self.store.cluster;
        let begun = cluster.now();
        let (mut pauses, mut may_be_done) = (PAUSES.into_iter(), false);
        loop {
            let unwritten = match self.write(place, record, Some(value), version).await {
                Ok(written) => return Ok(written),
                Err(unwritten) => unwritten,
            };
            may_be_done |= unwritten.may_be_done;
            let is_over = cluster.now().duration_since(begun) > LONGEST || unwritten.asked > LONGEST_PAUSE;
            match pauses.next().filter(|_| !is_over) {
                Some(pause) => cluster.pause(pause.max(unwritten.asked)).await,
                None => return Err(Unwritten { may_be_done, ..unwritten }),
            }
        }
    }

    /// Removes the entry, and the Secret where nothing else is in it. What is gone or not ours is left as it is.
    pub async fn remove(&self, place: &SecretPlace) -> Result<(), Trouble> {
        let Holder { namespace, uid, owner, .. } = self.holder;
        let found = self.find(&place.name).await?;
        let Some(mut secret) = found.filter(|it| self.is_ours_to_remove(it)) else { return Ok(()) };
        let is_alone = secret.data.iter().flatten().all(|(key, _)| *key == place.key);
        self.store.memory.keep_read(self.holder, place, None);
        let done = if is_alone {
            let key = Key::new("v1", "Secret", namespace, &place.name);
            let secret_uid = secret.uid().unwrap_or_default();
            let version = secret.resource_version();
            self.store.cluster.delete(&key, Only { uid: &secret_uid, version: version.as_deref() }).await
        } else {
            secret.data.iter_mut().for_each(|it| drop(it.remove(&place.key)));
            if owner.is_none() {
                // What is left is somebody else's.
                secret.annotations_mut().remove(annotation::PROVISIONER_KEY);
            }
            self.store.cluster.put(&secret, true, uid).await.map(drop)
        };
        match done {
            Err(error) if error.is_missing() => Ok(()),
            done => done.map_err(|error| {
                let message = format!("Secret {} cannot be taken away: {error}", place.name);
                Trouble::Blocked(Blocked { reason: Reason::SecretNotWritten, message })
            }),
        }
    }
}

/// What the object with that uid may know of a Secret.
fn read(secret: &Secret, uid: &str, key: &str) -> SecretRead {
    let withheld = own_secrets::withheld(&secret.metadata, uid);
    let is_open = withheld.is_none();
    let value = is_open.then(|| value(secret, key)).flatten();
    SecretRead {
        owner: if is_owned_by(uid, secret) { Owner::Ours } else { Owner::Users },
        checksum: SecretRead::checksum_of(value.as_ref()),
        value,
        record: is_open.then(|| record(secret)).flatten(),
        withheld,
        version: version(&secret.metadata),
        is_immutable: secret.immutable.unwrap_or_default(),
    }
}

/// The version of a Secret. Another Secret of the same name is another version.
fn version(metadata: &ObjectMeta) -> String {
    let text = |it: &Option<String>| it.clone().unwrap_or_default();
    format!("{}/{}", text(&metadata.uid), text(&metadata.resource_version))
}

fn is_owned_by(uid: &str, secret: &Secret) -> bool {
    secret.owner_references().iter().any(|it| it.uid == uid)
}

/// Whether the Secret is not as it was read. An answer about its namespace is none about the Secret: that one is gone when it
/// is missing.
fn is_overtaken(error: &ClusterError, name: &str) -> bool {
    let ClusterError::Refused(status) = error else { return false };
    let is_about = status.details.as_ref().is_none_or(|it| it.name.is_empty() || it.name == name);
    [404, 409].contains(&status.code) && is_about
}

fn record(secret: &Secret) -> Option<Record> {
    secret.annotations().get(annotation::PROVISIONER_KEY).and_then(|it| serde_json::from_str(it).ok())
}

fn value(secret: &Secret, key: &str) -> Option<SecretString> {
    let text = str::from_utf8(&secret.data.as_ref()?.get(key)?.0).ok()?.trim();
    (!text.is_empty()).then(|| SecretString::from(text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn secret(metadata: &Value) -> Secret {
        let data = json!({"key": "dmFsdWU="});
        let mut secret: Secret = serde_json::from_value(json!({"data": data})).unwrap();
        secret.metadata = serde_json::from_value(metadata.clone()).unwrap();
        secret
    }

    #[test]
    fn value_of_another_objects_secret_is_not_read() {
        let owner = json!([{"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "name": "x", "uid": "u"}]);
        let of_coder_k8s = json!({"name": "x-provisioner-key", "ownerReferences": owner});
        let mut recorded = of_coder_k8s.clone();
        recorded["annotations"] = json!({annotation::PROVISIONER_KEY: "{}"});
        let unreadable = json!({"annotations": {annotation::PROVISIONER_KEY: "?"}});
        for (metadata, reason) in [
            (of_coder_k8s.clone(), Reason::HeldByOther),
            (recorded, Reason::HeldByOther),
            (unreadable, Reason::SecretNotAllowed),
        ] {
            let read = read(&secret(&metadata), "y", "key");
            assert!(read.value.is_none() && read.record.is_none(), "{metadata}");
            assert_eq!(read.withheld.unwrap().reason, reason);
        }
        for (metadata, uid) in [(of_coder_k8s, "u"), (json!({"name": "own"}), "y")] {
            let read = read(&secret(&metadata), uid, "key");
            assert!(read.value.is_some() && read.withheld.is_none(), "{metadata}");
        }
    }

    #[test]
    fn answer_that_repeats_what_was_sent_is_reported_without_it() {
        let value = "a-key-that-nobody-may-see";
        let mut secret = secret(&json!({"name": "x"}));
        secret.data = Some(BTreeMap::from([("key".to_owned(), ByteString(value.as_bytes().to_vec()))]));
        let encoded = STANDARD.encode(value);
        let error = ClusterError::refusal(403, "Forbidden", &format!("policy denies {encoded} and {value}"));
        let message = Unwritten::new(&error, &secret).blocked.message;
        assert!(
            message.starts_with("Secret x cannot be written: ") && message.contains("policy denies"),
            "{message}"
        );
        assert!(!message.contains(value) && !message.contains(&encoded), "{message}");
    }
}
