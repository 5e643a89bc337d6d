//! What is around the keys in the model: the status, other deployments, and what is told to people.

use std::sync::Arc;

use engine::{
    pipeline::outcome::Trouble,
    secrets::{Held, Record, Retiring, Revoked, Surroundings, Told, Why, coderd::revoke},
};

use super::model::{Coder, Operator, Pause, broken};

impl Surroundings for Operator {
    async fn mirror(&self, record: &Record) -> Result<(), Trouble> {
        let mirror = |coder: &mut Coder| {
            let mut known = self.status_version.lock().unwrap();
            if *known != coder.status_version {
                return false;
            }
            coder.writes += 1;
            coder.status_version += 1;
            *known = coder.status_version;
            assert!(record.epoch() >= coder.status.epoch(), "the epoch goes back\n{coder:#?}");
            coder.status = record.clone();
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
            let coder = self.lock();
            (coder.now, coder.wanted.names.is_ours(&retiring.held.name))
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
            let mut coder = self.lock();
            coder.log.push(format!(": left {}", held.name));
            coder.name_as_left(held);
        }
        Pause(false).await;
    }

    async fn revoked(&self, held: &Held, how: Revoked, why: &Why) {
        let mut coder = self.lock();
        coder.log.push(format!("revoked {} {how:?}: {}", held.name, why.words()));
        if how == Revoked::Doubtful {
            coder.name_as_left(held);
        }
    }

    fn remember(&self, record: &Record) {
        *self.memory.lock().unwrap() = Some(record.clone());
    }

    fn told(&self, _: &Told<'_>) {}
}
