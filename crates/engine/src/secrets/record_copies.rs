//! Every copy of the record of one object's keys, for a deletion: in the status, in Secrets, in the memory of this process.

use std::cmp::Reverse;

use super::{
    deletion::{HeldKeys, key_entries, key_entry, keys_to_revoke},
    holder::Holder,
    key_secrets::KeySecrets,
    memory::KeyStore,
    names::Names,
    record::{Held, Place, Record, Retiring, SecretPlace},
    situation::LiveKey,
};
use crate::{
    pipeline::{
        ledger::{Entry, KeyState, Ledger},
        outcome::Trouble,
    },
    ports::Reading,
};

/// The copies of a record.
#[derive(Debug)]
pub struct RecordCopies {
    /// All of them, the newest first.
    pub records: Vec<Record>,
    /// Those that stand beside a value.
    pub in_secrets: Vec<(SecretPlace, Record)>,
}

impl RecordCopies {
    /// Reads every copy. Secrets are the declared one and the one that the value was written into last; with [`Reading::Known`] a
    /// Secret that has not changed since it was last read is not read again. The second value is why a Secret could not be read.
    pub async fn read(
        (holder, store): (&Holder, KeyStore<'_>),
        mirror: &Record,
        declared: &SecretPlace,
        reading: Reading,
    ) -> (Self, Option<Trouble>) {
        let secrets = KeySecrets::new(store, holder);
        let mut copies = Self { records: vec![mirror.clone()], in_secrets: Vec::new() };
        copies.records.extend(store.memory.record(holder));
        // Without an owner only the record says whose a Secret is.
        let is_its =
            |it: &Record| it.holder == holder.uid || (it.holder.is_empty() && holder.owner.is_some());
        let mut trouble = None;
        let elsewhere = mirror.secret.iter().filter(|it| *it != declared);
        for place in [declared].into_iter().chain(elsewhere) {
            let known = if reading == Reading::Known { secrets.last_read(place).await } else { None };
            let read = match known {
                Some(known) => Ok(Some(known)),
                None => secrets.read(place).await,
            };
            match read {
                Ok(read) => {
                    let found = read.and_then(|it| it.record).filter(is_its);
                    copies.records.extend(found.clone());
                    copies.in_secrets.extend(found.map(|it| (place.clone(), it)));
                }
                Err(error) => drop(trouble.get_or_insert(error)),
            }
        }
        copies.records.sort_by_key(|it| Reverse(it.rank()));
        (copies, trouble)
    }

    /// The key in use.
    pub fn current(&self) -> Option<&Held> {
        self.records.iter().find_map(|it| it.current.as_ref())
    }

    /// The keys that a deletion revokes. One that retains leaves the key in use, and every key whose value a Secret holds.
    pub fn keys(&self, names: &Names, retains: bool, listed: Option<(&[LiveKey], &Place)>) -> Vec<Retiring> {
        let mut keys = keys_to_revoke(&HeldKeys { names, records: &self.records, listed });
        if retains {
            let values = self.in_secrets.iter().filter_map(|(_, it)| it.current.as_ref());
            let kept: Vec<&Held> = self.current().into_iter().chain(values).collect();
            keys.retain(|it| !kept.iter().any(|held| held.is_called(&it.held.name, it.held.organization_id)));
        }
        keys
    }

    /// What a deletion has to take back. One that retains holds every key in use whose value a Secret has.
    pub fn ledger(&self, names: &Names, retains: bool) -> Ledger {
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
            let copies = RecordCopies {
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
