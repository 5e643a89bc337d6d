//! The objects of a managed control plane: which are there, which should be, what is applied, and what became of the pods.

mod read;
mod unmanaged;

use std::{collections::BTreeSet, sync::Arc};

use api::{AppState as _, CoderControlPlane, Reason};
use kube::ResourceExt as _;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use self::read::{Found, read};
pub use self::unmanaged::report_unmanaged;
use super::{
    children::Desired, facts::PlaneContext, ledger, names::selector, unlooked::unlooked, version,
    workspace_roles,
};
use crate::{
    coder::Coder,
    driver::Report,
    kind::{Aside, Carried, Kind, Round, Runner},
    objects::{self, ChildEffect, Comparison, Planned, Run, references::references, rollout::Rollout},
    pipeline::{
        decide::Contact,
        given::Given,
        ledger::Ledger,
        outcome::{Blocked, Invalid, Outcome, Trouble},
        plan::{Plan, Step},
        reference::Ref,
    },
};

/// The objects of a control plane that we run.
#[derive(Debug)]
pub struct PlaneObjects;

/// How it stands with the objects of a control plane that we run.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Whether the pods are those that are declared, and serve.
    pub standing: Result<(), Blocked>,
    pub ready_replicas: Option<i32>,
    /// The newest version of Coder that has worked on the database, as far as containers tell.
    pub database_version: Option<String>,
    /// What is left out, and what a person should know; nothing where that is not known.
    pub notices: Option<Vec<Blocked>>,
    /// Further namespaces that have Roles for workspaces. `None` where that was not found out.
    pub workspace_namespaces: Option<Vec<String>>,
}

impl Workload {
    /// The objects were not compared.
    pub fn stopped(waiting: Blocked) -> Self {
        Self {
            standing: Err(waiting),
            ready_replicas: None,
            database_version: None,
            notices: None,
            workspace_namespaces: None,
        }
    }

    /// Adds the result of the steps: refused steps become notices, and unfinished steps make `standing` an error.
    #[must_use]
    pub fn after(mut self, report: &Report) -> Self {
        let Report { refused, outcome, .. } = report;
        if !refused.is_empty() {
            let notices = self.notices.get_or_insert_default();
            let new: Vec<Blocked> = refused.iter().filter(|it| !notices.contains(it)).cloned().collect();
            notices.extend(new);
        }
        let is_blocked = self.standing.as_ref().is_err_and(|it| it.reason.blocks_rollout());
        let left = if let Outcome::Blocked(blocked) = outcome { Some(blocked) } else { None };
        let blocking = refused.iter().find(|it| it.reason.blocks_rollout() && !is_blocked);
        let is_progressing = self.standing.as_ref().is_err_and(|it| it.reason == Reason::Progressing);
        let stops = |it: &&Blocked| is_progressing && it.reason != Reason::Progressing;
        if let Some(blocked) = blocking.or_else(|| left.filter(|it| self.standing.is_ok() || stops(it))) {
            self.standing = Err(blocked.clone());
        }
        self
    }
}

/// The objects as they were compared.
#[derive(Debug)]
pub struct ObservedObjects {
    manifest: Arc<CoderControlPlane>,
    plan: Plan<ChildEffect>,
    pub workload: Workload,
    /// Whether the status reports the rollout. False on the command line, which only compares.
    is_reported: bool,
}

/// What a step is carried out with. Never print an effect: the manifest has the values of variables.
#[derive(Debug)]
pub struct ObjectEffect {
    manifest: Arc<CoderControlPlane>,
    /// Namespaces that have Roles for workspaces, or are about to get some.
    namespaces: Arc<BTreeSet<String>>,
    child: ChildEffect,
}

impl Kind for PlaneObjects {
    type Manifest = CoderControlPlane;
    type Desired = CoderControlPlane;
    type Observed = ObservedObjects;
    type Effect = ObjectEffect;

    /// Before everything that the deployment is asked for.
    const RANK: u8 = 0;
    const SHOWS_ID: bool = false;
    const HAS_SECRETS: bool = true;
    const OWNS_OBJECTS: bool = true;
    const RUNNER: Runner = Runner::Controller;
    const NEEDS_DEPLOYMENT: bool = false;

    fn target(plane: &CoderControlPlane) -> String {
        format!("control plane {}", plane.name_any())
    }

    fn desire(plane: &CoderControlPlane) -> Result<CoderControlPlane, Invalid> {
        Ok(plane.clone())
    }

    /// What the pods read.
    fn refs(plane: &CoderControlPlane) -> Vec<Ref> {
        let is_ours = plane.spec.external.is_none();
        let read = is_ours.then(|| references(&plane.spec)).into_iter().flatten();
        read.map(Ref::from).collect()
    }

    fn ledger(plane: &CoderControlPlane) -> Ledger {
        ledger(plane)
    }

    /// Records the namespaces before Roles are created in them: a deletion after a crash finds the Roles by this record.
    fn intends(effect: &ObjectEffect) -> Map<String, Value> {
        let recorded = workspace_roles::recorded(&effect.manifest);
        if effect.namespaces.is_subset(&recorded) {
            return Map::new();
        }
        let all: BTreeSet<&String> = recorded.union(&effect.namespaces).collect();
        Map::from_iter([("workspaceNamespaces".to_owned(), json!(all))])
    }

    async fn observe(
        plane: &CoderControlPlane,
        _held: Option<Uuid>,
        coder: &Coder,
    ) -> Result<ObservedObjects, Trouble> {
        Box::pin(observe(plane, coder)).await
    }

    fn waits(observed: &ObservedObjects) -> Option<Outcome> {
        let is_compared = observed.workload.notices.is_some();
        observed.workload.standing.clone().err().filter(|_| !is_compared).map(Outcome::Blocked)
    }

    fn unmanaged(observed: &ObservedObjects) -> Option<Blocked> {
        let mut notices = observed.workload.notices.iter().flatten();
        // The status has a condition for it.
        notices.find(|it| it.reason.blocks_rollout() && !observed.is_reported).cloned()
    }

    fn is_default(_: &ObservedObjects) -> bool {
        false
    }

    fn contact(_: &ObservedObjects, _held: Option<Uuid>) -> Contact {
        // Objects of others are refused one by one.
        Contact::Held
    }

    fn id(_: &ObservedObjects) -> Option<Uuid> {
        None
    }

    fn plan(_: &CoderControlPlane, observed: &ObservedObjects) -> Plan<ObjectEffect> {
        let namespaces = observed.workload.workspace_namespaces.iter().flatten().cloned();
        let namespaces = Arc::new(namespaces.collect());
        observed.plan.clone().map(|child| ObjectEffect {
            manifest: Arc::clone(&observed.manifest),
            namespaces: Arc::clone(&namespaces),
            child,
        })
    }

    fn round(_: &CoderControlPlane, observed: &ObservedObjects) -> Round {
        let standing = observed.workload.standing.clone().err();
        Round { steps: None, waits: standing.filter(|_| observed.is_reported) }
    }

    /// Empty: owner references take the objects away, and the ledger names all others.
    fn plan_deletion(_: &ObservedObjects) -> Plan<ObjectEffect> {
        Plan::empty()
    }

    /// Fails: [`Self::carry_out`] does the steps together.
    async fn apply(_: &ObjectEffect, _: &Coder) -> Result<Option<Uuid>, Trouble> {
        let message = "the objects of a control plane are applied together; reconciling again".to_owned();
        Err(Blocked { reason: Reason::Progressing, message }.into())
    }

    async fn carry_out(steps: &[&Step<ObjectEffect>], coder: &Coder) -> Carried {
        Box::pin(carry_out(steps, coder)).await
    }

    fn conclude(
        plane: &CoderControlPlane,
        aside: Option<Aside>,
        _: Option<&'static str>,
        outcome: &Outcome,
    ) -> Aside {
        aside.unwrap_or_else(|| unlooked(plane, outcome))
    }
}

/// Compares the objects. Nothing is written.
async fn observe(plane: &CoderControlPlane, coder: &Coder) -> Result<ObservedObjects, Trouble> {
    let beside = coder.needed_cluster()?;
    let (cluster, is_reported) = (&*beside.cluster, beside.writes_status);
    // Which rules are allowed is known where the operator runs. Whatever is declared counts as allowed elsewhere.
    let declared = plane.spec.rbac.as_ref().and_then(|it| it.extra_rules.as_deref());
    let allowed_rules = beside.allowed_rules.as_deref().or(declared).unwrap_or_default();
    let fingerprints = beside.fingerprints.as_deref();
    let context = PlaneContext { cluster, allowed_rules, fingerprints };
    let observed =
        |plan, workload| ObservedObjects { manifest: Arc::new(plane.clone()), plan, workload, is_reported };
    let Found { desired, live, unlisted, namespaces, unstored_key } = match read(plane, &context).await? {
        Ok(found) => found,
        Err(blocked) => return Ok(observed(Plan::empty(), Workload::stopped(blocked))),
    };
    if let Some(key) = unstored_key {
        coder.owe_fingerprint_key(plane, key);
    }
    let (deployment, pods) = (plane.name_any(), selector(plane));
    let conditions = plane.status().map_or(&[][..], |it| &it.conditions);
    let reads_names =
        !is_reported || !plane.spec.changes.is_automatic() || objects::was_taken(conditions.iter());
    let children = &desired.children;
    let compared = Comparison { deployment: &deployment, pods: &pods, children, live, reads_names };
    let mut compared = Box::pin(objects::compare(plane, compared, cluster)).await?;
    if is_reported {
        compared.listen(&plane.namespace().unwrap_or_default(), &pods, cluster).await?;
    }
    let Planned { plan, mut refused } = compared.planned;
    refused.extend(unlisted);
    let workload = standing(plane, &desired, refused, &compared.run);
    let workspace_namespaces = Some(namespaces.into_iter().collect());
    Ok(observed(plan, Workload { workspace_namespaces, ..workload }))
}

/// What there is of the objects.
fn standing(plane: &CoderControlPlane, desired: &Desired, refused: Vec<Blocked>, seen: &Run) -> Workload {
    let known = plane.status.as_ref().and_then(|it| it.database_version.as_deref());
    let started: Vec<String> = seen.started().collect();
    let notices: Vec<Blocked> = refused.into_iter().chain(desired.notices.iter().cloned()).collect();
    let standing = match (notices.iter().find(|it| it.reason.blocks_rollout()).cloned(), seen.rollout()) {
        (Some(notice), _) => Err(notice),
        (None, Some(Rollout::Done)) => Ok(()),
        (None, Some(Rollout::Stuck(message))) => Err(Blocked { reason: Reason::RolloutStuck, message }),
        (None, Some(Rollout::Progressing(message))) => Err(Blocked { reason: Reason::Progressing, message }),
        (None, None) => {
            let message = "the Deployment is not there yet".to_owned();
            Err(Blocked { reason: Reason::Progressing, message })
        }
    };
    Workload {
        standing,
        ready_replicas: seen.ready(),
        database_version: version::newest(known, None, started.iter().map(String::as_str)),
        notices: Some(notices),
        workspace_namespaces: None,
    }
}

/// Applies the objects of steps. Those that the API server refuses hold up no others.
async fn carry_out(steps: &[&Step<ObjectEffect>], coder: &Coder) -> Carried {
    let Some(plane) = steps.first().map(|it| &*it.effect.manifest) else { return Carried::default() };
    let cluster = match coder.needed_cluster() {
        Ok(beside) => &*beside.cluster,
        Err(blocked) => return Carried { failed: Some(Outcome::Blocked(blocked)), ..Carried::default() },
    };
    let may_be = Given::new(plane, PlaneObjects::target(plane), steps);
    let may = |plan: &Plan<ChildEffect>| may_be.may(&plan.view(may_be.target()));
    let children: Vec<Step<ChildEffect>> = steps.iter().map(|it| child(it)).collect();
    match objects::carry_out(plane, &children, (&may, None), cluster).await {
        Ok(carried) => {
            let applied = steps.len().saturating_sub(carried.refused.len());
            let done = if carried.is_changed { applied.max(1) } else { 0 };
            Carried { done, refused: carried.refused, ..Carried::default() }
        }
        Err(error) => Carried { failed: Some(Trouble::Cluster(error).into()), ..Carried::default() },
    }
}

fn child(step: &Step<ObjectEffect>) -> Step<ChildEffect> {
    let Step { action, impact, reason, changes, effect } = step;
    Step {
        action: *action,
        impact: *impact,
        reason: reason.clone(),
        changes: changes.clone(),
        effect: effect.child.clone(),
    }
}
