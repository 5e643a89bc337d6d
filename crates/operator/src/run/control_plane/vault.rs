//! The Secret that holds the operator's own token for a control plane, and the record beside it.
//!
//! It carries a finalizer: whoever deletes everything at once does not take away the token that the rest of the deletion
//! needs.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use api::{CoderControlPlane, Reason, annotation, finalizer};
use engine::{
    Blocked, Trouble,
    control_plane::{
        access::{Record, Vault},
        report::TOKEN_KEY as TOKEN,
    },
};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Resource as _, ResourceExt as _, api::ListParams};
use secrecy::{ExposeSecret as _, SecretSlice, SecretString};
use uuid::Uuid;

use super::name_of;
use crate::run::{
    Shared,
    letting_go::is_terminating,
    record::{has_finalizer, set_finalizer, writes},
};

const FINGERPRINT_KEY: &str = "fingerprint-key";

/// The Secret of one control plane, as it was read or last written.
pub(in crate::run) struct TokenSecret {
    secrets: Api<Secret>,
    /// What is written when there is none yet.
    empty: Secret,
    last: Mutex<Option<Secret>>,
}

/// What the Secret holds.
#[derive(Default)]
pub(in crate::run) struct Contents {
    pub(in crate::run) token: Option<SecretString>,
    pub(in crate::run) record: Record,
}

impl TokenSecret {
    /// Reads the Secret of a control plane. One of that name that is somebody else's is left alone.
    pub(in crate::run) async fn open(
        plane: &CoderControlPlane,
        shared: &Shared,
    ) -> Result<(Self, Contents), Blocked> {
        let name = engine::control_plane::operator_token_secret(plane);
        let secrets =
            Api::<Secret>::namespaced(shared.client.clone(), &plane.namespace().unwrap_or_default());
        let unreadable = |error: kube::Error| Blocked {
            reason: Reason::SecretUnreadable,
            message: format!("Secret {name} cannot be read: {error}"),
        };
        let found = secrets.get_opt(&name).await.map_err(unreadable)?;
        if found.as_ref().is_some_and(|it| !is_owned(it, plane)) {
            let message = format!(
                "Secret {name} is not ours, and is left alone: delete it, or set spec.operatorAccess.generatedTokenSecretName"
            );
            return Err(Blocked { reason: Reason::NotOurs, message });
        }
        let found = match found {
            Some(going) if is_taken(&going, plane) => Some(renew(&going, &secrets, shared).await?),
            found => found,
        };
        let contents = Contents {
            token: found.as_ref().and_then(token),
            record: found.as_ref().map(record).unwrap_or_default(),
        };
        let mut empty = Secret::default();
        empty.metadata.name = Some(name);
        empty.metadata.owner_references = Some(plane.controller_owner_ref(&()).into_iter().collect());
        empty.metadata.finalizers = Some(vec![finalizer::TOKEN.to_owned()]);
        Ok((Self { secrets, empty, last: Mutex::new(found) }, contents))
    }

    /// A key that only we have, for fingerprints of what pods read. It is made when it is first needed.
    pub(in crate::run) async fn fingerprint_key(
        plane: &CoderControlPlane,
        shared: &Shared,
    ) -> Result<SecretSlice<u8>, Blocked> {
        let (secret, _) = Self::open(plane, shared).await?;
        let known = secret.last().and_then(|it| it.data?.remove(FINGERPRINT_KEY)).map(|it| it.0);
        if let Some(key) = known.filter(|it| !it.is_empty()) {
            shared.planes.set_fingerprint_key(&name_of(plane), key.clone().into());
            return Ok(key.into());
        }
        // One that somebody took away is put back while it is known: pods would be rolled for another one.
        let key = shared.planes.fingerprint_key(&name_of(plane));
        let key =
            key.unwrap_or_else(|| [Uuid::new_v4().into_bytes(), Uuid::new_v4().into_bytes()].concat().into());
        let key = key.expose_secret().to_vec();
        secret
            .write(|it| {
                let data = it.data.get_or_insert_with(BTreeMap::new);
                data.insert(FINGERPRINT_KEY.to_owned(), ByteString(key.clone()));
            })
            .await?;
        Ok(key.into())
    }

    /// Writes down the deployment of a token that has no record yet, as coder-k8s leaves it. From then on it is shown to no
    /// other one, and stays until there is one of ours.
    pub(in crate::run) async fn adopt(&self, record: &Record) -> Result<(), Blocked> {
        let text = serde_json::to_string(record).unwrap_or_default();
        self.write(|secret| {
            secret.annotations_mut().insert(annotation::OPERATOR_ACCESS.to_owned(), text);
        })
        .await
    }

    /// Takes the token and its record out of the Secret, once they are worth nothing. The key for fingerprints stays:
    /// another one would roll the pods.
    pub(in crate::run) async fn empty_out(self) -> Result<(), Blocked> {
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
}

impl TokenSecret {
    /// Changes the Secret, with the version that was read: of two writers one is refused and looks again.
    async fn write(&self, change: impl FnOnce(&mut Secret)) -> Result<(), Blocked> {
        let last = self.last();
        let is_there = last.is_some();
        let mut secret = last.unwrap_or_else(|| self.empty.clone());
        change(&mut secret);
        // One that coder-k8s made has none. One that is going takes none.
        let is_held = secret.finalizers().iter().any(|it| it == finalizer::TOKEN);
        if !is_held && secret.metadata.deletion_timestamp.is_none() {
            secret.finalizers_mut().push(finalizer::TOKEN.to_owned());
        }
        let params = writes();
        let written = if is_there {
            self.secrets.replace(&secret.name_any(), &params, &secret).await
        } else {
            self.secrets.create(&params, &secret).await
        };
        let written = written.map_err(|error| not_written(&secret, &error))?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(written);
        Ok(())
    }
}

impl Vault for TokenSecret {
    async fn store(&self, record: &Record, token: Option<&SecretString>) -> Result<(), Trouble> {
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
        .await?;
        Ok(())
    }
}

/// Whether somebody deletes a Secret that is still needed.
fn is_taken(secret: &Secret, plane: &CoderControlPlane) -> bool {
    let is_going = secret.metadata.deletion_timestamp.is_some();
    let is_held = has_finalizer(secret, finalizer::TOKEN);
    is_going && is_held && plane.metadata.deletion_timestamp.is_none()
}

/// Puts another Secret in the place of one that is being deleted. Whoever deletes it wants another token: the one in it is
/// carried over, so that it is still there to be revoked, and counts as lost.
async fn renew(going: &Secret, secrets: &Api<Secret>, shared: &Shared) -> Result<Secret, Blocked> {
    if is_terminating(&going.namespace().unwrap_or_default(), shared).await {
        return Ok(going.clone());
    }
    let mut record = record(going);
    record.minting = record.minting.or_else(|| record.token.as_ref().map(|it| it.name.clone()));
    let mut next = Secret { data: going.data.clone(), type_: going.type_.clone(), ..Secret::default() };
    next.metadata.name = going.metadata.name.clone();
    next.metadata.owner_references.clone_from(&going.metadata.owner_references);
    next.metadata.finalizers = Some(vec![finalizer::TOKEN.to_owned()]);
    let text = serde_json::to_string(&record).unwrap_or_default();
    next.annotations_mut().insert(annotation::OPERATOR_ACCESS.to_owned(), text);
    let renewed = async {
        set_finalizer(going, finalizer::TOKEN, false, shared).await?;
        secrets.create(&writes(), &next).await
    };
    renewed.await.map_err(|error| not_written(&next, &error))
}

fn not_written(secret: &Secret, error: &kube::Error) -> Blocked {
    Blocked {
        reason: Reason::SecretNotWritten,
        message: format!("Secret {} cannot be written: {error}", secret.name_any()),
    }
}

/// Lets every Secret go that we hold for a control plane, under whichever name.
pub(in crate::run) async fn release_all(
    plane: &CoderControlPlane,
    shared: &Shared,
) -> Result<(), kube::Error> {
    let secrets = Api::<Secret>::namespaced(shared.client.clone(), &plane.namespace().unwrap_or_default());
    for found in secrets.list_metadata(&ListParams::default()).await? {
        let is_held = found.finalizers().iter().any(|it| it == finalizer::TOKEN);
        let is_its = found.owner_references().iter().any(|it| Some(&it.uid) == plane.metadata.uid.as_ref());
        if is_held && is_its {
            let secret = Secret { metadata: found.metadata, ..Secret::default() };
            set_finalizer(&secret, finalizer::TOKEN, false, shared).await?;
        }
    }
    Ok(())
}

fn is_owned(secret: &Secret, plane: &CoderControlPlane) -> bool {
    secret.owner_references().iter().any(|it| Some(&it.uid) == plane.metadata.uid.as_ref())
}

fn token(secret: &Secret) -> Option<SecretString> {
    let text = str::from_utf8(&secret.data.as_ref()?.get(TOKEN)?.0).ok()?.trim();
    (!text.is_empty()).then(|| SecretString::from(text))
}

/// A record that cannot be read is none.
fn record(secret: &Secret) -> Record {
    let text = secret.annotations().get(annotation::OPERATOR_ACCESS);
    text.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default()
}
