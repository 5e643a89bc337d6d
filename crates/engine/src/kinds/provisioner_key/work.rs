//! The IO of a key that is only kept in a Secret: looking, doing what is due, and the end.

use std::sync::{Mutex, PoisonError};

use futures::future::BoxFuture;
use uuid::Uuid;

use super::{Previews, store};
use crate::{
    coder::Coder,
    keys::{
        Drive, Driven,
        coderd::revoke,
        deletion::{Revocations, revoke_all},
        drive::is_anothers,
    },
    pipeline::{
        ledger::{Entry, KeyState, Ledger},
        outcome::Trouble,
    },
    ports::Reading,
    secrets::{
        Around, Held, Holder, KeySecrets, KeyStore, Place, Record, RecordCopies, Retiring, Revoked,
        SecretPlace, Wanted, key_entry,
    },
};

/// Everything that is known of an object before anybody is asked.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) holder: Holder,
    pub(super) wanted: Wanted,
    /// What the status says.
    pub(super) mirror: Record,
    /// What a deletion has taken back.
    pub(super) taken: Mutex<Vec<Entry>>,
}

impl Job {
    /// What would be done. Nothing is written.
    pub(super) async fn look(&self, coder: &Coder) -> Result<Previews, Trouble> {
        let store = store(coder)?;
        let secrets = KeySecrets::new(store, &self.holder);
        let around = Around::new(store, &self.holder, None);
        let pass = self.pass(&self.wanted, coder, &secrets, &around);
        let (whole, looked) = pass.look().await?;
        // It ends where the whole does: it has fewer actions.
        let revocations = looked.revocations(&self.wanted, pass.now).ok_or(Trouble::Stale)?;
        Ok(Previews { whole, revocations })
    }

    /// Does what is due, and revokes no key that somebody may have.
    pub(super) async fn settle(&self, coder: &Coder) -> Result<Driven, Trouble> {
        self.drive(&self.wanted, coder, |_| false).await
    }

    /// Brings the records up to date, and begins no key.
    pub(super) async fn note(&self, coder: &Coder) -> Result<Driven, Trouble> {
        self.drive(&self.wanted.without_mint(), coder, |_| false).await
    }

    /// Revokes a key. Whatever else is due is left to other steps, which may wait for an approval.
    pub(super) async fn revoke_replaced(&self, name: &str, coder: &Coder) -> Result<Driven, Trouble> {
        let driven = self.drive(&self.wanted.only_revoking(), coder, |it| it.name == name).await?;
        let stays = |it: &Retiring| it.held.name == name && !it.lost;
        if driven.trouble.is_none() && driven.rest.record.retiring.iter().any(stays) {
            // Something has changed since it was planned, and the key may be the only one that is good.
            return Err(Trouble::Stale);
        }
        Ok(driven)
    }

    async fn drive(
        &self,
        wanted: &Wanted,
        coder: &Coder,
        goes: impl Fn(&Held) -> bool + Send + Sync,
    ) -> Result<Driven, Trouble> {
        let store = store(coder)?;
        // When it was planned the organization may have been a promise.
        let organization_id = coder.organization_id(&wanted.organization_name).await?;
        let wanted = Wanted { organization_id, ..wanted.clone() };
        let secrets = KeySecrets::new(store, &self.holder);
        let around = Around::new(store, &self.holder, None);
        self.pass(&wanted, coder, &secrets, &around).run_revoking(goes).await
    }

    fn pass<'a>(
        &self,
        wanted: &'a Wanted,
        coder: &'a Coder,
        secret: &'a KeySecrets<'a>,
        around: &'a Around<'a>,
    ) -> Drive<'a, 'a> {
        Drive {
            wanted,
            coder,
            secret,
            around,
            mirror: self.mirror.clone(),
            remembered: around.remembered(),
            pods: None,
            now: around.now(),
        }
    }

    /// What a deletion has taken back.
    pub(super) fn taken_back(&self) -> Vec<Entry> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn take_back(&self, entry: Entry) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    /// Every copy of the record, and why one could not be read. Names are those of the record and of the status, whatever the
    /// manifest says by now.
    async fn copies(&self, store: KeyStore<'_>) -> (RecordCopies, Option<Trouble>) {
        let place = &self.wanted.secret;
        RecordCopies::read((&self.holder, store), &self.mirror, place, Reading::Now).await
    }

    /// What a deletion has to take back, by every copy of the record that can be read.
    pub(super) async fn recorded(&self, retains: bool, store: KeyStore<'_>) -> Ledger {
        self.copies(store).await.0.ledger(&self.wanted.names, retains)
    }

    /// The keys that a deletion revokes, and the Secrets that it takes away. One that retains leaves the current key and its
    /// Secret.
    pub(super) async fn ours(
        &self,
        retains: bool,
        coder: &Coder,
    ) -> Result<(Vec<Retiring>, Vec<SecretPlace>), Trouble> {
        let store = store(coder)?;
        let (copies, trouble) = self.copies(store).await;
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        let current = copies.current();
        let home =
            current.filter(|it| it.place.is_same(&self.wanted.place)).and_then(|it| it.organization_id);
        let listed = match home {
            Some(organization) if !retains => {
                coder.list_keys(organization, false, store.cluster.now()).await?.keys
            }
            _ => Vec::new(),
        };
        let listed = Some((listed.as_slice(), &self.wanted.place));
        let mut keys = Vec::new();
        for retiring in copies.keys(&self.wanted.names, retains, listed) {
            if !self.is_anothers(&retiring, store).await? {
                keys.push(retiring);
            }
        }
        let secrets = copies.in_secrets.into_iter().filter(|_| !retains).map(|(place, _)| place).collect();
        Ok((keys, secrets))
    }

    /// Revokes keys, and then takes away the Secrets: while there is something left to do, the record has to be there. A key
    /// that cannot be revoked holds up no other.
    pub(super) async fn end(
        &self,
        keys: &[Retiring],
        places: &[SecretPlace],
        coder: &Coder,
    ) -> Result<(), Trouble> {
        let store = store(coder)?;
        let around = Around::new(store, &self.holder, None);
        let revoke = |it: Retiring| -> BoxFuture<'_, Result<Revoked, Trouble>> {
            Box::pin(async move { self.revoke(&it, coder, store).await })
        };
        let Revocations { done, failed } = revoke_all(keys, &self.wanted.names, &around, &revoke).await;
        for retiring in &done {
            self.take_back(key_entry(&retiring.held, KeyState::Retiring));
        }
        if let Some((_, trouble)) = failed.into_iter().next() {
            return Err(trouble);
        }
        let secrets = KeySecrets::new(store, &self.holder);
        for place in places {
            secrets.remove(place).await?;
            self.take_back(Entry::KeySecret(place.name.clone()));
        }
        if let Some(last) = store.memory.record(&self.holder) {
            // Nothing is held any more: a deletion that is asked for again finds nothing to do.
            let epoch = Some(last.epoch().saturating_add(1));
            store
                .memory
                .keep_record(&self.holder, &Record { holder: last.holder, epoch, ..Record::default() });
        }
        Ok(())
    }

    async fn revoke(
        &self,
        retiring: &Retiring,
        coder: &Coder,
        store: KeyStore<'_>,
    ) -> Result<Revoked, Trouble> {
        let Held { name, place, .. } = &retiring.held;
        if !self.is_here(place) {
            return Ok(Revoked::OutOfReach);
        }
        revoke(coder, retiring, self.wanted.names.is_ours(name), store.cluster.now()).await
    }

    async fn is_anothers(&self, retiring: &Retiring, store: KeyStore<'_>) -> Result<bool, Trouble> {
        let is_ours_by_name = self.wanted.names.is_ours(&retiring.held.name);
        is_anothers(&Around::new(store, &self.holder, None), retiring, is_ours_by_name).await
    }

    /// Whether a key is of the deployment that answers. No other one is ever asked.
    fn is_here(&self, place: &Place) -> bool {
        place.deployment_id.is_none_or(|it: Uuid| Some(it) == self.wanted.place.deployment_id)
    }
}
