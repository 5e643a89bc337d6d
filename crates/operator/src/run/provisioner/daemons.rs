//! The daemons of a provisioner: their objects, their pods, and what coderd sees of them.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use api::{CoderControlPlane, CoderProvisioner, EntitlementLossPolicy, Reason, annotation};
use engine::{
    Action, Blocked, Change, Impact, Invalid, Plan, PlanView, Step, Trouble,
    endpoint::place,
    held_back::{self, HeldBack},
    objects::{self, Child, ChildEffect, Comparison, Kept, Run, rollout::Rollout},
    provisioner::{changes, children, daemons::Daemons, image, names, secret},
    provisioner_keys::{Held, SecretPlace, Wanted},
};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;

use super::{
    Context,
    stages::{Failure, Keyed, Known, Passed},
};
use crate::{
    cluster::Cluster,
    run::{Shared, kube_cluster::error_of, owned},
};

/// The daemons, with a key that works.
pub(super) async fn run(passed: &mut Passed, keyed: &Keyed, context: &Context) -> Result<(), kube::Error> {
    let Keyed { held, known, pods, wanted } = keyed;
    let (provisioner, shared) = (passed.provisioner.clone(), &context.shared);
    let version = known.declared.status.as_ref().and_then(|it| it.version.as_deref());
    let image = match image(&provisioner, &known.declared) {
        Ok(image) => image,
        // Those that are there stay with theirs, and everything else goes on: their number, and above all their key.
        Err(waiting) => {
            passed.findings.stopped = Some(waiting);
            let deployed =
                objects::deployment(&provisioner, &names::workload(&provisioner), &*shared.cluster).await;
            let deployed = deployed.map_err(error_of)?;
            let Some(image) = deployed.as_ref().and_then(deployed_image) else {
                return look_on(passed, context).await;
            };
            image
        }
    };
    let replicas = provisioner.spec.replicas();
    let authority = match authority(&known.declared, shared).await {
        Ok(authority) => authority,
        // Daemons without the certificates would not trust anybody: those that are there stay as they are.
        Err(waiting) => {
            look_on(passed, context).await?;
            passed.findings.deployment = Some(Err(waiting));
            return Ok(());
        }
    };
    keep(passed, (held, wanted), Facts { image, authority, replicas }, shared).await?;
    // One on its way out finishes a build, which may take long, and takes no other: it stands in for nobody. Pods that have
    // come or are to go since then change the Deployment's status, and that brings us back.
    let stay = pods.iter().filter(|it| it.metadata.deletion_timestamp.is_none());
    let pods: BTreeSet<String> = stay.map(kube::ResourceExt::name_any).collect();
    let daemons = match known.world.keys(known.organization.id, Timestamp::now()).await {
        Ok(list) => {
            let mine = list.keys.iter().find(|it| Some(it.key.id) == held.id);
            let seen = mine.map(|it| it.daemons.as_slice()).unwrap_or_default();
            Ok(Daemons::of(seen, &pods, replicas, version))
        }
        Err(error) => {
            let trouble = Trouble::from(error);
            passed.trouble = Some(Failure::of(&trouble));
            Err(trouble.into_blocked())
        }
    };
    passed.findings.daemons = Some(daemons);
    Ok(())
}

fn deployed_image(deployment: &Deployment) -> Option<String> {
    deployment.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.clone()
}

/// What the daemons get beyond their key.
struct Facts {
    image: String,
    authority: Option<children::Authority>,
    replicas: i32,
}

/// The certificates that the daemons trust beyond the usual ones.
async fn authority(
    declared: &CoderControlPlane,
    shared: &Shared,
) -> Result<Option<children::Authority>, Blocked> {
    let Some((name, key)) = declared.spec.external.as_ref().and_then(|it| it.ca()) else { return Ok(None) };
    let endpoint = place(declared, &Cluster(shared.client.clone())).await?;
    Ok(Some(children::Authority {
        secret: name.to_owned(),
        key: key.to_owned(),
        fingerprint: children::fingerprint(endpoint.authority()),
    }))
}

/// The objects that should be, for a key with that checksum.
fn desire(
    provisioner: &CoderProvisioner,
    url: &str,
    checksum: &str,
    facts: Facts,
) -> Result<Vec<Child>, Invalid> {
    let SecretPlace { name, key } = secret(provisioner);
    let Facts { image, authority, replicas } = facts;
    let (url, checksum) = (url.to_owned(), checksum.to_owned());
    let facts = children::Facts { url, image, secret: (name, key), checksum, replicas, authority };
    children::desire(provisioner, &facts)
}

/// What would be done to the objects once there is a key. Empty where that is not known yet.
pub(super) async fn preview(
    provisioner: &CoderProvisioner,
    known: &Known,
    url: &str,
    shared: &Shared,
) -> Result<Plan<()>, kube::Error> {
    let (Ok(image), Ok(authority)) =
        (image(provisioner, &known.declared), authority(&known.declared, shared).await)
    else {
        return Ok(Plan::empty());
    };
    let facts = Facts { image, authority, replicas: provisioner.spec.replicas() };
    let Ok(desired) = desire(provisioner, url, "", facts) else { return Ok(Plan::empty()) };
    let (workload, selector) = (names::workload(provisioner), names::wide_selector(provisioner));
    let live = owned::objects(shared, &provisioner.namespace().unwrap_or_default(), &selector).await?;
    let compared = Comparison { deployment: &workload, pods: &selector, children: &desired, live };
    let plan = objects::preview(provisioner, compared, &*shared.cluster).await;
    Ok(changes::of_objects(&plan.map_err(error_of)?))
}

/// Makes the objects what they should be.
async fn keep(
    passed: &mut Passed,
    (held, wanted): (&Held, &Wanted),
    facts: Facts,
    shared: &Shared,
) -> Result<(), kube::Error> {
    let provisioner = &passed.provisioner;
    let desired = match desire(provisioner, &held.place.url, &held.checksum, facts) {
        Ok(desired) => desired,
        Err(invalid) => {
            let message = format!("{}: {}", invalid.field, invalid.message);
            passed.findings.deployment = Some(Err(Blocked { reason: Reason::Invalid, message }));
            return Ok(());
        }
    };
    let (workload, selector) = (names::workload(provisioner), names::wide_selector(provisioner));
    let live = owned::objects(shared, &provisioner.namespace().unwrap_or_default(), &selector).await?;
    let held_back = Mutex::new(None);
    let may = |plan: &Plan<ChildEffect>| {
        let (plan, target) = (changes::of_objects(plan), changes::target(&provisioner.name_any()));
        let known_as = changes::known_as(held, wanted, &plan, &target);
        let checked = check(provisioner, &plan.view(&target), Some(&known_as));
        let is_ok = checked.is_ok();
        *held_back.lock().unwrap_or_else(PoisonError::into_inner) = checked.err();
        is_ok
    };
    let compared = Comparison { deployment: &workload, pods: &selector, children: &desired, live };
    let kept = objects::keep(provisioner, compared, &may, &*shared.cluster).await;
    let Kept { run: seen, refused, changed } = kept.map_err(error_of)?;
    let refused = refused.into_iter().next();
    let findings = &mut passed.findings;
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

/// Looks at the daemons and changes nothing, except that they go where the licence for them is gone and the manifest says so.
pub(super) async fn look_on(passed: &mut Passed, context: &Context) -> Result<(), kube::Error> {
    let (provisioner, shared) = (passed.provisioner.clone(), &context.shared);
    let seen = objects::seen(
        &provisioner,
        &names::workload(&provisioner),
        &names::wide_selector(&provisioner),
        &*shared.cluster,
    )
    .await
    .map_err(error_of)?;
    let is_lost = matches!(&passed.findings.entitled, Some(Err(it)) if it.reason == Reason::NotEntitled);
    let goes = is_lost && provisioner.spec.entitlement_loss_policy() == EntitlementLossPolicy::ScaleToZero;
    let replicas = seen.deployment.as_ref().and_then(|it| it.spec.as_ref()?.replicas);
    if goes
        && let Some(deployment) = &seen.deployment
        && replicas != Some(0)
        && may_scale_to_zero(passed, replicas)
    {
        passed.findings.changed = true;
        objects::scale_to_zero(
            &provisioner,
            deployment,
            "the licence for daemons that run elsewhere is gone",
            &*shared.cluster,
        )
        .await
        .map_err(error_of)?;
    }
    if seen.deployment.is_some() {
        passed.findings.replicas = Some(counted(&seen));
        passed.findings.deployment = Some(standing(&seen));
    }
    Ok(())
}

/// Whether the daemons are scaled to zero; what holds that back is among the findings otherwise.
fn may_scale_to_zero(passed: &mut Passed, replicas: Option<i32>) -> bool {
    let provisioner = &passed.provisioner;
    let name = names::workload(provisioner);
    let step = Step {
        action: Action::Update,
        impact: Impact::Disruptive,
        reason: "the licence for daemons that run elsewhere is gone".to_owned(),
        changes: vec![Change::new(&format!("Deployment {name}: spec.replicas"), replicas, 0)],
        effect: (),
    };
    let plan = Plan::of(step).view(&changes::target(&provisioner.name_any()));
    passed.findings.held_back = check(provisioner, &plan, None).err();
    passed.findings.held_back.is_none()
}

fn counted(seen: &Run) -> (i32, i32) {
    let status = seen.deployment.as_ref().and_then(|it| it.status.as_ref());
    (status.and_then(|it| it.replicas).unwrap_or_default(), seen.ready().unwrap_or_default())
}

/// What became of the pods.
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
