//! Reads what the plan of a provisioner is made of. Nothing is written.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use api::{CoderProvisioner, EntitlementLossPolicy, Reason};
use client::provisioner_keys::KeyWithDaemons;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::ResourceExt as _;
use uuid::Uuid;

use super::{
    compared::{Unplanned, compare, reads_names, selected},
    daemons::Daemons,
    holder,
    keys::{self, Keys, recorded},
    reach::{self, Home, key_failed},
    status::Findings,
    work::Work,
};
use crate::{
    coder::{Beside, Coder},
    keys::Looked,
    objects::{self, Run, rollout::Rollout},
    pipeline::outcome::{Blocked, Trouble},
    ports::{Cluster, ClusterError, object::Live},
    secrets::{Act, Around, Held, KeyPreview, KeySecrets, Wanted, situation::not_minted},
};

/// What was observed of a provisioner.
#[derive(Debug)]
pub struct Observed {
    pub(super) manifest: Arc<CoderProvisioner>,
    pub(super) findings: Findings,
    /// Why the stages did not come to the key.
    pub(super) trouble: Option<Trouble>,
    /// `None` where they did not.
    pub(super) known: Option<Known>,
    /// The Deployment whose daemons have no licence any more and have to go.
    pub(super) unlicensed: Option<Box<Deployment>>,
    /// Whether the status reports the rollout and the daemons. False on the command line, which only compares.
    pub(super) is_reported: bool,
}

/// What is known of the keys and the objects.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) work: Arc<Work>,
    pub(super) key: KeyPreview,
    /// The same while no key is minted.
    pub(super) held_back: KeyPreview,
    /// Why objects cannot be compared.
    pub(super) unplanned: Option<Blocked>,
    /// The version of the Secret in which the value was verified.
    pub(super) secret_version: Option<String>,
}

impl Observed {
    /// Whether neither a key nor a Deployment of the provisioner is there.
    pub(super) fn is_new(&self) -> bool {
        let of = |it: &Known| it.work.recorded.keys().next().is_none() && !it.work.has_deployment();
        self.known.as_ref().is_some_and(of)
    }
}

impl Known {
    /// What is there until something is done about it.
    pub(super) fn now(&self) -> &KeyPreview {
        if self.key.acts.is_empty() { &self.key } else { &self.held_back }
    }
}

/// Observes a provisioner. A stage that fails is among the findings.
pub(super) async fn observe(provisioner: &CoderProvisioner, coder: &Coder) -> Result<Observed, Trouble> {
    let beside = coder.needed_cluster()?;
    let mut observed = Observed {
        manifest: Arc::new(provisioner.clone()),
        findings: Findings::default(),
        trouble: None,
        known: None,
        unlicensed: None,
        is_reported: beside.writes_status,
    };
    let home = reach::find(provisioner, coder, beside, &mut observed.findings).await;
    let looked = match home {
        Ok(home) => Box::pin(look(&mut observed, home, coder, beside)).await,
        Err(trouble) => Err(trouble),
    };
    if let Err(trouble) = looked {
        if let Trouble::Cluster(_) = trouble {
            return Err(trouble);
        }
        observed.trouble = Some(trouble);
        look_on(&mut observed, &*beside.cluster).await?;
    }
    Ok(observed)
}

/// Looks at the key, the objects and the daemons.
async fn look(observed: &mut Observed, home: Home, coder: &Coder, beside: &Beside) -> Result<(), Trouble> {
    let provisioner = Arc::clone(&observed.manifest);
    let (cluster, store) = (&*beside.cluster, beside.key_store());
    let (wanted, holder) = (keys::wanted(&provisioner, &home), holder(&provisioner));
    let around = Around::new(store, &holder, Live::typed(&*provisioner));
    let secrets = KeySecrets::new(store, &holder);
    let recorded = recorded(&provisioner);
    let (pods, carried) = keys::carried(&provisioner, &recorded, &wanted, cluster).await?;
    // A list tells the id of a key that was just minted.
    let unknown = around.remembered().and_then(|it| it.current).filter(|it| it.id.is_none());
    let coder = match unknown {
        Some(held) => &coder.showing(home.organization_id, &held.name).await,
        None => coder,
    };
    let keys = Keys { coder, secrets: &secrets, around: &around, recorded, pods: carried };
    let drive = keys.drive(&wanted);
    let (key, looked) = drive.look_first().await.inspect_err(|trouble| {
        observed.findings.key = Some(Err(key_failed(trouble.clone().into_blocked())));
    })?;
    let (held_back, begins) = (previewed(&looked, &wanted, cluster)?, looked.begins(&wanted, drive.now));
    let Keys { recorded, pods: carried, .. } = keys;
    let mut work = Work {
        manifest: Arc::clone(&provisioner),
        declared: home.declared.clone(),
        wanted,
        recorded,
        pods: carried,
        looked: Mutex::new(Some(looked)),
        begins,
        objects: Mutex::default(),
    };
    let unplanned = look_at_objects(observed, &key, &mut work, beside).await?;
    let held = held_now(&key, &held_back);
    let secret_version =
        held.as_ref().ok().and_then(|it| secrets.version_of(&work.wanted.secret, &it.checksum));
    observed.known = Some(Known { work: Arc::new(work), key, held_back, unplanned, secret_version });
    match held {
        Err(blocked) => {
            let findings = &mut observed.findings;
            let is_secret = blocked.reason.is_about_key_secret();
            *(if is_secret { &mut findings.secret } else { &mut findings.key }) = Some(Err(blocked));
            let has_daemons = observed.known.as_ref().is_none_or(|it| it.work.has_deployment());
            if !has_daemons && findings.deployment.as_ref().is_some_and(is_awaited) {
                // It comes after the key.
                (findings.deployment, findings.replicas) = (None, None);
            }
            Ok(())
        }
        Ok(held) => {
            observed.findings.key = Some(Ok(()));
            observed.findings.secret = Some(Ok(()));
            if observed.findings.stopped.is_none() || observed.findings.deployment.is_some() {
                count(observed, (&held, home.organization_id), &pods, (coder, cluster)).await;
            }
            Ok(())
        }
    }
}

/// Whether a Deployment is only not there yet.
fn is_awaited(deployment: &Result<(), Blocked>) -> bool {
    deployment.as_ref().is_err_and(|it| it.reason == Reason::NoReplicasReady)
}

/// The key that is there until something is done about it.
fn held_now(key: &KeyPreview, held_back: &KeyPreview) -> Result<Held, Blocked> {
    if key.acts.is_empty() {
        return key.rest.key.clone();
    }
    // A key whose name stands in the status may be minted whatever is held back, and is not there yet.
    let mints = held_back.acts.iter().any(|it| matches!(it, Act::Mint { .. }));
    if mints { Err(not_minted()) } else { held_back.rest.key.clone() }
}

/// What would be done while no key is minted.
fn previewed(looked: &Looked, wanted: &Wanted, cluster: &dyn Cluster) -> Result<KeyPreview, Trouble> {
    looked.held_back(wanted, cluster.now()).ok_or(Trouble::Stale)
}

/// Compares the objects, and returns why they cannot be compared.
async fn look_at_objects(
    observed: &mut Observed,
    key: &KeyPreview,
    work: &mut Work,
    beside: &Beside,
) -> Result<Option<Blocked>, Trouble> {
    let (provisioner, cluster) = (Arc::clone(&observed.manifest), &*beside.cluster);
    let Some(given) = given(key, &work.wanted) else {
        look_on(observed, cluster).await?;
        return Ok(None);
    };
    let reads_names = !observed.is_reported || reads_names(&provisioner);
    match compare(&provisioner, given, reads_names, &work.declared, beside).await {
        Ok(mut objects) => {
            if observed.is_reported {
                let (namespace, selector) =
                    (provisioner.namespace().unwrap_or_default(), selected(&provisioner).1);
                objects.compared.listen(&namespace, &selector, cluster).await?;
            }
            let findings = &mut observed.findings;
            // An object of another comes first: only a person can help.
            let refused =
                objects.compared.planned.refused.iter().min_by_key(|it| it.reason != Reason::NotOurs);
            findings.replicas = Some(counted(&objects.compared.run));
            findings.deployment = Some(refused.cloned().map_or_else(|| standing(&objects.compared.run), Err));
            // Everything else goes on: the number of daemons, and above all their key.
            findings.stopped.clone_from(&objects.keeps_image);
            work.objects = Mutex::new(Some(objects));
            Ok(None)
        }
        Err(Unplanned::Image(blocked)) => {
            look_on(observed, cluster).await?;
            observed.findings.stopped = Some(blocked.clone());
            observed.findings.deployment = None;
            Ok(Some(blocked))
        }
        // Daemons without the certificates would trust no server: those that are there stay as they are.
        Err(Unplanned::Authority(blocked)) => {
            look_on(observed, cluster).await?;
            observed.findings.deployment = Some(Err(blocked.clone()));
            Ok(Some(blocked))
        }
        Err(Unplanned::Invalid(invalid)) => {
            let message = format!("{}: {}", invalid.field, invalid.message);
            let blocked = Blocked { reason: Reason::Invalid, message };
            observed.findings.deployment = Some(Err(blocked.clone()));
            Ok(Some(blocked))
        }
        Err(Unplanned::Cluster(error)) => Err(error.into()),
    }
}

/// Counts the daemons that coderd sees on the key.
async fn count(
    observed: &mut Observed,
    (held, organization): (&Held, Uuid),
    pods: &[Pod],
    (coder, cluster): (&Coder, &dyn Cluster),
) {
    // A pod that is being deleted finishes its build, which may take long, and takes no other job: it does not count. Pods that
    // come or go later change the Deployment's status, which causes another reconcile.
    let stay = pods.iter().filter(|it| it.metadata.deletion_timestamp.is_none());
    let pods: BTreeSet<String> = stay.map(kube::ResourceExt::name_any).collect();
    let replicas = observed.manifest.spec.replicas();
    let version = observed.known.as_ref().and_then(|it| it.work.declared.status.as_ref()?.version.clone());
    let daemons = match coder.keys(organization, cluster.now()).await {
        Ok(list) => {
            let mine = list.keys.iter().find(|it| is_held(held, it));
            observed.findings.key_id = mine.map(|it| it.key.id);
            let seen = mine.map(|it| it.daemons.as_slice()).unwrap_or_default();
            Ok(Daemons::of(seen, &pods, replicas, version.as_deref()))
        }
        Err(error) => {
            let trouble = Trouble::from(error);
            observed.trouble = Some(trouble.clone());
            Err(trouble.into_blocked())
        }
    };
    observed.findings.daemons = Some(daemons);
}

/// Whether a key of a list is the one that is held. One that was just minted is known by its name.
fn is_held(held: &Held, listed: &KeyWithDaemons) -> bool {
    match held.id {
        Some(id) => listed.key.id == id,
        None => held.is_ours && listed.key.name.eq_ignore_ascii_case(&held.name),
    }
}

/// What pods get, by address and checksum: the key that is there, until there is the next one. `None` where that is not known.
fn given<'a>(key: &'a KeyPreview, wanted: &'a Wanted) -> Option<(&'a str, &'a str)> {
    let mints = key.acts.iter().any(|it| matches!(it, Act::Mint { .. }));
    match (&key.known.current, &key.rest.key) {
        (current, _) if mints => {
            // Pods get a later key as upkeep, and the address of its deployment with it.
            Some((wanted.place.url.as_str(), current.as_ref().map_or("", |it| it.checksum.as_str())))
        }
        (_, Ok(held)) => Some((held.place.url.as_str(), held.checksum.as_str())),
        (_, Err(_)) => None,
    }
}

/// Looks at the daemons whose objects are not compared.
async fn look_on(observed: &mut Observed, cluster: &dyn Cluster) -> Result<(), Trouble> {
    let provisioner = Arc::clone(&observed.manifest);
    let seen = enter_pods(&provisioner, &mut observed.findings, cluster).await?;
    let is_lost = matches!(&observed.findings.entitled, Some(Err(it)) if it.reason == Reason::NotEntitled);
    let scales_to_zero =
        is_lost && provisioner.spec.entitlement_loss_policy() == EntitlementLossPolicy::ScaleToZero;
    let has_pods = |it: &Deployment| it.spec.as_ref().and_then(|it| it.replicas) != Some(0);
    observed.unlicensed = seen.deployment.filter(|it| scales_to_zero && has_pods(it)).map(Box::new);
    Ok(())
}

/// Reads the Deployment and its pods, and enters how they stand.
pub(super) async fn enter_pods(
    provisioner: &CoderProvisioner,
    findings: &mut Findings,
    cluster: &dyn Cluster,
) -> Result<Run, ClusterError> {
    let (workload, selector) = selected(provisioner);
    let seen = objects::seen(provisioner, &workload, &selector, cluster).await?;
    if seen.deployment.is_some() {
        findings.replicas = Some(counted(&seen));
        findings.deployment = Some(standing(&seen));
    }
    Ok(seen)
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
