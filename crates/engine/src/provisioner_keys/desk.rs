//! What keys need that no deployment has: Secrets, a status, a clock, and a memory. Whoever has a cluster brings it.

use std::fmt::Debug;

use futures::future::BoxFuture;
use jiff::Timestamp;
use secrecy::SecretString;

use super::{
    drive::{KeySecret, Revoked, SecretRead, Why, Written},
    record::{Held, Record, SecretPlace},
};
use crate::outcome::Trouble;

/// Whose keys they are: an object in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// A cluster, as far as objects are concerned that are only keys.
pub trait Desk: Debug + Send + Sync {
    fn now(&self) -> Timestamp;

    /// The Secrets of an object.
    fn secrets(&self, holder: &Holder) -> Box<dyn Secrets>;

    /// Writes the record into the object's status, at once.
    fn mirror<'a>(&'a self, holder: &'a Holder, record: &'a Record) -> BoxFuture<'a, Result<(), Trouble>>;

    /// The newest copy of the record that this process knows.
    fn last_record(&self, holder: &Holder) -> Option<Record>;

    fn keep_record(&self, holder: &Holder, record: &Record);

    /// Whether another object has, or is about to have, a key of that name there.
    fn is_of_another<'a>(
        &'a self,
        holder: &'a Holder,
        held: &'a Held,
    ) -> BoxFuture<'a, Result<bool, Trouble>>;

    /// The object with that uid, in words, if it is there, beside the holder, and keeps its key in that Secret.
    fn keeper<'a>(
        &'a self,
        holder: &'a Holder,
        secret: &'a str,
        uid: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, Trouble>>;

    /// Reports what became of a key that was to be revoked.
    fn revoked<'a>(
        &'a self,
        holder: &'a Holder,
        held: &'a Held,
        how: Revoked,
        why: &'a Why,
    ) -> BoxFuture<'a, ()>;

    /// Names a key that stays in coderd and is forgotten.
    fn left<'a>(&'a self, holder: &'a Holder, held: &'a Held) -> BoxFuture<'a, ()>;
}

/// [`KeySecret`] for those who do not know its type.
pub trait Secrets: Send + Sync {
    fn read<'a>(&'a self, place: &'a SecretPlace) -> BoxFuture<'a, Result<Option<SecretRead>, Trouble>>;

    fn last_read<'a>(&'a self, place: &'a SecretPlace) -> BoxFuture<'a, Option<SecretRead>>;

    fn write<'a>(
        &'a self,
        place: &'a SecretPlace,
        record: &'a Record,
        value: Option<&'a SecretString>,
        version: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Written, Trouble>>;

    fn remove<'a>(&'a self, place: &'a SecretPlace) -> BoxFuture<'a, Result<(), Trouble>>;
}

impl<S: KeySecret + Send> Secrets for S {
    fn read<'a>(&'a self, place: &'a SecretPlace) -> BoxFuture<'a, Result<Option<SecretRead>, Trouble>> {
        Box::pin(KeySecret::read(self, place))
    }

    fn last_read<'a>(&'a self, place: &'a SecretPlace) -> BoxFuture<'a, Option<SecretRead>> {
        Box::pin(KeySecret::last_read(self, place))
    }

    fn write<'a>(
        &'a self,
        place: &'a SecretPlace,
        record: &'a Record,
        value: Option<&'a SecretString>,
        version: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Written, Trouble>> {
        Box::pin(KeySecret::write(self, place, record, value, version))
    }

    fn remove<'a>(&'a self, place: &'a SecretPlace) -> BoxFuture<'a, Result<(), Trouble>> {
        Box::pin(KeySecret::remove(self, place))
    }
}

/// The way back: what the life of keys works with.
pub(crate) struct SecretsOf(pub(crate) Box<dyn Secrets>);

impl KeySecret for SecretsOf {
    async fn read(&self, place: &SecretPlace) -> Result<Option<SecretRead>, Trouble> {
        self.0.read(place).await
    }

    async fn last_read(&self, place: &SecretPlace) -> Option<SecretRead> {
        self.0.last_read(place).await
    }

    async fn write(
        &self,
        place: &SecretPlace,
        record: &Record,
        value: Option<&SecretString>,
        version: Option<&str>,
    ) -> Result<Written, Trouble> {
        self.0.write(place, record, value, version).await
    }

    async fn remove(&self, place: &SecretPlace) -> Result<(), Trouble> {
        self.0.remove(place).await
    }
}
