//! The Secrets of the model, as an operator reads and writes them.

use std::collections::BTreeMap;

use engine::{
    pipeline::outcome::Trouble,
    secrets::{KeySecret, Owner, Record, SecretPlace, SecretRead, Written},
};
use secrecy::{ExposeSecret as _, SecretString};

use super::model::{Coder, Operator, Stored, broken};

impl KeySecret for Operator {
    async fn read(&self, place: &SecretPlace) -> Result<Option<SecretRead>, Trouble> {
        let read = |coder: &mut Coder| {
            coder.secrets.get(&place.name).map(|it| {
                let value = it.data.get(&place.key).map(|it| SecretString::from(it.clone()));
                SecretRead {
                    owner: it.owner,
                    checksum: SecretRead::checksum_of(value.as_ref()),
                    value,
                    record: it.record.clone(),
                    withheld: it.withheld.clone(),
                    version: it.version.to_string(),
                    is_immutable: it.is_immutable,
                }
            })
        };
        let read = self.call(format!("read {}", place.name), read).await?;
        self.keep(place, read.clone());
        Ok(read)
    }

    async fn last_read(&self, place: &SecretPlace) -> Option<SecretRead> {
        let known = self.reads.lock().unwrap().get(place).cloned()?;
        let version = self.lock().secrets.get(&place.name).map(|it| it.version.to_string());
        (self.lags || version.as_ref() == Some(&known.version)).then_some(SecretRead { value: None, ..known })
    }

    async fn write(
        &self,
        place: &SecretPlace,
        record: &Record,
        value: Option<&SecretString>,
        version: Option<&str>,
    ) -> Result<Written, Trouble> {
        let write = |coder: &mut Coder| {
            let found = coder.secrets.get(&place.name).map(|it| it.version.to_string());
            if found.as_deref() != version {
                return Ok(Written::Conflict);
            }
            if value.is_some() && coder.secrets.get(&place.name).is_some_and(|it| it.is_immutable) {
                return Err(broken("immutable"));
            }
            coder.writes += 1;
            coder.versions += 1;
            let versions = coder.versions;
            let new = Stored {
                owner: Owner::Ours,
                data: BTreeMap::new(),
                record: None,
                withheld: None,
                version: 0,
                is_immutable: false,
            };
            let secret = coder.secrets.entry(place.name.clone()).or_insert(new);
            assert!(
                secret.owner == Owner::Ours || secret.record.is_some() || version.is_none(),
                "a person's Secret was written"
            );
            secret.version = versions;
            let before = secret.record.replace(record.clone()).map_or(0, |it| it.epoch());
            assert!(record.epoch() > before, "epoch {before} is followed by {}", record.epoch());
            if let Some(value) = value {
                secret.data.insert(place.key.clone(), value.expose_secret().to_owned());
            }
            let backup = secret.clone();
            coder.backups.push((place.name.clone(), backup));
            if let Some(value) = value {
                coder.newest = Some(value.expose_secret().to_owned());
            }
            Ok(Written::Done(versions.to_string()))
        };
        let what = format!(
            "write {} intent {:?} current {:?} retiring {:?}",
            if value.is_some() { "value" } else { "-" },
            record.intent.as_ref().map(|it| &it.name),
            record.current.as_ref().map(|it| &it.name),
            record.retiring.iter().map(|it| &it.held.name).collect::<Vec<_>>(),
        );
        let written = self.call(what, write).await??;
        if let (Written::Done(version), Some(known)) = (&written, self.reads.lock().unwrap().get_mut(place)) {
            known.checksum = SecretRead::checksum_of(value).or_else(|| known.checksum.take());
            (known.record, known.version) = (Some(record.clone()), version.clone());
        }
        Ok(written)
    }

    async fn remove(&self, place: &SecretPlace) -> Result<(), Trouble> {
        let remove = |coder: &mut Coder| {
            assert!(!coder.read.contains(place), "pods read {place:?}");
            coder.writes += 1;
            coder.versions += 1;
            let versions = coder.versions;
            if let Some(secret) = coder.secrets.get_mut(&place.name) {
                secret.data.remove(&place.key);
                secret.version = versions;
                if secret.data.is_empty() {
                    coder.secrets.remove(&place.name);
                }
            }
        };
        self.call(format!("remove {place:?}"), remove).await
    }
}

impl Operator {
    /// Whether the declared Secret is as this process has last read or written it.
    pub(crate) fn is_up_to_date(&self) -> bool {
        let coder = self.lock();
        let version = coder.secrets.get(&coder.wanted.secret.name).map(|it| it.version.to_string());
        self.reads.lock().unwrap().get(&coder.wanted.secret).map(|it| it.version.clone()) == version
    }

    fn keep(&self, place: &SecretPlace, read: Option<SecretRead>) {
        let mut reads = self.reads.lock().unwrap();
        match read {
            Some(read) => reads.insert(place.clone(), read),
            None => reads.remove(place),
        };
    }
}
