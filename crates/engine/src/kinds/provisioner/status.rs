//! The status of a provisioner after a pass. Pure: the same findings twice are the same status.

#[cfg(test)]
mod tests;

use api::{
    ApprovedPlan, CoderProvisioner, CoderProvisionerStatus, Reason,
    condition::{
        BOOTSTRAP_SECRET, CONTROL_PLANE_READY, DAEMONS, DEPLOYMENT, DRIFTED, OPERATOR_ACCESS,
        PROVISIONER_KEY, PROVISIONER_KEY_SECRET, PROVISIONERS_ENTITLED, READY, RECONCILING, STALLED,
    },
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;

use super::{daemons::Daemons, names::target};
use crate::pipeline::{
    conditions::{Conditions, Truth},
    held_back::HeldBack,
    outcome::Blocked,
    status::{drift, shown},
};

/// What became of one thing that has to be there: nothing when it was not looked at.
pub type Stage = Option<Result<(), Blocked>>;

/// What a pass found out. Each of the stages is looked at only after the one before it has come to its end.
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
    /// The pods that there are, and those that serve; nothing when nobody looked.
    pub replicas: Option<(i32, i32)>,
    /// Something else that stops everything.
    pub stopped: Option<Blocked>,
    /// The plan that is not carried out.
    pub held_back: Option<HeldBack>,
    /// The approved plan whose rounds are being carried out.
    pub approved: Option<ApprovedPlan>,
    /// Whether something was changed.
    pub changed: bool,
    /// The value of the annotation that asked for this pass.
    pub requested: Option<String>,
}

/// How a pass ended in the words of its condition `Ready`.
#[derive(Debug, PartialEq, Eq)]
pub struct Readiness {
    pub is_ready: bool,
    pub reason: Reason,
    pub message: String,
    /// Whether only a person can bring it forward.
    pub is_stalled: bool,
}

impl Findings {
    /// Nothing was looked at, because a person says so.
    pub fn suspended() -> Self {
        let message = "suspended: nothing is read or changed; the daemons go on".to_owned();
        Self { stopped: Some(Blocked { reason: Reason::Suspended, message }), ..Self::default() }
    }

    /// Whether there are as many daemons as there should be.
    fn connected(&self) -> Stage {
        match self.daemons.as_ref()? {
            Ok(daemons) => Some(daemons.standing()),
            Err(waiting) => Some(Err(waiting.clone())),
        }
    }

    /// Whether a plan waits for a person.
    fn is_refused(&self) -> bool {
        self.stopped.is_none() && self.held_back.as_ref().is_some_and(|it| it.outcome.is_stalled())
    }

    fn seen(&self) -> Option<&Daemons> {
        self.daemons.as_ref()?.as_ref().ok()
    }

    /// The first thing that is not as it should be.
    pub fn readiness(&self) -> Readiness {
        let daemons = self.connected();
        let stages =
            [&self.control_plane, &self.access, &self.entitled, &self.key, &self.secret, &self.deployment];
        let mut troubles = stages.into_iter().chain([&daemons]).filter_map(|it| it.as_ref()?.as_ref().err());
        let held_back = self.held_back.as_ref().map(HeldBack::blocked);
        let trouble = self.stopped.as_ref().or(held_back.as_ref()).or_else(|| troubles.next());
        let is_complete = self.deployment.is_some() && daemons.is_some();
        match trouble {
            Some(Blocked { reason, message }) => Readiness {
                is_ready: false,
                reason: *reason,
                message: message.clone(),
                is_stalled: reason.stalls() || self.is_refused(),
            },
            None if is_complete => Readiness {
                is_ready: true,
                reason: Reason::UpToDate,
                message: self.seen().map(Daemons::words).unwrap_or_default(),
                is_stalled: false,
            },
            None => Readiness {
                is_ready: false,
                reason: Reason::Progressing,
                message: "on its way".to_owned(),
                is_stalled: false,
            },
        }
    }
}

/// Whether the status says anything yet. An empty one would look healthy to those who read it.
pub fn is_begun(provisioner: &CoderProvisioner) -> bool {
    provisioner.status.as_ref().is_some_and(|it| it.conditions.iter().any(|it| it.type_ == READY))
}

/// The status after a pass. What is known of the keys is in `before` already. A pass over an older manifest has nothing to
/// say where one over a newer one has spoken.
pub fn status(
    provisioner: &CoderProvisioner,
    before: CoderProvisionerStatus,
    findings: &Findings,
    now: Timestamp,
) -> CoderProvisionerStatus {
    if before.observed_generation > provisioner.metadata.generation {
        return before;
    }
    let conditions = conditions(provisioner, &before, findings, now);
    let is_ready = findings.readiness().is_ready;
    let approved = findings.approved.clone().or_else(|| before.approved.clone());
    let mut next = CoderProvisionerStatus {
        observed_generation: provisioner.metadata.generation,
        conditions,
        phase: Some(if is_ready { "Ready" } else { "Pending" }.to_owned()),
        selector: Some(super::names::selector(provisioner)),
        last_handled_reconcile_at: findings
            .requested
            .clone()
            .or_else(|| before.last_handled_reconcile_at.clone()),
        plan: findings.held_back.as_ref().map(|it| shown(&it.plan, &target(&provisioner.name_any()))),
        approved: approved.filter(|it| !is_ready && it.generation == provisioner.metadata.generation),
        drift: findings.held_back.as_ref().map(|it| drift(&it.plan)).unwrap_or_default(),
        last_applied_time: if findings.changed { Some(Time(now)) } else { before.last_applied_time.clone() },
        // Numbers of which nobody knows whether they are still true are none.
        daemons: findings.seen().map(Daemons::connected),
        daemon_versions: findings.seen().map(Daemons::versions).unwrap_or_default(),
        ..before
    };
    if let Some((replicas, ready)) = findings.replicas {
        next.replicas = Some(replicas);
        next.ready_replicas = Some(ready);
    }
    next
}

fn conditions(
    provisioner: &CoderProvisioner,
    before: &CoderProvisionerStatus,
    findings: &Findings,
    now: Timestamp,
) -> Vec<Condition> {
    let Readiness { is_ready, reason, message, is_stalled } = findings.readiness();
    let is_bootstrap = provisioner.spec.bootstrap.is_some();
    let access = if is_bootstrap { BOOTSTRAP_SECRET } else { OPERATOR_ACCESS };
    let access_works = if is_bootstrap { Reason::SecretReady } else { Reason::OperatorAccessReady };
    let daemons = findings.connected();
    let is_suspended = reason == Reason::Suspended;
    let truth = if is_suspended { Truth::Unknown } else { is_ready.into() };
    let mut made = Conditions::new(&before.conditions, provisioner.metadata.generation, now)
        .with(READY, truth, reason, &message);
    let connected = findings.seen().map(Daemons::words).unwrap_or_default();
    // What is not looked at because something before it failed is not known, whatever it was before.
    let stages = [
        (CONTROL_PLANE_READY, &findings.control_plane, Reason::ControlPlaneAvailable, "answers"),
        (access, &findings.access, access_works, "the credentials are taken"),
        (PROVISIONERS_ENTITLED, &findings.entitled, Reason::Entitled, "licensed"),
        (PROVISIONER_KEY, &findings.key, Reason::ProvisionerKeyReady, "coderd knows the key"),
        (PROVISIONER_KEY_SECRET, &findings.secret, Reason::SecretReady, "the Secret holds the key"),
        (DEPLOYMENT, &findings.deployment, Reason::MinimumReplicasReady, "every pod runs as declared"),
        (DAEMONS, &daemons, Reason::DaemonsConnected, connected.as_str()),
    ];
    for (kind, stage, works, words) in stages {
        made = match stage {
            Some(Ok(())) => made.with(kind, Truth::True, works, words),
            Some(Err(waiting)) => made.with(kind, Truth::False, waiting.reason, &waiting.message),
            None => {
                made.with(kind, Truth::Unknown, Reason::NotObserved, "something before it has to come first")
            }
        };
    }
    let made = match &findings.held_back {
        Some(held) => made.with(DRIFTED, Truth::True, Reason::DriftFound, &held.plan.summary),
        None if findings.deployment.is_some() => made.with(DRIFTED, Truth::False, Reason::NoDrift, ""),
        None => made.with(DRIFTED, Truth::Unknown, Reason::NotObserved, ""),
    };
    match (is_ready || is_suspended || reason == Reason::Observed, is_stalled) {
        (true, _) => made.made(),
        (false, true) => made.with(STALLED, Truth::True, reason, &message).made(),
        (false, false) => made.with(RECONCILING, Truth::True, reason, &message).made(),
    }
}
