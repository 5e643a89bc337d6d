//! What a provisioner reports in its status beside what every kind reports. Pure: the same findings twice are the same status.

#[cfg(test)]
mod tests;

use api::{
    CoderProvisioner, CoderProvisionerStatus, Reason,
    condition::{
        BOOTSTRAP_SECRET, CONTROL_PLANE_READY, DAEMONS, DEPLOYMENT, OPERATOR_ACCESS, PROVISIONER_KEY,
        PROVISIONER_KEY_SECRET, PROVISIONERS_ENTITLED,
    },
};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{daemons::Daemons, names};
use crate::{
    kind::Aside,
    pipeline::{
        conditions::{Fact, Truth},
        outcome::Blocked,
    },
    secrets::{Record, mirror},
};

/// Fields of the status that go with the conditions, and are no record.
pub(super) const FIELDS: [&str; 6] =
    ["phase", "replicas", "readyReplicas", "selector", "daemons", "daemonVersions"];

/// What became of one thing that has to be there: nothing when it was not looked at.
pub type Stage = Option<Result<(), Blocked>>;

/// What a reconcile found out. Each of the stages is looked at only after the one before it has come to its end.
#[derive(Debug, Default)]
pub struct Findings {
    pub control_plane: Stage,
    /// The credentials: the operator's own, or those of `bootstrap`.
    pub access: Stage,
    pub entitled: Stage,
    pub key: Stage,
    pub secret: Stage,
    pub deployment: Stage,
    /// What coderd sees, or why it could not be asked.
    pub daemons: Option<Result<Daemons, Blocked>>,
    /// The number of pods, and of ready pods. `None` where the Deployment was not read.
    pub replicas: Option<(i32, i32)>,
    /// Something else that stops everything.
    pub stopped: Option<Blocked>,
    /// The id of the key, by the list of coderd.
    pub key_id: Option<Uuid>,
}

impl Findings {
    /// Whether there are as many daemons as there should be.
    fn connected(&self) -> Stage {
        match self.daemons.as_ref()? {
            Ok(daemons) => Some(daemons.standing()),
            Err(waiting) => Some(Err(waiting.clone())),
        }
    }

    fn seen(&self) -> Option<&Daemons> {
        self.daemons.as_ref()?.as_ref().ok()
    }

    /// The first thing that is not as it should be.
    pub fn trouble(&self) -> Option<Blocked> {
        let daemons = self.connected();
        let stages =
            [&self.control_plane, &self.access, &self.entitled, &self.key, &self.secret, &self.deployment];
        let mut troubles = stages.into_iter().chain([&daemons]).filter_map(|it| it.as_ref()?.as_ref().err());
        let is_complete = self.deployment.is_some() && daemons.is_some();
        let incomplete = || Blocked { reason: Reason::Progressing, message: "in progress".to_owned() };
        let trouble = self.stopped.as_ref().or_else(|| troubles.next()).cloned();
        trouble.or_else(|| (!is_complete).then(incomplete))
    }

    /// The stages as conditions.
    pub fn facts(&self, provisioner: &CoderProvisioner) -> Vec<Fact> {
        let is_bootstrap = provisioner.spec.bootstrap.is_some();
        let access = if is_bootstrap { BOOTSTRAP_SECRET } else { OPERATOR_ACCESS };
        let access_works = if is_bootstrap { Reason::SecretReady } else { Reason::OperatorAccessReady };
        let daemons = self.connected();
        let connected = self.seen().map(Daemons::words).unwrap_or_default();
        let stages = [
            (CONTROL_PLANE_READY, &self.control_plane, Reason::ControlPlaneAvailable, "answers"),
            (access, &self.access, access_works, "the credentials are accepted"),
            (PROVISIONERS_ENTITLED, &self.entitled, Reason::Entitled, "licensed"),
            (PROVISIONER_KEY, &self.key, Reason::ProvisionerKeyReady, "the key exists in Coder"),
            (PROVISIONER_KEY_SECRET, &self.secret, Reason::SecretReady, "the Secret holds the key"),
            (DEPLOYMENT, &self.deployment, Reason::MinimumReplicasReady, "every pod runs as declared"),
            (DAEMONS, &daemons, Reason::DaemonsConnected, connected.as_str()),
        ];
        let fact = |(condition, stage, works, words): (&'static str, &Stage, Reason, &str)| {
            let (truth, reason, message) = match stage {
                Some(Ok(())) => (Truth::True, works, words),
                Some(Err(waiting)) => (Truth::False, waiting.reason, waiting.message.as_str()),
                // What is not looked at because something before it failed is not known, whatever it was before.
                None => {
                    (Truth::Unknown, Reason::NotObserved, "not checked: an earlier condition is not True")
                }
            };
            Fact { condition, truth, reason, message: message.to_owned() }
        };
        stages.into_iter().map(fact).collect()
    }

    /// What only a provisioner reports. `record` has its keys; `None` where they were not observed.
    pub fn aside(&self, provisioner: &CoderProvisioner, record: Option<&Record>) -> Aside {
        let before = provisioner.status.clone().unwrap_or_default();
        let mut status = Map::new();
        let mut put = |field: &str, was: Value, is: Value| {
            if was != is {
                status.insert(field.to_owned(), is);
            }
        };
        let CoderProvisionerStatus { replicas, ready_replicas, selector, daemons, daemon_versions, .. } =
            &before;
        if let Some((now, ready)) = self.replicas {
            put("replicas", json!(replicas), json!(now));
            put("readyReplicas", json!(ready_replicas), json!(ready));
        }
        put("selector", json!(selector), json!(names::selector(provisioner)));
        // Without an answer of coderd the number of daemons is absent.
        put("daemons", json!(daemons), json!(self.seen().map(Daemons::connected)));
        let versions = self.seen().map(Daemons::versions).filter(|it| !it.is_empty());
        let known = Some(daemon_versions).filter(|it| !it.is_empty());
        put("daemonVersions", json!(known), json!(versions));
        if let Some(record) = record {
            let mut state = mirror::to_status(record);
            state.provisioner_key_id = self.key_id.map(|it| it.to_string()).or(state.provisioner_key_id);
            status.extend(mirror::changed(&before.key, &state));
        }
        Aside {
            status,
            facts: self.facts(provisioner),
            ready: self.seen().map(Daemons::words),
            ..Aside::default()
        }
    }
}

/// `Ready` or `Pending`, where the status does not say so yet.
pub(super) fn phase(provisioner: &CoderProvisioner, is_ready: bool) -> Option<&'static str> {
    let phase = if is_ready { "Ready" } else { "Pending" };
    let known = provisioner.status.as_ref().and_then(|it| it.phase.as_deref());
    Some(phase).filter(|it| known != Some(it))
}
