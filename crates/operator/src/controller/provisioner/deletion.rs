//! The deletion of a provisioner: the daemons first, so that they finish what they do, then every key that is ours.
//!
//! What is to be revoked is known from the status, whatever the manifest says by now, and from the record in the Secret as
//! long as that is there.

use std::{sync::Arc, time::Duration};

use api::{CoderProvisioner, Mode, Reason, annotation};
use engine::{
    Blocked, Cluster as _, Freshness, Trouble,
    keys::deletion::revoke_all,
    kinds::provisioner::{
        holder,
        keys::{pods, recorded},
        ledger, names,
        patience::{Patience, longest_grace},
        secret,
    },
    objects::{Key, Live},
    pipeline::{cleanup::Cleanup, ledger::Ledger},
    ports::{ClusterError, List, Only, Reading},
    secrets::{Around, Held, Holder, LiveKey, Names, RecordCopies, Retiring, Revoked},
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt as _, core::SelectorExt as _};
use tokio::time::Instant;

use super::{
    Provisioners, access,
    elsewhere::{revoke_at, revoke_elsewhere},
};
use crate::{
    controller::{
        Shared,
        driver::{
            Driver,
            deletion::{Deletion, Taken, Waiting},
        },
        reach::for_deletion,
    },
    planes::Plane,
};

/// How soon pods that are on their way out are looked at again.
const SOON: Duration = Duration::from_secs(2);
/// The keys that are named nowhere but in a Secret that cannot be read, before what is said of them.
const UNREAD: &str = "provisioner keys that only an unreadable Secret names may be";

/// Why keys could not be revoked, and which.
type Unrevoked = Vec<(Blocked, String)>;

/// Deletes the daemons, waits for their pods, and revokes the keys.
pub(super) async fn take_back(
    driver: &Driver<Provisioners>,
    provisioner: &CoderProvisioner,
    deletion: &Deletion<'_>,
    cleanup: &mut Cleanup,
) -> Taken {
    let shared = &driver.shared;
    if provisioner.spec.changes.policy().mode() == Mode::Observe {
        leave_all(provisioner, cleanup, shared).await;
        return Taken::Back;
    }
    let Daemons { pods, refusals, since } = delete_daemons(provisioner, shared).await;
    let grace = longest_grace(provisioner, &pods);
    let (patience, grace) = (Patience::of(grace), Some(grace));
    if let Some(refusal) = refusals.first()
        && deletion.waits(patience.cluster).await
    {
        let why = refusal.waiting(patience.cluster);
        return Taken::Waits(Waiting { grace, ..Waiting::failed(why) });
    }
    if let Some(why) = waits_for(&pods)
        && deletion.waits(patience.pods).await
    {
        return Taken::Waits(Waiting { why, is_trouble: false, again: Some(SOON), grace });
    }
    let holder = holder(provisioner);
    let names = Names::new(provisioner.key_name(), &holder.uid);
    let around = Around::new(shared.key_store(), &holder, None);
    let keys = Keys { provisioner, names: &names, holder: &holder, around: &around, since };
    let mut is_last = deletion.is_forced || deletion.age > patience.coderd;
    let mut done = keys.revoke_all(is_last, driver).await;
    if done.is_err() && !is_last && !deletion.waits(patience.coderd).await {
        is_last = true;
        done = keys.revoke_all(is_last, driver).await;
    }
    for (why, keys) in done.err().into_iter().flatten() {
        if !is_last {
            let message = format!("{keys} not revoked yet: {}", why.message);
            let why = Blocked { message, ..why };
            return Taken::Waits(Waiting { grace, ..Waiting::failed(why) });
        }
        cleanup.stays_because(why.reason, format!("{keys} left behind: {}", why.message));
    }
    for Refusal { reason, left, .. } in refusals {
        cleanup.stays_because(reason, left);
    }
    Taken::Back
}

/// Names the keys of a provisioner that is only observed: they stay. Its objects go with their owner.
async fn leave_all(provisioner: &CoderProvisioner, cleanup: &mut Cleanup, shared: &Shared) {
    // What cannot be read does not hold up what is known without it.
    let (copies, unread) = copies(provisioner, &holder(provisioner), shared).await;
    if let Some(why) = unread.map(Trouble::into_blocked) {
        cleanup.stays_because(why.reason, format!("{UNREAD} left behind: {}", why.message));
    }
    for key in Ledger::new(ledger::keys(provisioner, &copies.records)).entries() {
        let message = "mode is Observe, which changes nothing in Coder: delete it there".to_owned();
        cleanup.fail(key.name(), Blocked { reason: Reason::Observed, message });
    }
}

/// Every copy of the record of the keys, and why one could not be read.
async fn copies(
    provisioner: &CoderProvisioner,
    holder: &Holder,
    shared: &Shared,
) -> (RecordCopies, Option<Trouble>) {
    let (mirror, place) = (recorded(provisioner), secret(provisioner));
    RecordCopies::read((holder, shared.key_store()), &mirror, &place, Reading::Known).await
}

/// What is left of the daemons of a provisioner that is being deleted.
struct Daemons {
    pods: Vec<Pod>,
    refusals: Vec<Refusal>,
    /// Keys are compared with lists that began after this.
    since: Instant,
}

/// A request that the API server refused or did not answer.
struct Refusal {
    reason: Reason,
    /// What failed, with the API server's words.
    failed: String,
    /// What is left behind once the deadline has passed.
    left: String,
}

impl Refusal {
    fn new(object: &str, failed: &str, is_there: bool, error: &ClusterError) -> Self {
        let is_refused = matches!(error.code(), Some(400 | 403 | 405 | 422));
        let reason = if is_refused { Reason::NotApplied } else { Reason::Deleting };
        let is = if is_there { "is" } else { "may be" };
        let failed = format!("{object} cannot be {failed}: {error}");
        Self { reason, left: format!("{object} {is} left behind: {failed}"), failed }
    }

    /// Why the deletion waits, and what to do.
    fn waiting(&self, patience: Duration) -> Blocked {
        let message = format!(
            "{}. The key is not revoked while daemons may use it. Correct the cause; the deletion is retried for {} minutes. \
             Set the annotation {} to \"true\" to revoke the key at once and leave the daemons",
            self.failed,
            patience.as_secs() / 60,
            annotation::FORCE_FINALIZE
        );
        Blocked { reason: self.reason, message }
    }
}

/// Deletes the Deployments. Returns the pods that are still there, and what the API server did not do.
async fn delete_daemons(provisioner: &CoderProvisioner, shared: &Shared) -> Daemons {
    let (namespace, cluster) = (provisioner.namespace().unwrap_or_default(), &*shared.cluster);
    let names = [Some(names::workload(provisioner)), names::former_workload(provisioner)];
    let keys = names.into_iter().flatten().map(|it| Key::new("apps/v1", "Deployment", &namespace, &it));
    let keys: Vec<Key> = keys.collect();
    let labels = names::wide_selector(provisioner);
    let list = List { api_version: "apps/v1", kind: "Deployment", namespace: Some(&namespace), labels };
    let mut refusals = Vec::new();
    let listed = cluster.list(&list, Reading::Known).await;
    let is_listed = listed.is_ok();
    let listed = listed.unwrap_or_default().into_iter();
    let seen: Vec<Live> = listed.filter(|it| keys.contains(&it.key)).collect();
    for deployment in &seen {
        refusals.extend(delete_deployment(deployment, provisioner, shared).await.err());
    }
    let (since, left) = remaining_pods(provisioner, shared).await;
    let pods = left.unwrap_or_else(|error| {
        refusals.push(Refusal::new("the daemons' pods", "listed", false, &error));
        Vec::new()
    });
    // A Deployment that has lost its labels is in no list.
    let has_pods = pods.iter().any(|it| it.metadata.deletion_timestamp.is_none());
    if !is_listed || seen.is_empty() && has_pods {
        for key in &keys {
            let done = match cluster.get(key, Reading::Now).await {
                Ok(Some(deployment)) => delete_deployment(&deployment, provisioner, shared).await,
                Ok(None) => Ok(()),
                Err(error) => Err(Refusal::new(&named(key), "read", false, &error)),
            };
            refusals.extend(done.err());
        }
    }
    Daemons { pods, refusals, since }
}

/// The pods that are still there, and the instant after which a list of keys has to begin so that keys are revoked for the lack of
/// pods. The watch may be behind: an empty list is read from the API server, once for all deletions of a round.
async fn remaining_pods(
    provisioner: &CoderProvisioner,
    shared: &Shared,
) -> (Instant, Result<Vec<Pod>, ClusterError>) {
    match pods(provisioner, Reading::Known, &*shared.cluster).await {
        Ok(known) if known.is_empty() => {}
        known => return (Instant::now(), known),
    }
    let round = shared.rounds.join().await;
    let namespace = provisioner.namespace().unwrap_or_default();
    let cluster: &dyn engine::Cluster = &*shared.cluster;
    let list = async || cluster.find::<Pod>(&namespace, &names::all_selector(), Reading::Now).await;
    let listed = shared.rounds.pods(round, &namespace, list).await;
    let selector = names::wide_selector(provisioner);
    let is_its = |it: &&Pod| it.metadata.labels.as_ref().is_some_and(|it| selector.matches(it));
    (round.began(), listed.map(|it| it.iter().filter(is_its).cloned().collect()))
}

/// Deletes a Deployment that was read, if the provisioner owns it.
async fn delete_deployment(
    deployment: &Live,
    provisioner: &CoderProvisioner,
    shared: &Shared,
) -> Result<(), Refusal> {
    let metadata = deployment.metadata();
    let owners = metadata.owner_references.iter().flatten();
    let is_ours = owners.map(|it| &it.uid).any(|it| Some(it) == provisioner.metadata.uid.as_ref());
    if !is_ours || metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let only = Only { uid: metadata.uid.as_deref().unwrap_or_default(), version: None };
    match shared.cluster.delete(&deployment.key, only).await {
        // Another object of that name has come since.
        Err(error) if error.is_conflict() => Ok(()),
        done => done.map_err(|error| Refusal::new(&named(&deployment.key), "deleted", true, &error)),
    }
}

/// An object as messages name it.
fn named(key: &Key) -> String {
    format!("{} {}", key.kind, key.name)
}

fn waits_for(pods: &[Pod]) -> Option<Blocked> {
    let first = pods.first()?;
    let message = format!(
        "the daemons finish what they do before their key is revoked: {} of them, such as {}",
        pods.len(),
        first.name_any()
    );
    Some(Blocked { reason: Reason::Deleting, message })
}

/// The keys of a provisioner that is being deleted.
struct Keys<'a> {
    provisioner: &'a CoderProvisioner,
    names: &'a Names,
    holder: &'a Holder,
    around: &'a Around<'a>,
    /// Keys are compared with lists that began after this.
    since: Instant,
}

impl Keys<'_> {
    /// Revokes every key that is ours, each where it lives. The error names those that could not be. The last time what cannot
    /// be read does not hold up what is known without it, and is named.
    async fn revoke_all(&self, is_last: bool, driver: &Driver<Provisioners>) -> Result<(), Unrevoked> {
        let unreadable =
            |trouble: Trouble| vec![(trouble.into_blocked(), "its provisioner keys are".to_owned())];
        let (copies, unread) = match copies(self.provisioner, self.holder, &driver.shared).await {
            (_, Some(trouble)) if !is_last => return Err(unreadable(trouble)),
            read => read,
        };
        let current = copies.current();
        let listed = match current {
            Some(held) => self.listed(held, driver).await,
            None => Ok(Vec::new()),
        };
        let listed = match listed {
            Err(trouble) if !is_last => return Err(unreadable(trouble)),
            read => read.unwrap_or_default(),
        };
        let place = current.map(|it| it.place.clone()).unwrap_or_default();
        let keys = copies.keys(self.names, false, Some((listed.as_slice(), &place)));
        let revoke = |it: Retiring| -> BoxFuture<'_, Result<Revoked, Trouble>> {
            Box::pin(async move { self.revoke_one(&it, driver).await })
        };
        let failed = revoke_all(&keys, self.names, self.around, &revoke).await.failed;
        let names: Vec<&str> = failed.iter().map(|it| it.0.as_str()).collect();
        let left =
            format!("provisioner key {} {}", names.join(", "), if names.len() == 1 { "is" } else { "are" });
        let unread = unread.map(|trouble| (trouble.into_blocked(), UNREAD.to_owned()));
        let failed = failed.into_iter().next_back().map(|(_, trouble)| (trouble.into_blocked(), left));
        let unrevoked: Unrevoked = failed.into_iter().chain(unread).collect();
        if unrevoked.is_empty() { Ok(()) } else { Err(unrevoked) }
    }

    /// The keys beside a key, where anybody can be asked: one that was lost is known by its name.
    async fn listed(&self, held: &Held, driver: &Driver<Provisioners>) -> Result<Vec<LiveKey>, Trouble> {
        let Some(organization) = held.organization_id else { return Ok(Vec::new()) };
        let namespace = self.provisioner.namespace().unwrap_or_default();
        let name = (namespace, held.place.control_plane.clone());
        let plane = match own(self.provisioner, held, driver).await {
            Some(plane) => Some(plane),
            None => for_deletion(&name, &driver.shared).await.ok(),
        };
        let Some(plane) = plane.filter(|it| held.place.deployment_id.is_none_or(|id| id == it.deployment()))
        else {
            return Ok(Vec::new());
        };
        let coder = plane.coder(Freshness::BegunAfter(self.since));
        Ok(coder.list_keys(organization, false, Timestamp::now()).await?.keys)
    }

    async fn revoke_one(
        &self,
        retiring: &Retiring,
        driver: &Driver<Provisioners>,
    ) -> Result<Revoked, Trouble> {
        let held = &retiring.held;
        let own = own(self.provisioner, held, driver).await;
        let is_its = |it: &Arc<Plane>| held.place.deployment_id.is_none_or(|id| id == it.deployment());
        let Some(plane) = own.filter(is_its) else {
            let namespace = self.provisioner.namespace().unwrap_or_default();
            return revoke_elsewhere(retiring, &namespace, self.names, Some(self.since), &driver.shared)
                .await;
        };
        revoke_at(&plane, retiring, self.names, Some(self.since)).await
    }
}

/// The deployment of a key with the credentials that the provisioner brings, if it brings any for it.
async fn own(
    provisioner: &CoderProvisioner,
    held: &Held,
    driver: &Driver<Provisioners>,
) -> Option<Arc<Plane>> {
    let is_there = held.place.control_plane == provisioner.spec.control_plane_ref.name;
    provisioner.spec.bootstrap.as_ref().filter(|_| is_there)?;
    let declared = access::control_plane(provisioner, &driver.shared).await.ok()?;
    let now = access::access(provisioner, &declared, driver).await;
    match now {
        Ok(plane) => Some(plane),
        Err(_) => access::remembered(provisioner, &declared, driver).await,
    }
}
