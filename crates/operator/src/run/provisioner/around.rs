//! What is around the keys of one provisioner: its status, other deployments, and those who read what happens.

use std::sync::{Mutex, PoisonError};

use api::{CoderProvisioner, CoderProvisionerStatus, Reason};
use engine::{
    Blocked, Outcome, Trouble,
    provisioner::report::{self, Findings},
    provisioner_keys::{
        Held, Names, Next, Record, Retiring, Revoked, Surroundings, Told, Why,
        coderd::revoke,
        mirror::{advanced, of_status, to_status},
    },
};
use jiff::Timestamp;
use kube::{ResourceExt as _, runtime::events::EventType};
use serde_json::{Map, Value, json};

use crate::run::{
    Shared,
    desk::{left_behind, report_revoked},
    key_holders,
    letting_go::{Obstacle, plane},
    pass::About,
    record::{leave_behind, mark_with, publish},
    wake::PERIODIC,
};

/// One provisioner in one pass.
pub(super) struct Around<'a> {
    shared: &'a Shared,
    names: &'a Names,
    /// As it was last read or written.
    provisioner: Mutex<CoderProvisioner>,
    news: Mutex<Vec<News>>,
}

/// What people are told at the end of a pass: a reason, an action, and words.
type News = (Reason, &'static str, String);

impl<'a> Around<'a> {
    pub(super) fn new(provisioner: CoderProvisioner, names: &'a Names, shared: &'a Shared) -> Self {
        Self { shared, names, provisioner: Mutex::new(provisioner), news: Mutex::default() }
    }

    pub(super) fn provisioner(&self) -> CoderProvisioner {
        self.provisioner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the status says of the keys.
    pub(super) fn recorded(&self) -> Record {
        let provisioner = self.provisioner();
        let state = provisioner.status.unwrap_or_default().key;
        of_status(&state, &self.names.uid)
    }

    /// Takes the record into the status, which is written when the pass has come to its end: the Secret has it already.
    pub(super) fn hold(&self, record: &Record) {
        let mut provisioner = self.provisioner.lock().unwrap_or_else(PoisonError::into_inner);
        provisioner.status.get_or_insert_default().key = to_status(record);
    }

    /// Writes the record into the status where it is another one. A status with a newer record is left as it is.
    async fn settle(&self, record: &Record) -> Result<(), kube::Error> {
        let fields = |now: &CoderProvisioner| {
            let known = now.status.clone().unwrap_or_default();
            let mut fields = advanced(&known.key, record)?;
            if !fields.is_empty() && !report::is_begun(now) {
                fields.append(&mut first_status(now));
            }
            Some(fields)
        };
        let marked = mark_with(&self.provisioner(), &self.shared.client, fields).await?;
        let mut current = self.provisioner.lock().unwrap_or_else(PoisonError::into_inner);
        // The manifest stays as it is in this pass; the next one sees whatever has changed in it.
        current.metadata.resource_version = marked.metadata.resource_version;
        current.status = marked.status;
        Ok(())
    }

    /// Takes a key of another deployment away, with what that deployment is reached by.
    pub(super) async fn elsewhere(&self, retiring: &Retiring) -> Result<Revoked, Trouble> {
        let place = &retiring.held.place;
        let name = (self.provisioner().namespace().unwrap_or_default(), place.control_plane.clone());
        let plane = match plane(&name, self.shared).await {
            Ok(plane) => plane,
            Err(Obstacle::Gone(_)) => return Ok(Revoked::OutOfReach),
            Err(Obstacle::NotNow(Outcome::Failed(trouble))) => return Err(trouble),
            Err(Obstacle::NotNow(outcome)) => {
                let message = format!("control plane {} cannot be used: {}", name.1, outcome.reason());
                return Err(Blocked { reason: Reason::ControlPlaneNotReady, message }.into());
            }
        };
        if place.deployment_id.is_some_and(|it| it != plane.deployment()) {
            // Another deployment has taken its place: nothing there is ours.
            return Ok(Revoked::OutOfReach);
        }
        let is_ours_by_name = self.names.is_ours(&retiring.held.name);
        revoke(&plane.world(PERIODIC), retiring, is_ours_by_name, Timestamp::now()).await
    }

    /// Tells what happened. Nothing of it is secret.
    pub(super) fn publish(&self) {
        let news = std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner));
        let provisioner = self.provisioner();
        for (reason, action, note) in news {
            publish(&provisioner, EventType::Normal, (reason, action), &note, self.shared);
        }
    }

    fn tell(&self, news: News) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push(news);
    }
}

/// The fields of the first status of a provisioner: what is about to be minted is written together with them.
fn first_status(provisioner: &CoderProvisioner) -> Map<String, Value> {
    let before = provisioner.status.clone().unwrap_or_default();
    let CoderProvisionerStatus { observed_generation, conditions, phase, .. } =
        report::status(provisioner, before, &Findings::default(), Timestamp::now());
    let fields = json!({"observedGeneration": observed_generation, "conditions": conditions, "phase": phase});
    fields.as_object().cloned().unwrap_or_default()
}

impl Surroundings for Around<'_> {
    async fn mirror(&self, record: &Record) -> Result<(), Trouble> {
        self.settle(record).await.map_err(|error| {
            let message = format!("the name of a key cannot be written down: {error}");
            Blocked { reason: Reason::Progressing, message }.into()
        })
    }

    async fn revoke_elsewhere(&self, retiring: &Retiring) -> Result<Revoked, Trouble> {
        self.elsewhere(retiring).await
    }

    async fn is_of_another(&self, held: &Held) -> Result<bool, Trouble> {
        key_holders::is_of_another(&self.names.uid, held, self.shared).await
    }

    async fn keeper(&self, secret: &str, uid: &str) -> Result<Option<String>, Trouble> {
        let namespace = self.provisioner().namespace().unwrap_or_default();
        key_holders::keeper(&self.shared.client, &namespace, secret, uid).await
    }

    async fn leave(&self, held: &Held) {
        let note = left_behind(&held.name, &held.place.control_plane);
        leave_behind(&self.provisioner(), Reason::Deleting, &note, self.shared).await;
    }

    async fn revoked(&self, held: &Held, how: Revoked, why: &Why) {
        report_revoked(&self.provisioner(), held, how, why, self.shared).await;
    }

    fn remember(&self, record: &Record) {
        self.shared.memory.with(&About::of(&self.provisioner()), |it| it.record = Some(record.clone()));
    }

    fn told(&self, told: &Told<'_>) {
        match told {
            Told::Action(Next::Write(write)) => {
                if let Some(need) = &write.begins {
                    tracing::info!("a key is made: {need:?}");
                }
            }
            Told::Action(_) => {}
            Told::Minted { name } => {
                tracing::info!(key = name, "a key was made");
                self.tell((Reason::KeyMinted, "Create", format!("provisioner key {name} was made")));
            }
            Told::NotRevoked { held } => tracing::warn!(key = held.name, "a key is not revoked yet"),
        }
    }
}
