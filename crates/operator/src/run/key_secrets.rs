//! The Secret with a key's value and the record beside it: always written together, on the version that was read.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use api::{Reason, annotation};
use engine::{
    Blocked, Trouble, own_secrets,
    provisioner_keys::{KeySecret, Owner, Record, SecretPlace, SecretRead, Written},
};
use k8s_openapi::{
    ByteString,
    api::core::v1::Secret,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Preconditions},
};
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    record::writes,
    secret_cache::{self, SecretCache},
};

/// The object that Secrets are kept for.
pub(super) struct KeyHolder {
    pub(super) namespace: String,
    pub(super) uid: String,
    /// The labels of a new Secret.
    pub(super) labels: BTreeMap<String, String>,
    /// The owner of a new Secret.
    pub(super) owner: Option<OwnerReference>,
}

/// The Secrets of one object.
pub(super) struct KeySecrets {
    secrets: Api<Secret>,
    known: Arc<SecretCache>,
    holder: KeyHolder,
    /// As they were last read or written, by name.
    last: Mutex<HashMap<String, Secret>>,
}

impl KeySecrets {
    pub(super) fn new(client: Client, known: Arc<SecretCache>, holder: KeyHolder) -> Self {
        let secrets = Api::namespaced(client, &holder.namespace);
        Self { secrets, known, holder, last: Mutex::default() }
    }

    /// Whether it may be taken away: where Secrets have no owner, the record says whose they are.
    fn is_ours_to_remove(&self, secret: &Secret) -> bool {
        let holds = || record(secret).is_some_and(|it| it.holder == self.holder.uid);
        is_owned_by(&self.holder.uid, secret) || (self.holder.owner.is_none() && holds())
    }

    fn keep(&self, secret: Secret) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(secret.name_any(), secret);
    }

    fn last(&self, name: &str) -> Option<Secret> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn new_secret(&self, name: &str) -> Secret {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            labels: (!self.holder.labels.is_empty()).then(|| self.holder.labels.clone()),
            owner_references: self.holder.owner.clone().map(|it| vec![it]),
            ..ObjectMeta::default()
        };
        Secret { metadata, type_: Some("Opaque".to_owned()), ..Secret::default() }
    }
}

impl KeySecret for KeySecrets {
    async fn read(&self, place: &SecretPlace) -> Result<Option<SecretRead>, Trouble> {
        let found = self.secrets.get_opt(&place.name).await.map_err(|it| unreadable(&place.name, &it))?;
        let Some(secret) = found else {
            self.last.lock().unwrap_or_else(PoisonError::into_inner).remove(&place.name);
            return Ok(None);
        };
        let read = read(&secret, &self.holder.uid, &place.key);
        self.known.note(&secret.metadata, place, &self.holder.uid, &read);
        self.keep(secret);
        Ok(Some(read))
    }

    async fn last_read(&self, place: &SecretPlace) -> Option<SecretRead> {
        self.known.last_read(&self.holder.namespace, place, &self.holder.uid).await
    }

    async fn write(
        &self,
        place: &SecretPlace,
        record: &Record,
        value: Option<&SecretString>,
        version: Option<&str>,
    ) -> Result<Written, Trouble> {
        let known = self.last(&place.name).filter(|it| version == Some(&secret_cache::version(&it.metadata)));
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
        let written = if is_there {
            self.secrets.replace(&place.name, &writes(), &secret).await
        } else {
            self.secrets.create(&writes(), &secret).await
        };
        match written {
            Ok(written) => {
                let version = secret_cache::version(&written.metadata);
                let read = read(&written, &self.holder.uid, &place.key);
                self.known.note(&written.metadata, place, &self.holder.uid, &read);
                self.keep(written);
                Ok(Written::Done(version))
            }
            Err(kube::Error::Api(status))
                if [404, 409].contains(&status.code) && is_about(&status, &place.name) =>
            {
                Ok(Written::Conflict)
            }
            Err(error) => Err(Trouble::Blocked(Blocked {
                reason: Reason::SecretNotWritten,
                message: format!("Secret {} cannot be written: {error}", place.name),
            })),
        }
    }

    async fn remove(&self, place: &SecretPlace) -> Result<(), Trouble> {
        let found = self.secrets.get_opt(&place.name).await.map_err(|it| unreadable(&place.name, &it))?;
        let Some(mut secret) = found.filter(|it| self.is_ours_to_remove(it)) else { return Ok(()) };
        let is_alone = secret.data.iter().flatten().all(|(key, _)| *key == place.key);
        let done = if is_alone {
            let preconditions =
                Some(Preconditions { uid: secret.uid(), resource_version: secret.resource_version() });
            let params = DeleteParams { preconditions, ..DeleteParams::default() };
            self.secrets.delete(&place.name, &params).await.map(drop)
        } else {
            secret.data.iter_mut().for_each(|it| drop(it.remove(&place.key)));
            if self.holder.owner.is_none() {
                // What is left is somebody else's.
                secret.annotations_mut().remove(annotation::PROVISIONER_KEY);
            }
            self.secrets.replace(&place.name, &writes(), &secret).await.map(drop)
        };
        match done {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
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
        version: secret_cache::version(&secret.metadata),
        is_immutable: secret.immutable.unwrap_or_default(),
    }
}

fn is_owned_by(uid: &str, secret: &Secret) -> bool {
    secret.owner_references().iter().any(|it| it.uid == uid)
}

/// Whether an answer is about the Secret and not about its namespace: that one is gone when it is missing.
fn is_about(status: &kube::core::Status, name: &str) -> bool {
    status.details.as_ref().is_none_or(|it| it.name.is_empty() || it.name == name)
}

fn record(secret: &Secret) -> Option<Record> {
    secret.annotations().get(annotation::PROVISIONER_KEY).and_then(|it| serde_json::from_str(it).ok())
}

fn value(secret: &Secret, key: &str) -> Option<SecretString> {
    let text = str::from_utf8(&secret.data.as_ref()?.get(key)?.0).ok()?.trim();
    (!text.is_empty()).then(|| SecretString::from(text))
}

fn unreadable(name: &str, error: &kube::Error) -> Trouble {
    Trouble::Blocked(Blocked {
        reason: Reason::SecretUnreadable,
        message: format!("Secret {name} cannot be read: {error}"),
    })
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
}
