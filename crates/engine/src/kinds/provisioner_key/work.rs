//! The IO of a key that is only kept in a Secret: looking, doing what is due, and the end.

use uuid::Uuid;

use super::desk;
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
}

impl Job {
    /// What would be done. Nothing is written.
    pub(super) async fn look(&self, world: &World) -> Result<Foreseen, Trouble> {
        let desk = desk(world)?;
        let (secrets, around) =
            (SecretsOf(desk.secrets(&self.holder)), Around { desk, holder: &self.holder });
        self.pass(&self.wanted, world, &secrets, &around).look().await
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
        self.pass(&wanted, world, &secrets, &around).run_revoking(goes).await
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
            now: around.desk.now(),
        }
    }

    /// The keys that are ours, and the Secrets that hold them or did. Names are those of the record and of the status,
    /// whatever the manifest says by now.
    pub(super) async fn ours(&self, world: &World) -> Result<(Vec<Retiring>, Vec<SecretPlace>), Trouble> {
        let desk = desk(world)?;
        let store = SecretsOf(desk.secrets(&self.holder));
        let (names, mirror) = (&self.wanted.names, &self.mirror);
        let (mut secrets, mut records) = (Vec::new(), Vec::new());
        let elsewhere = mirror.secret.iter().filter(|it| **it != self.wanted.secret);
        for place in [&self.wanted.secret].into_iter().chain(elsewhere) {
            let found = store.read(place).await?.and_then(|it| it.record);
            if let Some(found) = found.filter(|it| it.holder == names.uid) {
                secrets.push(place.clone());
                records.push(found);
            }
        }
        records.push(mirror.clone());
        records.extend(desk.last_record(&self.holder));
        records.sort_by_key(|it| std::cmp::Reverse(it.rank()));
        let current = records.iter().find_map(|it| it.current.as_ref());
        let home =
            current.filter(|it| it.place.is_same(&self.wanted.place)).and_then(|it| it.organization_id);
        let listed = match home {
            Some(organization) => world.list(organization, false, desk.now()).await?.keys,
            None => Vec::new(),
        };
        let listed = Some((listed.as_slice(), &self.wanted.place));
        let mut keys = Vec::new();
        for retiring in end(&Ending { names, records: &records, listed }) {
            if !self.is_anothers(&retiring, desk).await? {
                keys.push(retiring);
            }
        }
        Ok((keys, secrets))
    }

    /// Revokes keys, and then takes away the Secrets: while there is something left to do, the record has to be there.
    pub(super) async fn end(
        &self,
        keys: &[Retiring],
        secrets: &[SecretPlace],
        world: &World,
    ) -> Result<(), Trouble> {
        let desk = desk(world)?;
        for retiring in keys {
            let Held { name, place, .. } = &retiring.held;
            let done = if self.is_anothers(retiring, desk).await? {
                Revoked::NotOurs
            } else if self.is_here(place) {
                revoke(world, retiring, self.wanted.names.is_ours(name), desk.now()).await?
            } else {
                Revoked::OutOfReach
            };
            desk.revoked(&self.holder, &retiring.held, done, &Why::Deleted).await;
            if done == Revoked::OutOfReach {
                desk.left(&self.holder, &retiring.held).await;
            }
        }
        let store = SecretsOf(desk.secrets(&self.holder));
        for place in secrets {
            store.remove(place).await?;
        }
        if let Some(last) = desk.last_record(&self.holder) {
            // Nothing is held any more: a deletion that is asked for again finds nothing to do.
            let epoch = Some(last.epoch().saturating_add(1));
            desk.keep_record(&self.holder, &Record { holder: last.holder, epoch, ..Record::default() });
        }
        Ok(())
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
