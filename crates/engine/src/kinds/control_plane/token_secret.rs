//! The Secret that holds the operator's own token for a control plane, and the record beside it.
//!
//! It carries a finalizer: whoever deletes everything at once does not take away the token that the rest of the deletion
//! needs.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};

use api::{CoderControlPlane, Reason, annotation, finalizer};
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Resource as _, ResourceExt as _};
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};

use super::{
    names::{TOKEN_KEY as TOKEN, operator_token_secret},
    token_record::TokenRecord,
};
use crate::{
    pipeline::outcome::Blocked,
    ports::{Cluster, ClusterError, Reading, finalizers, object::Key},
    secrets::FingerprintKeys,
};

const FINGERPRINT_KEY: &str = "fingerprint-key";

/// The Secret of one control plane, as it was read or last written.
pub struct TokenSecret<'a> {
    cluster: &'a dyn Cluster,
    /// What is written when there is none yet.
    empty: Secret,
    last: Mutex<Option<Secret>>,
}

impl fmt::Debug for TokenSecret<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TokenSecret {:?}", self.empty.metadata.name)
    }
}

/// What the token Secret holds.
#[derive(Debug, Default)]
pub struct Contents {
    pub token: Option<SecretString>,
    pub record: TokenRecord,
}

impl Contents {
    fn of(secret: Option<&Secret>) -> Self {
        Self { token: secret.and_then(token), record: secret.map(record).unwrap_or_default() }
    }

    /// Reads what the token Secret of a control plane holds. Returns also whether the Secret is being deleted, so that another one has
    /// to take its place.
    pub(super) async fn read(
        plane: &CoderControlPlane,
        cluster: &dyn Cluster,
    ) -> Result<(Self, bool), Blocked> {
        let found = find(plane, cluster).await?;
        Ok((Self::of(found.as_ref()), found.as_ref().is_some_and(|it| is_taken(it, plane))))
    }
}

impl<'a> TokenSecret<'a> {
    /// Reads the Secret of a control plane, and replaces one that is being deleted. One of that name that is somebody else's
    /// is not touched.
    pub async fn open(
        plane: &CoderControlPlane,
        cluster: &'a dyn Cluster,
    ) -> Result<(Self, Contents), Blocked> {
        let found = match find(plane, cluster).await? {
            Some(going) if is_taken(&going, plane) => Some(renew(&going, cluster).await?),
            found => found,
        };
        let contents = Contents::of(found.as_ref());
        let mut empty = Secret::default();
        empty.metadata.name = Some(operator_token_secret(plane));
        empty.metadata.namespace = plane.namespace();
        empty.metadata.owner_references = Some(plane.controller_owner_ref(&()).into_iter().collect());
        finalizers::put(&mut empty.metadata, finalizer::TOKEN);
        Ok((Self { cluster, empty, last: Mutex::new(found) }, contents))
    }

    /// Records the deployment of a token that has no record yet, as coder-k8s leaves it. From then on it is shown to no
    /// other one, and stays until there is one of ours.
    pub async fn adopt(&self, record: &TokenRecord) -> Result<(), Blocked> {
        let text = serde_json::to_string(record).unwrap_or_default();
        self.write(|secret| {
            secret.annotations_mut().insert(annotation::OPERATOR_ACCESS.to_owned(), text);
        })
        .await
    }

    /// Writes the record, and the token where there is a new one, at once. Fails when another client has written since the
    /// Secret was read: the second writer has decided on outdated reads.
    pub async fn store(&self, record: &TokenRecord, token: Option<&SecretString>) -> Result<(), Blocked> {
        let text = serde_json::to_string(record).unwrap_or_default();
        let last = self.last().map(|it| self::record(&it));
        let is_elsewhere = last.is_some_and(|it| {
            it.deployment_id != record.deployment_id || it.external_url != record.external_url
        });
        self.write(|secret| {
            // A token of another deployment or address must not stand beside the record of this one.
            if is_elsewhere && let Some(data) = &mut secret.data {
                data.remove(TOKEN);
            }
            secret.annotations_mut().insert(annotation::OPERATOR_ACCESS.to_owned(), text);
            if let Some(token) = token {
                let bytes = ByteString(token.expose_secret().as_bytes().to_vec());
                secret.data.get_or_insert_with(BTreeMap::new).insert(TOKEN.to_owned(), bytes);
            }
        })
        .await
    }

    /// Removes the token and its record from the Secret, once they are worth nothing. The key for fingerprints stays:
    /// another one would roll the pods.
    pub async fn empty_out(self) -> Result<(), Blocked> {
        let holds =
            |it: &Secret| token(it).is_some() || it.annotations().contains_key(annotation::OPERATOR_ACCESS);
        if !self.last().is_some_and(|it| holds(&it)) {
            return Ok(());
        }
        self.write(|secret| {
            secret.annotations_mut().remove(annotation::OPERATOR_ACCESS);
            if let Some(data) = &mut secret.data {
                data.remove(TOKEN);
            }
        })
        .await
    }

    fn last(&self) -> Option<Secret> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores the key that fingerprints were made with. Of two who store one at once, the second takes the first one's, and fails.
    pub async fn store_fingerprint_key(
        &self,
        plane: &CoderControlPlane,
        used: &SecretSlice<u8>,
        known: &FingerprintKeys,
    ) -> Result<(), Blocked> {
        let stored = match self.last().and_then(stored_key) {
            Some(stored) => stored,
            None => self.write_fingerprint_key(plane, used).await?,
        };
        let is_used = used.expose_secret() == stored.expose_secret();
        known.keep(name_of(plane), stored);
        let message =
            "another operator has stored another key for fingerprints; reconciling again".to_owned();
        if is_used { Ok(()) } else { Err(Blocked { reason: Reason::Progressing, message }) }
    }

    /// Writes the key for fingerprints. Returns the key that is stored then: another client may have been first.
    async fn write_fingerprint_key(
        &self,
        plane: &CoderControlPlane,
        key: &SecretSlice<u8>,
    ) -> Result<SecretSlice<u8>, Blocked> {
        let bytes = ByteString(key.expose_secret().to_vec());
        let written = self.try_write(|it| {
            it.data.get_or_insert_with(BTreeMap::new).insert(FINGERPRINT_KEY.to_owned(), bytes);
        });
        match written.await {
            Ok(()) => Ok(key.clone()),
            Err(error) if error.is_conflict() => {
                let stored = find(plane, self.cluster).await?.and_then(stored_key);
                stored.ok_or_else(|| not_written(&self.empty, &error))
            }
            Err(error) => Err(not_written(&self.empty, &error)),
        }
    }

    /// Changes the Secret, with the version that was read: of two writers one is refused and reads again.
    async fn write(&self, change: impl FnOnce(&mut Secret) + Send) -> Result<(), Blocked> {
        self.try_write(change).await.map_err(|error| not_written(&self.empty, &error))
    }

    async fn try_write(&self, change: impl FnOnce(&mut Secret) + Send) -> Result<(), ClusterError> {
        let last = self.last();
        let is_there = last.is_some();
        let mut secret = last.unwrap_or_else(|| self.empty.clone());
        change(&mut secret);
        // One that coder-k8s made has none.
        finalizers::put(&mut secret.metadata, finalizer::TOKEN);
        let written = self.cluster.put(&secret, is_there, "").await?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(written);
        Ok(())
    }
}

/// A key that only the operator has, for fingerprints of secret values.
#[derive(Debug)]
pub struct FingerprintKey {
    pub key: SecretSlice<u8>,
    /// Whether the key is in the token Secret. A fingerprint is recorded only once its key is.
    pub is_stored: bool,
}

/// The key for fingerprints, which is made when it is first needed. Nothing is written. A key that was removed is used for as long
/// as this process knows it: another one would roll the pods. The key of a Secret that is being deleted has to be stored again.
pub async fn fingerprint_key(
    plane: &CoderControlPlane,
    known: &FingerprintKeys,
    cluster: &dyn Cluster,
) -> Result<FingerprintKey, Blocked> {
    let found = find(plane, cluster).await?;
    let is_stored = found.as_ref().is_some_and(|it| !is_taken(it, plane));
    if let Some(key) = found.and_then(stored_key) {
        known.keep(name_of(plane), key.clone());
        return Ok(FingerprintKey { key, is_stored });
    }
    let key = known.get_or_make(name_of(plane), || cluster.random().bytes().to_vec().into());
    Ok(FingerprintKey { key, is_stored: false })
}

fn name_of(plane: &CoderControlPlane) -> (String, String) {
    (plane.namespace().unwrap_or_default(), plane.name_any())
}

/// The key for fingerprints that is stored. `None` where there is none yet.
pub async fn read_fingerprint_key(
    plane: &CoderControlPlane,
    cluster: &dyn Cluster,
) -> Result<Option<SecretSlice<u8>>, Blocked> {
    Ok(find(plane, cluster).await?.and_then(stored_key))
}

fn stored_key(secret: Secret) -> Option<SecretSlice<u8>> {
    let key = secret.data?.remove(FINGERPRINT_KEY)?.0;
    (!key.is_empty()).then(|| key.into())
}

/// The Secret of a control plane, if there is one. Fails where it is somebody else's.
async fn find(plane: &CoderControlPlane, cluster: &dyn Cluster) -> Result<Option<Secret>, Blocked> {
    let name = operator_token_secret(plane);
    let found = cluster.secret(&plane.namespace().unwrap_or_default(), &name, "").await;
    let found = found.map_err(|error| Blocked {
        reason: Reason::SecretUnreadable,
        message: format!("Secret {name} cannot be read: {error}"),
    })?;
    if found.as_ref().is_some_and(|it| !is_owned(&it.metadata, plane)) {
        let message = format!(
            "Secret {name} is not owned by this control plane, and is not changed: delete it, or set spec.operatorAccess.generatedTokenSecretName"
        );
        return Err(Blocked { reason: Reason::NotOurs, message });
    }
    Ok(found)
}

/// Whether somebody deletes a Secret that is still needed.
fn is_taken(secret: &Secret, plane: &CoderControlPlane) -> bool {
    let is_going = secret.metadata.deletion_timestamp.is_some();
    is_going && has_finalizer(&secret.metadata) && plane.metadata.deletion_timestamp.is_none()
}

/// Puts another Secret in the place of one that is being deleted. Whoever deletes it wants another token: the one in it is
/// carried over, so that it is still there to be revoked, and counts as lost.
async fn renew(going: &Secret, cluster: &dyn Cluster) -> Result<Secret, Blocked> {
    // A namespace that cannot be read counts as one that stays: then the write says what is wrong.
    if cluster.is_terminating(&going.namespace().unwrap_or_default()).await.unwrap_or(false) {
        return Ok(going.clone());
    }
    let mut record = record(going);
    record.minting = record.minting.or_else(|| record.token.as_ref().map(|it| it.name.clone()));
    let mut next = Secret { data: going.data.clone(), type_: going.type_.clone(), ..Secret::default() };
    next.metadata.name.clone_from(&going.metadata.name);
    next.metadata.namespace.clone_from(&going.metadata.namespace);
    next.metadata.owner_references.clone_from(&going.metadata.owner_references);
    finalizers::put(&mut next.metadata, finalizer::TOKEN);
    let text = serde_json::to_string(&record).unwrap_or_default();
    next.annotations_mut().insert(annotation::OPERATOR_ACCESS.to_owned(), text);
    let renewed = async {
        finalizers::remove::<Secret>(&going.metadata, finalizer::TOKEN, cluster).await?;
        cluster.put(&next, false, "").await
    };
    renewed.await.map_err(|error| not_written(&next, &error))
}

fn not_written(secret: &Secret, error: &ClusterError) -> Blocked {
    Blocked {
        reason: Reason::SecretNotWritten,
        message: format!("Secret {} cannot be written: {error}", secret.name_any()),
    }
}

/// Releases every Secret that the operator holds for a control plane, under whichever name.
pub async fn release_all(plane: &CoderControlPlane, cluster: &dyn Cluster) -> Result<(), ClusterError> {
    for secret in cluster.secrets(&plane.namespace().unwrap_or_default()).await? {
        if has_finalizer(&secret) && is_owned(&secret, plane) {
            finalizers::remove::<Secret>(&secret, finalizer::TOKEN, cluster).await?;
        }
    }
    Ok(())
}

/// Whether only the operator's finalizer may keep a Secret that is deleted.
pub fn is_deleted_and_held(secret: &ObjectMeta) -> bool {
    has_finalizer(secret) && secret.deletion_timestamp.is_some()
}

/// Releases token Secrets of a namespace whose control plane is gone, and returns their names. A control plane whose finalizer
/// was removed by hand is deleted without a cleanup, and no other controller removes the finalizer of its Secret.
pub async fn release_orphans(namespace: &str, cluster: &dyn Cluster) -> Result<Vec<String>, ClusterError> {
    let mut released = Vec::new();
    for metadata in cluster.secrets(namespace).await? {
        if !is_deleted_and_held(&metadata) || has_owner(&metadata, namespace, cluster).await? {
            continue;
        }
        let secret = Secret { metadata, ..Secret::default() };
        let name = secret.name_any();
        if secret.annotations().contains_key(annotation::OPERATOR_ACCESS) {
            let note = format!(
                "the operator's token in Secret {name}, which expires within a day, is left behind: its control plane is gone"
            );
            cluster.left_behind(&secret.object_ref(&()), Reason::ControlPlaneNotFound, &note).await;
        }
        finalizers::remove::<Secret>(&secret.metadata, finalizer::TOKEN, cluster).await?;
        released.push(name);
    }
    Ok(released)
}

/// Whether a control plane that owns the Secret is there and still releases it by itself.
async fn has_owner(
    secret: &ObjectMeta,
    namespace: &str,
    cluster: &dyn Cluster,
) -> Result<bool, ClusterError> {
    let (api_version, kind) = (CoderControlPlane::api_version(&()), CoderControlPlane::kind(&()));
    for owner in secret.owner_references.iter().flatten().filter(|it| it.kind == kind) {
        let key = Key::new(&api_version, &kind, namespace, &owner.name);
        let found = cluster.get(&key, Reading::Now).await?;
        if found.is_some_and(|it| it.metadata().uid.as_ref() == Some(&owner.uid)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_finalizer(secret: &ObjectMeta) -> bool {
    finalizers::has(secret, finalizer::TOKEN)
}

fn is_owned(secret: &ObjectMeta, plane: &CoderControlPlane) -> bool {
    secret.owner_references.iter().flatten().any(|it| Some(&it.uid) == plane.metadata.uid.as_ref())
}

/// The token in the Secret. `None` where there is none.
pub(super) fn token(secret: &Secret) -> Option<SecretString> {
    let text = str::from_utf8(&secret.data.as_ref()?.get(TOKEN)?.0).ok()?.trim();
    (!text.is_empty()).then(|| SecretString::from(text))
}

/// The record beside the token. One that cannot be read is empty.
pub(super) fn record(secret: &Secret) -> TokenRecord {
    let text = secret.annotations().get(annotation::OPERATOR_ACCESS);
    text.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_deleted_secret_with_our_finalizer_is_held() {
        let is = |metadata: Value| is_deleted_and_held(&serde_json::from_value(metadata).unwrap());
        let deleted = "2026-01-01T00:00:00Z";
        assert!(is(json!({"finalizers": [finalizer::TOKEN], "deletionTimestamp": deleted})));
        assert!(!is(json!({"finalizers": [finalizer::TOKEN]})), "Kubernetes has not deleted it");
        assert!(!is(json!({"finalizers": ["other"], "deletionTimestamp": deleted})));
    }
}
