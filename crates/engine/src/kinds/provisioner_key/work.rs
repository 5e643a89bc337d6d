//! The IO of a key that is only kept in a Secret: looking, doing what is due, and the end.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use uuid::Uuid;

use super::{desk, in_words};
use crate::{
    outcome::Trouble,
    provisioner_keys::{
        Coderd as _, Desk, Drive, Driven, Ending, Foreseen, Held, Holder, KeySecret as _, Place, Record,
        Retiring, Revoked, SecretPlace, Surroundings, Told, Wanted, Why, coderd::revoke, desk::SecretsOf,
        drive::is_anothers, end,
    },
    world::World,
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
    pub(super) async fn look(&self, world: &World) -> Result<Foreseen, Trouble> {
        let desk = desk(world)?;
        let (secrets, around) =
            (SecretsOf(desk.secrets(&self.holder)), Around { desk, holder: &self.holder });
        let (foreseen, proved) = self.pass(&self.wanted, world, &secrets, &around).look().await?;
        desk.remember(&self.holder, proved);
        Ok(foreseen)
    }

    /// Does what is due, and revokes none but these of the keys that somebody may have.
    pub(super) async fn drive(
        &self,
        world: &World,
        goes: impl Fn(&Held) -> bool + Send + Sync,
    ) -> Result<Driven, Trouble> {
        let desk = desk(world)?;
        // When it was planned the organization may have been a promise.
        let organization_id = world.organization_id(&self.wanted.organization_name).await?;
        let wanted = Wanted { organization_id, ..self.wanted.clone() };
        let (secrets, around) =
            (SecretsOf(desk.secrets(&self.holder)), Around { desk, holder: &self.holder });
        let driven = self.pass(&wanted, world, &secrets, &around).run_revoking(goes).await?;
        desk.remember(&self.holder, driven.proved.clone());
        Ok(driven)
    }

    fn pass<'a>(
        &self,
        wanted: &'a Wanted,
        world: &'a World,
        secret: &'a SecretsOf,
        around: &'a Around<'a>,
    ) -> Drive<'a, World, SecretsOf, Around<'a>> {
        Drive {
            wanted,
            coderd: world,
            secret,
            around,
            mirror: self.mirror.clone(),
            remembered: around.desk.last_record(&self.holder),
            pods: None,
            proved: around.desk.proved(&self.holder),
            now: around.desk.now(),
        }
    }

    /// Names what a deletion has tried and not taken away. `None` before it has tried.
    pub(super) fn left(&self) -> Option<String> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The Secrets that hold our keys or did, and every copy of the record, the newest first. Names are those of the record
    /// and of the status, whatever the manifest says by now.
    async fn records(&self, desk: &dyn Desk) -> Result<(Vec<SecretPlace>, Vec<Record>), Trouble> {
        let store = SecretsOf(desk.secrets(&self.holder));
        let (mut secrets, mut records) = (Vec::new(), self.known(desk));
        let elsewhere = self.mirror.secret.iter().filter(|it| **it != self.wanted.secret);
        for place in [&self.wanted.secret].into_iter().chain(elsewhere) {
            let found = store.read(place).await?.and_then(|it| it.record);
            if let Some(found) = found.filter(|it| it.holder == self.wanted.names.uid) {
                secrets.push(place.clone());
                records.push(found);
            }
        }
        records.sort_by_key(|it| Reverse(it.rank()));
        Ok((secrets, records))
    }

    /// The copies of the record that need no request.
    fn known(&self, desk: &dyn Desk) -> Vec<Record> {
        [self.mirror.clone()].into_iter().chain(desk.last_record(&self.holder)).collect()
    }

    /// The names of the keys that are ours, as far as a record has them.
    pub(super) async fn names_of_ours(&self, desk: &dyn Desk) -> Vec<String> {
        let records = match self.records(desk).await {
            Ok((_, records)) => records,
            Err(_) => self.known(desk),
        };
        let ending = Ending { names: &self.wanted.names, records: &records, listed: None };
        names(end(&ending).iter())
    }

    /// The keys that are ours, and the Secrets that hold them or did.
    pub(super) async fn ours(&self, world: &World) -> Result<(Vec<Retiring>, Vec<SecretPlace>), Trouble> {
        let desk = desk(world)?;
        let (secrets, records) = self.records(desk).await?;
        let current = records.iter().find_map(|it| it.current.as_ref());
        let home =
            current.filter(|it| it.place.is_same(&self.wanted.place)).and_then(|it| it.organization_id);
        let listed = match home {
            Some(organization) => world.list(organization, false, desk.now()).await?.keys,
            None => Vec::new(),
        };
        let listed = Some((listed.as_slice(), &self.wanted.place));
        let mut keys = Vec::new();
        for retiring in end(&Ending { names: &self.wanted.names, records: &records, listed }) {
            if !self.is_anothers(&retiring, desk).await? {
                keys.push(retiring);
            }
        }
        Ok((keys, secrets))
    }

    /// Revokes keys, and then takes away the Secrets: while there is something left to do, the record has to be there. A key
    /// that cannot be revoked holds up no other.
    pub(super) async fn end(
        &self,
        keys: &[Retiring],
        secrets: &[SecretPlace],
        world: &World,
    ) -> Result<(), Trouble> {
        let desk = desk(world)?;
        let (mut left, mut failed) = (Vec::new(), None);
        for retiring in keys {
            match self.revoke(retiring, world, desk).await {
                Ok(done) => {
                    desk.revoked(&self.holder, &retiring.held, done, &Why::Deleted).await;
                    if done == Revoked::OutOfReach {
                        desk.left(&self.holder, &retiring.held).await;
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
        let store = SecretsOf(desk.secrets(&self.holder));
        for place in secrets {
            if let Err(trouble) = store.remove(place).await {
                self.leave(Some(format!("Secret {}", place.name)));
                return Err(trouble);
            }
        }
        desk.remember(&self.holder, None);
        if let Some(last) = desk.last_record(&self.holder) {
            // Nothing is held any more: a deletion that is asked for again finds nothing to do.
            let epoch = Some(last.epoch().saturating_add(1));
            desk.keep_record(&self.holder, &Record { holder: last.holder, epoch, ..Record::default() });
        }
        Ok(())
    }

    fn leave(&self, words: Option<String>) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    async fn revoke(&self, retiring: &Retiring, world: &World, desk: &dyn Desk) -> Result<Revoked, Trouble> {
        let Held { name, place, .. } = &retiring.held;
        if self.is_anothers(retiring, desk).await? {
            return Ok(Revoked::NotOurs);
        }
        if !self.is_here(place) {
            return Ok(Revoked::OutOfReach);
        }
        revoke(world, retiring, self.wanted.names.is_ours(name), desk.now()).await
    }

    async fn is_anothers(&self, retiring: &Retiring, desk: &dyn Desk) -> Result<bool, Trouble> {
        let is_ours_by_name = self.wanted.names.is_ours(&retiring.held.name);
        is_anothers(&Around { desk, holder: &self.holder }, retiring, is_ours_by_name).await
    }

    /// Whether a key is of the deployment that answers. No other one is ever asked.
    fn is_here(&self, place: &Place) -> bool {
        place.deployment_id.is_none_or(|it: Uuid| Some(it) == self.wanted.place.deployment_id)
    }
}

/// The names of keys, each once.
fn names<'a>(keys: impl IntoIterator<Item = &'a Retiring>) -> Vec<String> {
    let names: BTreeSet<&str> = keys.into_iter().map(|it| it.held.name.as_str()).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// What is around the keys of one object.
struct Around<'a> {
    desk: &'a dyn Desk,
    holder: &'a Holder,
}

impl Surroundings for Around<'_> {
    async fn mirror(&self, record: &Record) -> Result<(), Trouble> {
        self.desk.mirror(self.holder, record).await
    }

    /// The control plane cannot be changed, so a key of another deployment is out of everybody's reach.
    async fn revoke_elsewhere(&self, _: &Retiring) -> Result<Revoked, Trouble> {
        Ok(Revoked::OutOfReach)
    }

    async fn is_of_another(&self, held: &Held) -> Result<bool, Trouble> {
        self.desk.is_of_another(self.holder, held).await
    }

    async fn keeper(&self, secret: &str, uid: &str) -> Result<Option<String>, Trouble> {
        self.desk.keeper(self.holder, secret, uid).await
    }

    async fn leave(&self, held: &Held) {
        self.desk.left(self.holder, held).await;
    }

    async fn revoked(&self, held: &Held, how: Revoked, why: &Why) {
        self.desk.revoked(self.holder, held, how, why).await;
    }

    fn remember(&self, record: &Record) {
        self.desk.keep_record(self.holder, record);
    }

    fn told(&self, _: &Told<'_>) {}
}
