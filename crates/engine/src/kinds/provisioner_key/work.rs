//! The IO of a key that is only kept in a Secret: looking, doing what is due, and the end.

use std::{
    cmp::Reverse,
    sync::{Mutex, PoisonError},
};

use uuid::Uuid;

use super::store;
use crate::{
    coder::Coder,
    keys::{Drive, Driven, coderd::revoke, drive::is_anothers},
    pipeline::{
        ledger::{Entry, KeyState, Ledger},
        outcome::Trouble,
    },
    secrets::{
        Around, Held, HeldKeys, Holder, KeyPreview, KeySecrets, KeyStore, LiveKey, Names, Place, Record,
        Retiring, Revoked, SecretPlace, Wanted, Why, key_entries, key_entry, keys_to_revoke,
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
    pub(super) async fn look(&self, coder: &Coder) -> Result<KeyPreview, Trouble> {
        let store = store(coder)?;
        let secrets = KeySecrets::new(store, &self.holder);
        let around = Around::new(store, &self.holder, None);
        self.pass(&self.wanted, coder, &secrets, &around).look().await
    }

    /// Does what is due, and revokes none but these of the keys that somebody may have.
    pub(super) async fn drive(
        &self,
        coder: &Coder,
        goes: impl Fn(&Held) -> bool + Send + Sync,
    ) -> Result<Driven, Trouble> {
        let store = store(coder)?;
        // When it was planned the organization may have been a promise.
        let organization_id = coder.organization_id(&self.wanted.organization_name).await?;
        let wanted = Wanted { organization_id, ..self.wanted.clone() };
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

    /// Every copy of the record, and the Secrets that hold one. Names are those of the record and of the status, whatever the
    /// manifest says by now.
    async fn copies(&self, store: KeyStore<'_>) -> Result<Copies, Trouble> {
        let secrets = KeySecrets::new(store, &self.holder);
        let mut copies = self.known(store);
        let elsewhere = self.mirror.secret.iter().filter(|it| **it != self.wanted.secret);
        for place in [&self.wanted.secret].into_iter().chain(elsewhere) {
            let found = secrets.read(place).await?.and_then(|it| it.record);
            if let Some(found) = found.filter(|it| it.holder == self.wanted.names.uid) {
                copies.in_secrets.push((place.clone(), found.clone()));
                copies.records.push(found);
            }
        }
        copies.records.sort_by_key(|it| Reverse(it.rank()));
        Ok(copies)
    }

    /// The copies of the record that need no request.
    fn known(&self, store: KeyStore<'_>) -> Copies {
        let mut records = vec![self.mirror.clone()];
        records.extend(store.memory.record(&self.holder));
        records.sort_by_key(|it| Reverse(it.rank()));
        Copies { records, in_secrets: Vec::new() }
    }

    /// What a deletion has to take back, by every copy of the record that can be read.
    pub(super) async fn recorded(&self, retains: bool, store: KeyStore<'_>) -> Ledger {
        let copies = match self.copies(store).await {
            Ok(copies) => copies,
            Err(_) => self.known(store),
        };
        copies.ledger(&self.wanted.names, retains)
    }

    /// The keys that a deletion revokes, and the Secrets that it takes away. One that retains leaves the current key and its
    /// Secret.
    pub(super) async fn ours(
        &self,
        retains: bool,
        coder: &Coder,
    ) -> Result<(Vec<Retiring>, Vec<SecretPlace>), Trouble> {
        let store = store(coder)?;
        let copies = self.copies(store).await?;
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
        let mut failed = None;
        for retiring in keys {
            match self.revoke(retiring, coder, store).await {
                Ok(done) => {
                    around.revoked(&retiring.held, done, &Why::Deleted).await;
                    if done == Revoked::OutOfReach {
                        around.leave(&retiring.held).await;
                    }
                    self.take_back(key_entry(&retiring.held, KeyState::Retiring));
                }
                Err(trouble) => drop(failed.get_or_insert(trouble)),
            }
        }
        if let Some(trouble) = failed {
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
        if self.is_anothers(retiring, store).await? {
            return Ok(Revoked::NotOurs);
        }
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

/// Every copy of a record that could be read.
struct Copies {
    /// All of them, the newest first.
    records: Vec<Record>,
    /// Those that stand beside a value.
    in_secrets: Vec<(SecretPlace, Record)>,
}

impl Copies {
    /// The key in use.
    fn current(&self) -> Option<&Held> {
        self.records.iter().find_map(|it| it.current.as_ref())
    }

    /// The keys that a deletion revokes. One that retains leaves the key in use, and every key whose value a Secret holds.
    fn keys(&self, names: &Names, retains: bool, listed: Option<(&[LiveKey], &Place)>) -> Vec<Retiring> {
        let mut keys = keys_to_revoke(&HeldKeys { names, records: &self.records, listed });
        if retains {
            let values = self.in_secrets.iter().filter_map(|(_, it)| it.current.as_ref());
            let kept: Vec<&Held> = self.current().into_iter().chain(values).collect();
            keys.retain(|it| !kept.iter().any(|held| held.is_called(&it.held.name, it.held.organization_id)));
        }
        keys
    }

    /// What a deletion has to take back. One that retains holds every key in use whose value a Secret has.
    fn ledger(&self, names: &Names, retains: bool) -> Ledger {
        let mut ledger = Ledger::new(key_entries(names, &self.records));
        for (place, record) in &self.in_secrets {
            ledger.add(Entry::KeySecret(place.name.clone()));
            let value = record.current.iter().filter(|it| retains && it.is_ours);
            value.for_each(|it| ledger.add(key_entry(it, KeyState::Held)));
        }
        ledger
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::pipeline::ledger::Leaves;

    fn held(name: &str) -> Held {
        Held { name: name.to_owned(), is_ours: true, ..Held::default() }
    }

    fn record(epoch: u64, current: &str, retiring: &[&str]) -> Record {
        let since = Timestamp::UNIX_EPOCH;
        let retiring = retiring.iter().map(|it| Retiring { held: held(it), since, lost: false });
        Record {
            epoch: Some(epoch),
            current: Some(held(current)),
            retiring: retiring.collect(),
            ..Record::default()
        }
    }

    #[test]
    fn deletion_that_retains_leaves_the_current_key_and_every_value_in_a_secret() {
        let names = Names::new("alpha", "uid");
        let place = SecretPlace { name: "secret".to_owned(), key: "key".to_owned() };
        let newest = record(2, "alpha-2", &["alpha-0", "alpha-1"]);
        let revoked = |in_secret: &Record, retains: bool| {
            let copies = Copies {
                records: vec![newest.clone(), in_secret.clone()],
                in_secrets: vec![(place.clone(), in_secret.clone())],
            };
            let keys = copies.keys(&names, retains, None);
            let mut revoked: Vec<String> = keys.iter().map(|it| it.held.name.clone()).collect();
            revoked.sort();
            // The ledger has just these, beside the Secret.
            let leaves = Leaves { object: retains, licenses: false };
            let owed = copies.ledger(&names, retains).owed(leaves);
            let names = owed
                .entries()
                .iter()
                .filter_map(|it| if let Entry::Key { name, .. } = it { Some(name.clone()) } else { None });
            assert_eq!(names.collect::<std::collections::BTreeSet<_>>(), revoked.iter().cloned().collect());
            revoked
        };
        assert_eq!(revoked(&newest, true), ["alpha-0", "alpha-1"]);
        assert_eq!(revoked(&newest, false), ["alpha-0", "alpha-1", "alpha-2"]);
        let older = record(1, "alpha-1", &["alpha-0"]);
        assert_eq!(revoked(&older, true), ["alpha-0"], "a restored Secret holds the value of alpha-1");
    }
}
