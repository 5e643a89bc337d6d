//! What is around the keys in the model: the status, other deployments, and what is told to people.

use std::sync::Arc;

use engine::{
    outcome::Trouble,
    provisioner_keys::{Held, Record, Retiring, Revoked, Surroundings, Told, Why, coderd::revoke},
};

use super::model::{Operator, Pause, World, broken};

impl Surroundings for Operator {
    async fn mirror(&self, record: &Record) -> Result<(), Trouble> {
        let mirror = |world: &mut World| {
            let mut known = self.status_version.lock().unwrap();
            if *known != world.status_version {
                return false;
            }
            world.writes += 1;
            world.status_version += 1;
            *known = world.status_version;
            assert!(record.epoch() >= world.status.epoch(), "the epoch goes back\n{world:#?}");
            world.status = record.clone();
            true
        };
        if self.call("mirror".to_owned(), mirror).await? {
            Ok(())
        } else {
            Err(broken("the object has changed"))
        }
    }

    async fn revoke_elsewhere(&self, retiring: &Retiring) -> Result<Revoked, Trouble> {
        let Some(deployment) = retiring.held.place.deployment_id else { return Ok(Revoked::OutOfReach) };
        let (now, is_ours) = {
            let world = self.lock();
            (world.now, world.wanted.names.is_ours(&retiring.held.name))
        };
        let there = Self { deployment, cache: Arc::default(), ..self.clone() };
        revoke(&there, retiring, is_ours, now).await
    }

    async fn is_of_another(&self, _: &Held) -> Result<bool, Trouble> {
        Ok(false)
    }

    async fn keeper(&self, _: &str, _: &str) -> Result<Option<String>, Trouble> {
        Ok(None)
    }

    async fn leave(&self, held: &Held) {
        Pause(false).await;
        {
            let mut world = self.lock();
            world.log.push(format!(": left {}", held.name));
            world.name_as_left(held);
        }
        Pause(false).await;
    }

    async fn revoked(&self, held: &Held, how: Revoked, why: &Why) {
        let mut world = self.lock();
        world.log.push(format!("revoked {} {how:?}: {}", held.name, why.words()));
        if how == Revoked::Doubtful {
            world.name_as_left(held);
        }
    }

    fn remember(&self, record: &Record) {
        *self.memory.lock().unwrap() = Some(record.clone());
    }

    fn told(&self, _: &Told<'_>) {}
}
