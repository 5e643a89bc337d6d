//! One reconcile of a provisioner, stage by stage: the organization, the key, the objects, the daemons. A stage that fails stops the
//! later ones, and is reported in its condition.

use std::{collections::BTreeSet, pin::pin, sync::OnceLock, time::Duration};

use api::{ApprovedPlan, CoderProvisioner, CoderProvisionerStatus, Reason};
use client::provisioner_keys::KeyWithDaemons;
use futures::future::{BoxFuture, Either, select};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::{
    compared::{Objects, Unplanned, reads_names},
    daemons::Daemons,
    holder,
    keys::{self, Keys, recorded},
    names::target,
    observed::{Observed, observe},
    plan::{has_more_rounds, plan},
    reach::{self, Home, Reached, Search, Unreached, key_failed},
    workload::{self, check},
};
use crate::{
    coder::{Beside, Coder, Freshness},
    keys::Driven,
    kinds::provisioner::status::{self, Findings},
    objects::News,
    pipeline::{
        approval::Approvals,
        held_back::HeldBack,
        outcome::{Blocked, Trouble},
    },
    ports::{Cluster, ClusterError, Event, object::Live},
    secrets::{
        Around, Held, KeySecrets, Names, Rest, Retiring, Revoked, Wanted, around::Elsewhere,
        mirror::to_status,
    },
};

/// How long a new provisioner may be without a status while its deployment does not answer.
const FIRST_STATUS: Duration = Duration::from_secs(1);

/// The result of a reconcile.
#[derive(Debug)]
pub struct Reconciled {
    /// With the record of its keys in the status, written or not.
    pub provisioner: CoderProvisioner,
    /// The status as the cluster has it.
    pub written: Option<CoderProvisionerStatus>,
    pub findings: Findings,
    /// A failure that a retry may mend.
    pub trouble: Option<Trouble>,
    pub again_at: Option<Timestamp>,
    /// Whether an old key is still there. No watch shows when the last pod that has it is gone.
    pub is_rotating: bool,
    /// Whether a key was minted.
    pub has_minted: bool,
    /// The deployment, as far as it was reached.
    coder: Option<Coder>,
}

impl Reconciled {
    /// Whether every shared read of the deployment that was used is as recent as that. Not where the deployment was not
    /// reached.
    pub fn rests_on(&self, need: Freshness) -> bool {
        self.coder.as_ref().is_some_and(|it| it.rests_on(need))
    }
}

/// A key that works.
struct Keyed {
    held: Held,
    home: Home,
    /// The objects as they were observed before the key was driven.
    objects: Result<Option<Objects>, Unplanned>,
    pods: Vec<Pod>,
}

/// Reconciles a provisioner whose control plane `reaching` finds. `elsewhere` revokes keys of other deployments. The status is
/// written before a key is minted; the final one is the caller's to write.
pub async fn reconcile(
    provisioner: CoderProvisioner,
    reaching: impl Future<Output = Result<Reached, Unreached>> + Send,
    elsewhere: Elsewhere<'_>,
    beside: &Beside,
) -> Result<Reconciled, ClusterError> {
    let cluster = &*beside.cluster;
    let written = provisioner.status.clone();
    let mut reconciled = Reconciled {
        provisioner,
        written,
        findings: Findings::default(),
        trouble: None,
        again_at: None,
        is_rotating: false,
        has_minted: false,
        coder: None,
    };
    let home = Box::pin(find_home(&mut reconciled, reaching, cluster)).await?;
    let keyed = match home {
        Some(home) => Box::pin(keyed(&mut reconciled, home, elsewhere, beside)).await?,
        None => None,
    };
    let ended = match keyed {
        Some((keyed, news)) => {
            let ended = Box::pin(run_daemons(&mut reconciled, keyed, &news, beside)).await;
            report_minted(&reconciled.provisioner, news.take(), cluster).await;
            ended
        }
        None => workload::look_on(&reconciled.provisioner, &mut reconciled.findings, cluster).await,
    };
    if let Err(error) = ended {
        // The record of the keys is written, whatever is wrong with the objects.
        let mut known = reconciled.provisioner.status.clone().unwrap_or_default();
        // What is left of an approved plan needs no other approval.
        known.approved = reconciled.findings.approved.clone().or(known.approved);
        write_status(&reconciled.provisioner, reconciled.written.as_ref(), known, cluster).await.ok();
        return Err(error);
    }
    Ok(reconciled)
}

/// Finds the organization. A new provisioner whose deployment does not answer soon gets its first status meanwhile.
async fn find_home(
    reconciled: &mut Reconciled,
    reaching: impl Future<Output = Result<Reached, Unreached>> + Send,
    cluster: &dyn Cluster,
) -> Result<Option<Home>, ClusterError> {
    let provisioner = reconciled.provisioner.clone();
    let search = pin!(reach::find(&provisioner, reaching));
    let found = if status::is_begun(&provisioner) {
        search.await
    } else {
        match select(search, pin!(sleep(FIRST_STATUS))).await {
            Either::Left((found, _)) => found,
            Either::Right(((), search)) => {
                reconciled.provisioner = conclude(&provisioner, &Findings::default(), cluster).await?;
                reconciled.written.clone_from(&reconciled.provisioner.status);
                search.await
            }
        }
    };
    let Search { findings, trouble, home } = found;
    reconciled.findings = findings;
    reconciled.trouble = trouble;
    reconciled.coder = home.as_ref().map(|it| it.reached.coder.clone());
    Ok(home)
}

/// Brings the key into its declared state, and returns it with the keys that were minted and are not reported yet. `None` where
/// something stops it, which is then among the findings.
async fn keyed(
    reconciled: &mut Reconciled,
    home: Home,
    elsewhere: Elsewhere<'_>,
    beside: &Beside,
) -> Result<Option<(Keyed, News)>, ClusterError> {
    let provisioner = reconciled.provisioner.clone();
    if let Err(message) = Names::check(provisioner.key_name()) {
        let message = format!("spec.key.name: {message}");
        reconciled.findings.key = Some(Err(Blocked { reason: Reason::Invalid, message }));
        return Ok(None);
    }
    let (cluster, store) = (&*beside.cluster, beside.key_store());
    let (wanted, holder) = (keys::wanted(&provisioner, &home), holder(&provisioner));
    let place = wanted.secret.clone();
    let approved = OnceLock::new();
    let first = |object: &Value| with_intent(object, approved.get(), cluster.now());
    let revoke = |retiring: Retiring| -> BoxFuture<'_, Result<Revoked, Trouble>> { elsewhere(retiring) };
    let mut around = Around::new(store, &holder, Live::typed(&provisioner));
    around.elsewhere = Some(&revoke);
    around.first_status = Some(&first);
    let secrets = KeySecrets::new(store, &holder);
    let recorded = recorded(&provisioner);
    let (pods, carried) = keys::carried(&provisioner, &recorded, &wanted, cluster).await?;
    // A list tells the id of a key that was just minted.
    let unknown = around.remembered().and_then(|it| it.current).filter(|it| it.id.is_none());
    let coder = match unknown {
        Some(held) => home.reached.coder.showing(home.organization_id, &held.name).await,
        None => home.reached.coder.clone(),
    };
    let keys = Keys { coder: &coder, secrets: &secrets, around: &around, recorded, pods: carried };
    let around_it = (reads_names(&provisioner), beside);
    let (driven, objects) =
        match observe(&provisioner, (&keys, &wanted), &home.reached.declared, around_it).await {
            Ok((observed, looked)) => {
                let held_back = decide(reconciled, &observed);
                reconciled.findings.approved.iter().for_each(|it| drop(approved.set(it.clone())));
                let driven = keys.drive(&Wanted { held_back, ..wanted }).run_after(looked).await;
                // What was read before a key is changed may be old by now.
                let is_settled = observed.key.acts.is_empty();
                let objects = observed.objects.map(|it| it.filter(|_| is_settled));
                (driven, objects)
            }
            Err(trouble) => (Err(trouble), Ok(None)),
        };
    let mut provisioner = with_written(provisioner, around.object());
    reconciled.written.clone_from(&provisioner.status);
    let held = match driven {
        Err(trouble) => {
            reconciled.trouble = Some(trouble.clone());
            reconciled.findings.key = Some(Err(key_failed(trouble.into_blocked())));
            None
        }
        Ok(Driven { rest, trouble }) => {
            reconciled.trouble = trouble;
            reconciled.again_at = rest.again_at;
            reconciled.is_rotating = rest.is_rotating();
            // The status is written at the end of the reconcile: the Secret has the record already.
            let status = provisioner.status.get_or_insert_default();
            status.key = to_status(&rest.record);
            let held = rest.key.as_ref().ok();
            let verified = held.and_then(|it| secrets.version_of(&place, &it.checksum));
            status.secret_version = verified.or_else(|| status.secret_version.take());
            settle(&mut reconciled.findings, rest)
        }
    };
    let minted = around.take_minted();
    reconciled.has_minted = !minted.is_empty();
    reconciled.findings.changed |= reconciled.has_minted;
    let news = News::new(minted.iter().map(|name| format!("provisioner key {name} was made")).collect());
    if held.is_none() {
        report_minted(&provisioner, news.take(), cluster).await;
    }
    reconciled.provisioner = provisioner;
    Ok(held.map(|held| (Keyed { held, home, objects, pods }, news)))
}

/// Decides about the plan for key and objects. Returns why no key is minted, where the plan is held back; the plan is among the
/// findings then.
fn decide(reconciled: &mut Reconciled, observed: &Observed) -> Option<Blocked> {
    let Reconciled { provisioner, findings, .. } = reconciled;
    let target = target(&provisioner.name_any());
    let plan = plan(observed).view(&target);
    let recorded = provisioner.status.as_ref().and_then(|it| it.approved.as_ref());
    let begun = Approvals::of(provisioner, None).record(&plan, &target);
    let begun = begun.filter(|_| has_more_rounds(observed, &plan));
    findings.approved = begun.or_else(|| recorded.cloned());
    findings.held_back = check(provisioner, &plan, recorded).err();
    findings.held_back.as_ref().map(HeldBack::blocked)
}

/// Enters the state of the key and of its Secret into the findings.
fn settle(findings: &mut Findings, rest: Rest) -> Option<Held> {
    match rest.key {
        Ok(held) => {
            findings.key = Some(Ok(()));
            findings.secret = Some(Ok(()));
            Some(held)
        }
        Err(blocked) => {
            let stage =
                if blocked.reason.is_about_key_secret() { &mut findings.secret } else { &mut findings.key };
            *stage = Some(Err(blocked));
            None
        }
    }
}

/// Applies the objects and counts the daemons that coderd sees on the key.
async fn run_daemons(
    reconciled: &mut Reconciled,
    keyed: Keyed,
    news: &News,
    beside: &Beside,
) -> Result<(), ClusterError> {
    let Keyed { held, home: Home { reached, organization_id }, objects, pods } = keyed;
    let cluster = &*beside.cluster;
    let Reconciled { provisioner, findings, .. } = reconciled;
    let around = (&reached.declared, beside);
    if !Box::pin(workload::run(provisioner, findings, (&held, news), objects, around)).await? {
        return Ok(());
    }
    // A pod that is being deleted finishes its build, which may take long, and takes no other job: it does not count. Pods that
    // come or go later change the Deployment's status, which causes another reconcile.
    let stay = pods.iter().filter(|it| it.metadata.deletion_timestamp.is_none());
    let pods: BTreeSet<String> = stay.map(kube::ResourceExt::name_any).collect();
    let replicas = reconciled.provisioner.spec.replicas();
    let version = reached.declared.status.as_ref().and_then(|it| it.version.as_deref());
    // A list tells the id of a key that was just minted.
    let coder = match held.id {
        Some(_) => reached.coder.clone(),
        None => reached.coder.showing(organization_id, &held.name).await,
    };
    let daemons = match coder.keys(organization_id, cluster.now()).await {
        Ok(list) => {
            let mine = list.keys.iter().find(|it| is_held(&held, it));
            if let (Some(mine), Some(status)) = (mine, &mut reconciled.provisioner.status) {
                status.key.provisioner_key_id = Some(mine.key.id.to_string());
            }
            let seen = mine.map(|it| it.daemons.as_slice()).unwrap_or_default();
            Ok(Daemons::of(seen, &pods, replicas, version))
        }
        Err(error) => {
            let trouble = Trouble::from(error);
            reconciled.trouble = Some(trouble.clone());
            Err(trouble.into_blocked())
        }
    };
    reconciled.findings.daemons = Some(daemons);
    Ok(())
}

/// Whether a key of a list is the one that is held. One that was just minted is known by its name.
fn is_held(held: &Held, listed: &KeyWithDaemons) -> bool {
    match held.id {
        Some(id) => listed.key.id == id,
        None => held.is_ours && listed.key.name.eq_ignore_ascii_case(&held.name),
    }
}

/// The provisioner with its status, and the version of that, as they were last written. The manifest stays as it is in this
/// reconcile; the next one sees later changes of it.
fn with_written(mut provisioner: CoderProvisioner, object: Option<Live>) -> CoderProvisioner {
    let now = object.and_then(|it| serde_json::from_value::<CoderProvisioner>(it.object).ok());
    if let Some(now) = now {
        provisioner.metadata.resource_version = now.metadata.resource_version;
        provisioner.status = now.status;
    }
    provisioner
}

/// The fields of the status that are written together with the name of a key that is about to be minted: those of the first
/// status, and the approval of the plan that the key belongs to.
fn with_intent(provisioner: &Value, approved: Option<&ApprovedPlan>, now: Timestamp) -> Map<String, Value> {
    let Ok(provisioner) = serde_json::from_value::<CoderProvisioner>(provisioner.clone()) else {
        return Map::new();
    };
    let before = provisioner.status.clone().unwrap_or_default();
    let mut fields = Map::new();
    if let Some(approved) = approved.filter(|it| before.approved.as_ref() != Some(*it)) {
        fields.insert("approved".to_owned(), json!(approved));
    }
    if status::is_begun(&provisioner) {
        return fields;
    }
    let CoderProvisionerStatus { observed_generation, conditions, phase, .. } =
        status::status(&provisioner, before, &Findings::default(), now);
    fields.insert("observedGeneration".to_owned(), json!(observed_generation));
    fields.insert("conditions".to_owned(), json!(conditions));
    fields.insert("phase".to_owned(), json!(phase));
    fields
}

/// Reports keys that were minted, where no Event about objects has reported them.
async fn report_minted(provisioner: &CoderProvisioner, notes: Vec<String>, cluster: &dyn Cluster) {
    for note in notes {
        let event = Event {
            is_warning: false,
            reason: Reason::KeyMinted,
            action: "Create",
            note: &note,
            must_be_written: false,
        };
        cluster.event(&provisioner.object_ref(&()), event).await;
    }
}

/// Writes the status of a provisioner that was not changed, and returns the provisioner as it is then.
pub async fn conclude(
    provisioner: &CoderProvisioner,
    findings: &Findings,
    cluster: &dyn Cluster,
) -> Result<CoderProvisioner, ClusterError> {
    let before = provisioner.status.clone().unwrap_or_default();
    let next = status::status(provisioner, before, findings, cluster.now());
    write_status(provisioner, provisioner.status.as_ref(), next, cluster).await
}

/// Writes the status where it differs from the one that the cluster has, and returns the provisioner as it is then.
pub async fn write_status(
    provisioner: &CoderProvisioner,
    written: Option<&CoderProvisionerStatus>,
    next: CoderProvisionerStatus,
    cluster: &dyn Cluster,
) -> Result<CoderProvisioner, ClusterError> {
    // That a Secret was verified in another version is no reason to write.
    let is_same = |it: &CoderProvisionerStatus| {
        let secret_version = it.secret_version.clone().or_else(|| next.secret_version.clone());
        *it == CoderProvisionerStatus { secret_version, ..next.clone() }
    };
    if written.is_some_and(is_same) {
        return Ok(provisioner.clone());
    }
    // With the version that was read: of two writers one is refused and reconciles again.
    let changed = CoderProvisioner { status: Some(next), ..provisioner.clone() };
    cluster.put_status(&changed).await
}
