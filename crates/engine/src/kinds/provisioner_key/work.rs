//! The IO of a key that is only kept in a Secret: looking, doing what is due, and the end.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use uuid::Uuid;

use super::{in_words, store};
use crate::{
    coder::Coder,
    keys::{Drive, Driven, coderd::revoke, drive::is_anothers},
    pipeline::outcome::Trouble,
    secrets::{
        Around, Held, HeldKeys, Holder, KeyPreview, KeySecrets, KeyStore, LiveKey, Names, Place, Record,
        Retiring, Revoked, SecretPlace, Wanted, Why, keys_to_revoke,
    },
};

/// Everything that is known of an object before anybody is asked.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) holder: Holder,
    pub(super) wanted: Wanted,
    /// What the status says.
    pub(super) mirror: Record,
    /// What a deletion has tried and not taken away, in words.
    pub(super) left: Mutex<Option<String>>,
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

    /// Names what a deletion has tried and not taken away. `None` before it has tried.
    pub(super) fn left(&self) -> Option<String> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

    /// The names of the keys that a deletion revokes, as far as a record has them.
    pub(super) async fn names_of_ours(&self, retains: bool, store: KeyStore<'_>) -> Vec<String> {
        let copies = match self.copies(store).await {
            Ok(copies) => copies,
            Err(_) => self.known(store),
        };
        names(&copies.keys(&self.wanted.names, retains, None))
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
        let (mut left, mut failed) = (Vec::new(), None);
        for retiring in keys {
            match self.revoke(retiring, coder, store).await {
                Ok(done) => {
                    around.revoked(&retiring.held, done, &Why::Deleted).await;
                    if done == Revoked::OutOfReach {
                        around.leave(&retiring.held).await;
                    }
                }
                Err(trouble) => {
                    left.push(retiring);
                    failed.get_or_insert(trouble);
                }
            }
        }
        if let Some(trouble) = failed {
            self.leave(in_words(&names(left)));
            return Err(trouble);
        }
        let secrets = KeySecrets::new(store, &self.holder);
        for place in places {
            if let Err(trouble) = secrets.remove(place).await {
                self.leave(Some(format!("Secret {}", place.name)));
                return Err(trouble);
            }
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

    fn leave(&self, words: Option<String>) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = words;
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
}

/// The names of keys, each once.
fn names<'a>(keys: impl IntoIterator<Item = &'a Retiring>) -> Vec<String> {
    let names: BTreeSet<&str> = keys.into_iter().map(|it| it.held.name.as_str()).collect();
    names.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

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
            self::names(&copies.keys(&names, retains, None))
        };
        assert_eq!(revoked(&newest, true), ["alpha-0", "alpha-1"]);
        assert_eq!(revoked(&newest, false), ["alpha-0", "alpha-1", "alpha-2"]);
        let older = record(1, "alpha-1", &["alpha-0"]);
        assert_eq!(revoked(&older, true), ["alpha-0"], "a restored Secret holds the value of alpha-1");
    }
}
