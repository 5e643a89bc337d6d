//! The objects of a provisioner in the cluster: what is declared, what is there, and what became of the pods.

use std::sync::{Mutex, PoisonError};

use api::{CoderControlPlane, CoderProvisioner, EntitlementLossPolicy, Reason, annotation};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;

use super::{
    KINDS, changes,
    children::{self, Authority, DaemonFacts},
    image, names,
    reach::Reached,
    secret,
};
use crate::{
    coder::{Beside, endpoint::place},
    kinds::provisioner::status::Findings,
    objects::{self, Child, ChildEffect, Comparison, Kept, News, Planned, Run, rollout::Rollout},
    pipeline::{
        held_back::{self, HeldBack},
        outcome::Blocked,
        plan::{Action, Change, Impact, Plan, PlanView, Step},
    },
    ports::{Cluster, ClusterError, List, Reading, object::Live},
    secrets::{Held, SecretPlace, Wanted},
};

const LICENCE_LOST: &str = "the licence for daemons that run elsewhere is gone";

/// The objects that have the labels of a provisioner.
pub(super) async fn live(
    provisioner: &CoderProvisioner,
    cluster: &dyn Cluster,
) -> Result<Vec<Live>, ClusterError> {
    let namespace = provisioner.namespace().unwrap_or_default();
    let lists = KINDS.map(async |(group, version, kind)| {
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let labels = names::wide_selector(provisioner);
        let list = List { api_version: &api_version, kind, namespace: Some(&namespace), labels };
        cluster.list(&list, Reading::Known).await
    });
    Ok(try_join_all(lists).await?.into_iter().flatten().collect())
}

/// The certificates that the daemons trust beyond the usual ones.
pub(super) async fn authority(
    declared: &CoderControlPlane,
    references: &dyn Cluster,
) -> Result<Option<Authority>, Blocked> {
    let Some((name, key)) = declared.spec.external.as_ref().and_then(|it| it.ca()) else { return Ok(None) };
    let endpoint = place(declared, references).await?;
    Ok(Some(Authority {
        secret: name.to_owned(),
        key: key.to_owned(),
        fingerprint: children::fingerprint(endpoint.authority()),
    }))
}

/// What the daemons of a key with that checksum get.
pub(super) fn facts(
    provisioner: &CoderProvisioner,
    (url, checksum): (&str, &str),
    image: String,
    authority: Option<Authority>,
) -> DaemonFacts {
    let SecretPlace { name, key } = secret(provisioner);
    DaemonFacts {
        url: url.to_owned(),
        image,
        secret: (name, key),
        checksum: checksum.to_owned(),
        replicas: provisioner.spec.replicas(),
        authority,
    }
}

/// What would be done to the objects once there is the first key. Empty where that is not known yet.
pub(super) async fn preview_first(
    provisioner: &CoderProvisioner,
    reached: &Reached,
    beside: &Beside,
) -> Result<Plan<()>, ClusterError> {
    let cluster = &*beside.cluster;
    let (Ok(image), Ok(authority)) =
        (image(provisioner, &reached.declared), authority(&reached.declared, &*beside.references).await)
    else {
        return Ok(Plan::empty());
    };
    let facts = facts(provisioner, (&reached.url_for_daemons, ""), image, authority);
    let Ok(desired) = children::desire(provisioner, &facts) else { return Ok(Plan::empty()) };
    let planned = preview(provisioner, &desired, live(provisioner, cluster).await?, cluster).await?;
    Ok(changes::of_objects(&planned.plan))
}

/// Compares the objects that should be with those that are. Nothing is written.
pub(super) async fn preview(
    provisioner: &CoderProvisioner,
    desired: &[Child],
    live: Vec<Live>,
    cluster: &dyn Cluster,
) -> Result<Planned, ClusterError> {
    let (workload, selector) = (names::workload(provisioner), names::wide_selector(provisioner));
    let compared = Comparison { deployment: &workload, pods: &selector, children: desired, live, news: None };
    objects::preview(provisioner, compared, cluster).await
}

/// Makes the objects what they should be, and returns whether they could be compared. Where the control plane does not let the
/// daemons have their image yet, they keep the one that they have.
pub(super) async fn run(
    provisioner: &CoderProvisioner,
    findings: &mut Findings,
    (held, wanted, news): (&Held, &Wanted, &News),
    declared: &CoderControlPlane,
    beside: &Beside,
) -> Result<bool, ClusterError> {
    let cluster = &*beside.cluster;
    let image = match image(provisioner, declared) {
        Ok(image) => image,
        // Everything else goes on: the number of daemons, and above all their key.
        Err(blocked) => {
            findings.stopped = Some(blocked);
            let deployed = objects::deployment(provisioner, &names::workload(provisioner), cluster).await?;
            let Some(image) = deployed.as_ref().and_then(deployed_image) else {
                look_on(provisioner, findings, cluster).await?;
                return Ok(false);
            };
            image
        }
    };
    let authority = match authority(declared, &*beside.references).await {
        Ok(authority) => authority,
        // Daemons without the certificates would trust no server: those that are there stay as they are.
        Err(blocked) => {
            look_on(provisioner, findings, cluster).await?;
            findings.deployment = Some(Err(blocked));
            return Ok(false);
        }
    };
    let facts = facts(provisioner, (&held.place.url, &held.checksum), image, authority);
    keep(provisioner, findings, (held, wanted, news), &facts, cluster).await?;
    Ok(true)
}

fn deployed_image(deployment: &Deployment) -> Option<String> {
    deployment.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.clone()
}

/// Applies the plan for the objects, if it may be carried out.
async fn keep(
    provisioner: &CoderProvisioner,
    findings: &mut Findings,
    (held, wanted, news): (&Held, &Wanted, &News),
    facts: &DaemonFacts,
    cluster: &dyn Cluster,
) -> Result<(), ClusterError> {
    let desired = match children::desire(provisioner, facts) {
        Ok(desired) => desired,
        Err(invalid) => {
            let message = format!("{}: {}", invalid.field, invalid.message);
            findings.deployment = Some(Err(Blocked { reason: Reason::Invalid, message }));
            return Ok(());
        }
    };
    let (workload, selector) = (names::workload(provisioner), names::wide_selector(provisioner));
    let live = live(provisioner, cluster).await?;
    let held_back = Mutex::new(None);
    let may = |plan: &Plan<ChildEffect>| {
        let (plan, target) = (changes::of_objects(plan), changes::target(&provisioner.name_any()));
        let known_as = changes::known_as(held, wanted, &plan, &target);
        let checked = check(provisioner, &plan.view(&target), Some(&known_as));
        let is_ok = checked.is_ok();
        *held_back.lock().unwrap_or_else(PoisonError::into_inner) = checked.err();
        is_ok
    };
    let compared =
        Comparison { deployment: &workload, pods: &selector, children: &desired, live, news: Some(news) };
    let Kept { run: seen, refused, changed } = objects::keep(provisioner, compared, &may, cluster).await?;
    let refused = refused.into_iter().next();
    findings.replicas = Some(counted(&seen));
    findings.deployment = Some(refused.map_or_else(|| standing(&seen), Err));
    findings.changed |= changed;
    let held_back = held_back.into_inner().unwrap_or_else(PoisonError::into_inner);
    findings.held_back = findings.held_back.take().or(held_back);
    Ok(())
}

/// Whether a plan of a provisioner is carried out.
pub(super) fn check(
    provisioner: &CoderProvisioner,
    plan: &PlanView,
    known_as: Option<&str>,
) -> Result<(), HeldBack> {
    let approved = provisioner.annotations().get(annotation::APPROVED_PLAN).map(String::as_str);
    held_back::check(&provisioner.spec.changes, plan, approved, known_as)
}

/// Reports the daemons and changes nothing, except that they are scaled to zero where their licence is gone and the manifest asks
/// for that.
pub(super) async fn look_on(
    provisioner: &CoderProvisioner,
    findings: &mut Findings,
    cluster: &dyn Cluster,
) -> Result<(), ClusterError> {
    let (workload, selector) = (names::workload(provisioner), names::wide_selector(provisioner));
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
    Plan::of(step).view(&changes::target(&provisioner.name_any()))
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
