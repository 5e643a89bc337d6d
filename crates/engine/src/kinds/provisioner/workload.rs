//! The objects of a provisioner in the cluster: what is declared, what is there, and what became of the pods.

use std::sync::{Mutex, PoisonError};

use api::{ApprovedPlan, CoderControlPlane, CoderProvisioner, EntitlementLossPolicy, Reason};
use kube::ResourceExt as _;

use super::{
    compared::{Objects, Unplanned, compare, reads_names, selected},
    names::{self, target},
    plan::of_objects,
};
use crate::{
    coder::Beside,
    kinds::provisioner::status::Findings,
    objects::{self, ChildEffect, Compared, Kept, News, Run, rollout::Rollout},
    pipeline::{
        approval::Approvals,
        held_back::{self, HeldBack},
        outcome::Blocked,
        plan::{Action, Change, Impact, Plan, PlanView, Step},
    },
    ports::{Cluster, ClusterError},
    secrets::Held,
};

const LICENCE_LOST: &str = "the licence for daemons that run elsewhere is gone";

/// Makes the objects what they should be, and returns whether they could be compared. Objects that were compared for pods which get
/// another key are compared again.
pub(super) async fn run(
    provisioner: &CoderProvisioner,
    findings: &mut Findings,
    (held, news): (&Held, &News),
    observed: Result<Option<Objects>, Unplanned>,
    (declared, beside): (&CoderControlPlane, &Beside),
) -> Result<bool, ClusterError> {
    let cluster = &*beside.cluster;
    let given = (held.place.url.as_str(), held.checksum.as_str());
    let is_given = |it: &Objects| (it.given.0.as_str(), it.given.1.as_str()) == given;
    let objects = match observed {
        Ok(Some(known)) if is_given(&known) => Ok(known),
        Ok(_) => compare(provisioner, given, reads_names(provisioner), declared, beside).await,
        Err(unplanned) => Err(unplanned),
    };
    match objects {
        Ok(Objects { compared, keeps_image, .. }) => {
            // Everything else goes on: the number of daemons, and above all their key.
            findings.stopped = keeps_image;
            keep(provisioner, findings, news, compared, cluster).await?;
            Ok(true)
        }
        Err(Unplanned::Image(blocked)) => {
            findings.stopped = Some(blocked);
            look_on(provisioner, findings, cluster).await?;
            Ok(false)
        }
        // Daemons without the certificates would trust no server: those that are there stay as they are.
        Err(Unplanned::Authority(blocked)) => {
            look_on(provisioner, findings, cluster).await?;
            findings.deployment = Some(Err(blocked));
            Ok(false)
        }
        Err(Unplanned::Invalid(invalid)) => {
            let message = format!("{}: {}", invalid.field, invalid.message);
            findings.deployment = Some(Err(Blocked { reason: Reason::Invalid, message }));
            Ok(true)
        }
        Err(Unplanned::Cluster(error)) => Err(error),
    }
}

/// Applies the plan for the objects, if it may be carried out.
async fn keep(
    provisioner: &CoderProvisioner,
    findings: &mut Findings,
    news: &News,
    compared: Compared,
    cluster: &dyn Cluster,
) -> Result<(), ClusterError> {
    let (workload, selector) = selected(provisioner);
    let held_back = Mutex::new(None);
    let approved = findings.approved.clone();
    let may = |plan: &Plan<ChildEffect>| {
        let plan = of_objects(plan).view(&target(&provisioner.name_any()));
        let checked = check(provisioner, &plan, approved.as_ref());
        let is_ok = checked.is_ok();
        let mut first = held_back.lock().unwrap_or_else(PoisonError::into_inner);
        *first = first.take().or_else(|| checked.err());
        is_ok
    };
    let of = (workload.as_str(), &selector);
    let kept = objects::apply(provisioner, compared, of, (&may, Some(news)), cluster).await?;
    let Kept { run: seen, refused, changed } = kept;
    // An object of another comes first: only a person can help.
    let refused = refused.into_iter().min_by_key(|it| it.reason != Reason::NotOurs);
    findings.replicas = Some(counted(&seen));
    findings.deployment = Some(refused.map_or_else(|| standing(&seen), Err));
    findings.changed |= changed;
    let held_back = held_back.into_inner().unwrap_or_else(PoisonError::into_inner);
    findings.held_back = findings.held_back.take().or(held_back);
    Ok(())
}

/// Whether a plan of a provisioner is carried out. `approved` is the plan whose rounds are being carried out.
pub(super) fn check(
    provisioner: &CoderProvisioner,
    plan: &PlanView,
    approved: Option<&ApprovedPlan>,
) -> Result<(), HeldBack> {
    let (target, approvals) = (target(&provisioner.name_any()), Approvals::of(provisioner, approved));
    held_back::check(&provisioner.spec.changes, plan, &target, &approvals)
}

/// Reports the daemons and changes nothing, except that they are scaled to zero where their licence is gone and the manifest asks
/// for that.
pub(super) async fn look_on(
    provisioner: &CoderProvisioner,
    findings: &mut Findings,
    cluster: &dyn Cluster,
) -> Result<(), ClusterError> {
    let (workload, selector) = selected(provisioner);
    let seen = objects::seen(provisioner, &workload, &selector, cluster).await?;
    let is_lost = matches!(&findings.entitled, Some(Err(it)) if it.reason == Reason::NotEntitled);
    let goes = is_lost && provisioner.spec.entitlement_loss_policy() == EntitlementLossPolicy::ScaleToZero;
    let replicas = seen.deployment.as_ref().and_then(|it| it.spec.as_ref()?.replicas);
    if goes
        && let Some(deployment) = &seen.deployment
        && replicas != Some(0)
    {
        findings.held_back = check(provisioner, &scaling_to_zero(provisioner, replicas), None).err();
        if findings.held_back.is_none() {
            findings.changed = true;
            objects::scale_to_zero(provisioner, deployment, LICENCE_LOST, cluster).await?;
        }
    }
    if seen.deployment.is_some() {
        findings.replicas = Some(counted(&seen));
        findings.deployment = Some(standing(&seen));
    }
    Ok(())
}

/// The plan that scales the daemons to zero.
fn scaling_to_zero(provisioner: &CoderProvisioner, replicas: Option<i32>) -> PlanView {
    let name = names::workload(provisioner);
    let step = Step {
        action: Action::Update,
        impact: Impact::Disruptive,
        reason: LICENCE_LOST.to_owned(),
        changes: vec![Change::new(&format!("Deployment {name}: spec.replicas"), replicas, 0)],
        effect: (),
    };
    Plan::of(step).view(&target(&provisioner.name_any()))
}

/// How many pods there are, and how many of them are ready.
fn counted(seen: &Run) -> (i32, i32) {
    let status = seen.deployment.as_ref().and_then(|it| it.status.as_ref());
    (status.and_then(|it| it.replicas).unwrap_or_default(), seen.ready().unwrap_or_default())
}

/// The state of the rollout.
fn standing(seen: &Run) -> Result<(), Blocked> {
    match seen.rollout() {
        Some(Rollout::Done) => Ok(()),
        Some(Rollout::Stuck(message)) => Err(Blocked { reason: Reason::RolloutStuck, message }),
        Some(Rollout::Progressing(message)) => {
            let is_none = seen.ready().unwrap_or_default() == 0;
            let reason = if is_none { Reason::NoReplicasReady } else { Reason::Progressing };
            Err(Blocked { reason, message })
        }
        None => {
            let message = "the Deployment is not there yet".to_owned();
            Err(Blocked { reason: Reason::NoReplicasReady, message })
        }
    }
}
