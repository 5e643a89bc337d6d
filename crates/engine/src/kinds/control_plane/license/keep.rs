//! Licences and entitlements of a control plane: read by every reconcile, kept as declared, and announced before they expire.

use api::{CoderControlPlane, LicenseDeletionPolicy, Reason};
use client::licenses::License;
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Map, Value};

use super::{
    Declared, Done, LicenseEffect, LicenseRecord, LicenseVerdict, LicenseView, Licensing, Observed, Unread,
    Uploaded,
    applied::applied,
    apply::{apply, intend},
    plan::{plan, plan_cleanup},
    subject::declared,
    verdict::verdict,
};
use crate::{
    kinds::control_plane::{
        entitlements::Summary,
        identity::ReachedDeployment,
        plan::{check, target},
    },
    pipeline::{
        cleanup::{Cleanup, CleanupFailure},
        held_back::Changes,
        ledger::Entry,
        outcome::{Blocked, Trouble},
        plan::{Plan, Step},
        status,
    },
    ports::{Cluster, ClusterError, Event},
};

/// A renewal is two rounds: the new one comes, the old one goes.
const MOST_ROUNDS: usize = 3;

/// What a reconcile has read of a deployment's licences.
struct Read {
    live: Vec<License>,
    summary: Summary,
}

/// The licences of one deployment in one reconcile.
struct Reconcile<'a> {
    plane: &'a mut CoderControlPlane,
    reached: ReachedDeployment<'a>,
    declared: Vec<Declared>,
    changes: &'a mut Changes,
    cluster: &'a dyn Cluster,
    now: Timestamp,
}

/// Keeps the licences as declared, and returns what became of them. The manifest is the one of the last write.
pub async fn keep(
    plane: &mut CoderControlPlane,
    reached: ReachedDeployment<'_>,
    changes: &mut Changes,
    cluster: &dyn Cluster,
) -> Result<Licensing, ClusterError> {
    let now = cluster.now();
    let before = recorded(plane);
    let declared = match declared(plane, cluster).await {
        Ok(declared) => declared,
        Err(unreadable) => return Ok(stopped(LicenseVerdict::unread(&unreadable), before, None)),
    };
    let mut reconcile = Reconcile { plane, reached, declared, changes, cluster, now };
    match reconcile.read().await {
        Ok(read) => reconcile.keep(before, read).await,
        Err(error) => {
            let verdict = LicenseVerdict::unread_licences(&error, !reconcile.declared.is_empty());
            Ok(stopped(verdict, before, Some(Unread::of(&error))))
        }
    }
}

/// Deletes the licences that we installed, each by itself.
pub async fn delete(
    record: LicenseRecord,
    reached: Result<ReachedDeployment<'_>, &CleanupFailure>,
    cleanup: &mut Cleanup,
    now: Timestamp,
) {
    let reached = match reached {
        Ok(reached) => reached,
        Err(failure) => return cleanup.fail(named(&record), failure.clone()),
    };
    let ReachedDeployment { client, deployment } = reached;
    if record.deployment_id.is_some_and(|it| it != deployment) {
        let message = "another deployment answers there now".to_owned();
        return cleanup.fail(named(&record), Blocked { reason: Reason::DeploymentChanged, message });
    }
    let read = async {
        reached.check_same().await?;
        Ok::<_, Trouble>(client.list_licenses().await?)
    };
    let live = match read.await {
        Ok(live) => live,
        Err(trouble) => return cleanup.fail(named(&record), trouble),
    };
    let mut record = record.settled(deployment, &[], &live, true);
    let observed = Observed { deployment, live: &live, record: &record.clone(), errors: &[], now };
    for step in plan_cleanup(&observed, true).steps {
        if let Err(trouble) = apply(&step.effect, &[], client, &mut record).await
            && let LicenseEffect::Delete { id, .. } = &step.effect
        {
            cleanup.fail(format!("licence {id}"), trouble);
        }
    }
}

/// The licences of a record as an entry of the ledger, by the ids that Coder has given them. `None` where there are none.
pub fn entry(record: &LicenseRecord) -> Option<Entry> {
    let name = |it: &Uploaded| it.id.map_or_else(|| format!("of {}", it.slot), |id| id.to_string());
    let names: Vec<String> = record.uploaded.iter().map(name).collect();
    (!names.is_empty()).then_some(Entry::Licenses(names))
}

fn named(record: &LicenseRecord) -> String {
    entry(record).map(|it| it.name()).unwrap_or_default()
}

/// The record of the licences that the operator uploaded.
pub fn recorded(plane: &CoderControlPlane) -> LicenseRecord {
    let record = plane.status.as_ref().and_then(|it| it.license_record.as_deref());
    record.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default()
}

/// Nothing was read, so nothing is known to be otherwise.
fn stopped(verdict: LicenseVerdict, record: LicenseRecord, unread: Option<Unread>) -> Licensing {
    Licensing { verdict, licenses: None, entitlements: None, unread, record, applied: None }
}

impl Reconcile<'_> {
    async fn read(&self) -> Result<Read, client::Error> {
        let entitlements = self.reached.client.entitlements().await?;
        let live = self.reached.client.list_licenses().await?;
        Ok(Read { live, summary: Summary::of(&entitlements) })
    }

    async fn keep(&mut self, before: LicenseRecord, mut read: Read) -> Result<Licensing, ClusterError> {
        let deletes = self.plane.spec.license_deletion_policy() == LicenseDeletionPolicy::Delete;
        let mut record = before.settled(self.reached.deployment, &self.declared, &read.live, deletes);
        let mut failed = None;
        for _ in 0..MOST_ROUNDS {
            let plan = plan(&self.declared, &self.observed(&read, &record), deletes);
            if plan.is_empty() || failed.is_some() {
                break;
            }
            if let Err(held) = check(self.plane, &plan.view(&target(self.plane))) {
                self.changes.held_back.get_or_insert(held);
                break;
            }
            self.changes.changed = true;
            self.intend(&plan, &mut record).await?;
            for step in &plan.steps {
                match apply(&step.effect, &self.declared, self.reached.client, &mut record).await {
                    Ok(done) => {
                        self.report(step, &done).await;
                        if done == Done::Refused {
                            // It is not sent again, also where the manifest has changed since and this reconcile is for nothing.
                            record = record.following(&recorded(self.plane));
                            self.write_down(&record).await?;
                        }
                    }
                    Err(trouble) => {
                        failed = Some(trouble);
                        break;
                    }
                }
            }
            // What the deployment makes of it is known to it at once.
            match self.read().await {
                Ok(now) => read = now,
                Err(error) => failed = failed.or_else(|| Some(error.into())),
            }
            record = record.settled(self.reached.deployment, &self.declared, &read.live, deletes);
        }
        let Read { live, summary } = &read;
        let verdict = match &failed {
            Some(Trouble::Remote(error)) => LicenseVerdict::failed(error),
            Some(Trouble::Blocked(_) | Trouble::Stale) | None => {
                verdict(&self.declared, &self.observed(&read, &record), Some(summary))
            }
        };
        for announcement in record.announce(&self.declared, live, self.now) {
            let note = announcement.message("the licence");
            self.event(true, (Reason::LicenseExpires, "Announce"), &note).await;
        }
        let record = record.following(&recorded(self.plane));
        let licenses = Some(live.iter().map(|it| LicenseView::of(it, self.now)).collect());
        let applied = applied(&self.declared, live);
        let entitlements = Some(summary.clone());
        Ok(Licensing { verdict, licenses, entitlements, unread: None, record, applied })
    }

    fn observed<'b>(&'b self, read: &'b Read, record: &'b LicenseRecord) -> Observed<'b> {
        let (live, errors) = (&read.live, &read.summary.errors);
        Observed { deployment: self.reached.deployment, live, record, errors, now: self.now }
    }

    /// Writes down what is about to be done, before it is: after a crash that says whose a licence is. It is written also where
    /// it stands there already: of two operators that are about to do the same, one is refused.
    async fn intend(
        &mut self,
        plan: &Plan<LicenseEffect>,
        record: &mut LicenseRecord,
    ) -> Result<(), ClusterError> {
        intend(&plan.steps, record);
        record.epoch = recorded(self.plane).epoch + 1;
        self.write_down(record).await
    }

    /// Writes the record into the status, whatever else happens to the manifest meanwhile. Fails with a conflict where another
    /// operator has written a record since this one was read.
    async fn write_down(&mut self, record: &LicenseRecord) -> Result<(), ClusterError> {
        let before = recorded(self.plane);
        if *record != before {
            let text = serde_json::to_string(record).unwrap_or_default();
            let fields = Map::from_iter([("licenseRecord".to_owned(), Value::from(text))]);
            let is_unchanged = |now: &CoderControlPlane| recorded(now) == before;
            let fields = |now: &CoderControlPlane| is_unchanged(now).then(|| fields.clone());
            let marked = self.cluster.mark(&*self.plane, fields).await?;
            // Everything else stays as it was read.
            self.plane.metadata.resource_version = marked.resource_version();
            self.plane.status = marked.status;
        }
        Ok(())
    }

    async fn report(&self, step: &Step<LicenseEffect>, done: &Done) {
        let words = match done {
            Done::Uploaded => (Reason::LicenseInstalled, "Create"),
            // The condition says so, with coderd's words.
            Done::Refused => return,
            Done::Deleted => (Reason::LicenseRetired, "Delete"),
        };
        let changes: Vec<String> = step.changes.iter().map(status::line).collect();
        let note = format!("{}: {}", step.reason, changes.join(", "));
        self.event(false, words, &note).await;
    }

    async fn event(&self, is_warning: bool, (reason, action): (Reason, &'static str), note: &str) {
        let event = Event { is_warning, reason, action, note, must_be_written: false };
        self.cluster.event(&self.plane.object_ref(&()), event).await;
    }
}
