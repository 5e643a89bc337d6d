//! Licences and entitlements of a control plane: read by every reconcile, kept as declared, told when they end.

use api::{CoderControlPlane, LicenseDeletionPolicy, Mode, Reason};
use client::{Client, licenses::License};
use engine::{
    Blocked, Plan, Step, Trouble,
    control_plane::{
        cleanup::{Cleanup, CleanupFailure},
        entitlements::Summary,
        license::{
            self, Declared, Done, LicenseEffect, LicenseRecord, LicenseView, Observed, Verdict,
            apply::intend, record::Uploaded,
        },
        report::{self, Licensing, Unread},
        workload::check,
    },
    held_back::Changes,
    status,
};
use jiff::Timestamp;
use kube::{ResourceExt as _, runtime::events::EventType};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{
    cluster::Cluster,
    run::{Shared, kube_cluster::error_of, planes::Plane, record::publish},
};

/// A renewal is two rounds: the new one comes, the old one goes.
const MOST_ROUNDS: usize = 3;

/// What a reconcile has read of a deployment's licences.
struct Read {
    live: Vec<License>,
    summary: Summary,
}

/// One deployment, as far as licences are concerned.
struct Desk<'a> {
    plane: &'a mut CoderControlPlane,
    client: &'a Client,
    deployment: Uuid,
    declared: Vec<Declared>,
    changes: &'a mut Changes,
    shared: &'a Shared,
    now: Timestamp,
}

/// Keeps the licences as declared, and says how it stands with them. The manifest is the one of the last write.
pub(super) async fn keep(
    plane: &mut CoderControlPlane,
    client: &Client,
    deployment: Uuid,
    (changes, shared): (&mut Changes, &Shared),
) -> Result<Licensing, kube::Error> {
    let now = Timestamp::now();
    let before = recorded(plane);
    let declared = match license::declared(plane, &Cluster(shared.client.clone())).await {
        Ok(declared) => declared,
        Err(unreadable) => return Ok(stopped(Verdict::unread(&unreadable), before, None)),
    };
    let mut desk = Desk { plane, client, deployment, declared, changes, shared, now };
    match desk.read().await {
        Ok(read) => desk.keep(before, read).await,
        Err(error) => {
            let verdict = Verdict::unread_licences(&error, !desk.declared.is_empty());
            Ok(stopped(verdict, before, Some(Unread::of(&error))))
        }
    }
}

/// The record of licences that the deletion of a control plane has to take back. `None` where it takes back none.
pub(super) fn owed(plane: &CoderControlPlane) -> Option<LicenseRecord> {
    let is_observed = plane.spec.changes.policy().mode() == Mode::Observe;
    let deletes = plane.spec.license_deletion_policy() == LicenseDeletionPolicy::Delete && !is_observed;
    Some(recorded(plane)).filter(|it| deletes && !it.uploaded.is_empty())
}

/// Names the licences that stay although they would be deleted, because the control plane is only observed.
pub(super) fn observed(plane: &CoderControlPlane) -> Option<String> {
    let deletes = plane.spec.license_deletion_policy() == LicenseDeletionPolicy::Delete;
    let is_observed = plane.spec.changes.policy().mode() == Mode::Observe;
    let record = recorded(plane);
    (deletes && is_observed && !record.uploaded.is_empty()).then(|| {
        let licenses = named(&record);
        format!("{licenses} is left behind: mode is Observe, which changes nothing in Coder: delete it there")
    })
}

/// Deletes the licences that we installed, each by itself.
pub(super) async fn end(
    record: LicenseRecord,
    reached: Result<&Plane, &CleanupFailure>,
    cleanup: &mut Cleanup,
) {
    let known = match reached {
        Ok(known) => known,
        Err(failure) => return cleanup.fail(named(&record), failure.clone()),
    };
    let (client, deployment, now) = (known.client(), known.deployment(), Timestamp::now());
    if record.deployment_id.is_some_and(|it| it != deployment) {
        let message = "another deployment answers there now".to_owned();
        return cleanup.fail(named(&record), Blocked { reason: Reason::DeploymentChanged, message });
    }
    let read = async {
        super::same_deployment(client, deployment).await?;
        Ok::<_, Trouble>(client.list_licenses().await?)
    };
    let live = match read.await {
        Ok(live) => live,
        Err(trouble) => return cleanup.fail(named(&record), trouble),
    };
    let mut record = record.settled(deployment, &[], &live, true);
    let observed = Observed { deployment, live: &live, record: &record.clone(), errors: &[], now };
    for step in license::plan_end(&observed, true).steps {
        if let Err(trouble) = license::apply(&step.effect, &[], client, &mut record).await
            && let LicenseEffect::Delete { id, .. } = &step.effect
        {
            cleanup.fail(format!("licence {id}"), trouble);
        }
    }
}

/// The licences of a record, by the ids that Coder has given them.
fn named(record: &LicenseRecord) -> String {
    let name = |it: &Uploaded| it.id.map_or_else(|| format!("of {}", it.slot), |id| id.to_string());
    let names: Vec<String> = record.uploaded.iter().map(name).collect();
    format!("licence {}", names.join(", "))
}

fn recorded(plane: &CoderControlPlane) -> LicenseRecord {
    let record = plane.status.as_ref().and_then(|it| it.license_record.as_deref());
    record.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default()
}

/// Nothing was read, so nothing is known to be otherwise.
fn stopped(verdict: Verdict, record: LicenseRecord, unread: Option<Unread>) -> Licensing {
    Licensing { verdict, licenses: None, entitlements: None, unread, record, applied: None }
}

impl Desk<'_> {
    async fn read(&self) -> Result<Read, client::Error> {
        let entitlements = self.client.entitlements().await?;
        let live = self.client.list_licenses().await?;
        Ok(Read { live, summary: Summary::of(&entitlements) })
    }

    async fn keep(&mut self, before: LicenseRecord, mut read: Read) -> Result<Licensing, kube::Error> {
        let deletes = self.plane.spec.license_deletion_policy() == LicenseDeletionPolicy::Delete;
        let mut record = before.settled(self.deployment, &self.declared, &read.live, deletes);
        let mut failed = None;
        for _ in 0..MOST_ROUNDS {
            let plan = license::plan(&self.declared, &self.observed(&read, &record), deletes);
            if plan.is_empty() || failed.is_some() {
                break;
            }
            if let Err(held) = check(self.plane, &plan.view(&report::target(self.plane))) {
                self.changes.held_back.get_or_insert(held);
                break;
            }
            self.changes.changed = true;
            self.intend(&plan, &mut record).await?;
            for step in &plan.steps {
                match license::apply(&step.effect, &self.declared, self.client, &mut record).await {
                    Ok(done) => {
                        self.tell(step, &done);
                        if done == Done::Refused {
                            // It is not sent again, also where the manifest has changed since and this pass is for nothing.
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
            record = record.settled(self.deployment, &self.declared, &read.live, deletes);
        }
        let Read { live, summary } = &read;
        let verdict = match &failed {
            Some(Trouble::Remote(error)) => Verdict::failed(error),
            Some(Trouble::Blocked(_) | Trouble::Stale) | None => {
                license::verdict(&self.declared, &self.observed(&read, &record), Some(summary))
            }
        };
        for announcement in record.announce(&self.declared, live, self.now) {
            let words = (Reason::LicenseExpires, "Announce");
            let note = announcement.message("the licence");
            publish(&*self.plane, EventType::Warning, words, &note, self.shared);
        }
        let record = record.following(&recorded(self.plane));
        let licenses = Some(live.iter().map(|it| LicenseView::of(it, self.now)).collect());
        let applied = license::applied(&self.declared, live);
        let entitlements = Some(summary.clone());
        Ok(Licensing { verdict, licenses, entitlements, unread: None, record, applied })
    }

    fn observed<'b>(&'b self, read: &'b Read, record: &'b LicenseRecord) -> Observed<'b> {
        let (live, errors) = (&read.live, &read.summary.errors);
        Observed { deployment: self.deployment, live, record, errors, now: self.now }
    }

    /// Writes down what is about to be done, before it is: after a crash that says whose a licence is. It is written also where
    /// it stands there already: of two operators that are about to do the same, one is refused.
    async fn intend(
        &mut self,
        plan: &Plan<LicenseEffect>,
        record: &mut LicenseRecord,
    ) -> Result<(), kube::Error> {
        intend(&plan.steps, record);
        record.epoch = recorded(self.plane).epoch + 1;
        self.write_down(record).await
    }

    /// Writes the record into the status, whatever else happens to the manifest meanwhile. Fails with a conflict where another
    /// operator has written a record since this one was read.
    async fn write_down(&mut self, record: &LicenseRecord) -> Result<(), kube::Error> {
        let before = recorded(self.plane);
        if *record != before {
            let text = serde_json::to_string(record).unwrap_or_default();
            let fields = Map::from_iter([("licenseRecord".to_owned(), Value::from(text))]);
            let is_unchanged = |now: &CoderControlPlane| recorded(now) == before;
            let fields = |now: &CoderControlPlane| is_unchanged(now).then(|| fields.clone());
            let cluster: &dyn engine::Cluster = &*self.shared.cluster;
            let marked = cluster.mark(&*self.plane, fields).await.map_err(error_of)?;
            // Everything else stays as it was looked at.
            self.plane.metadata.resource_version = marked.resource_version();
            self.plane.status = marked.status;
        }
        Ok(())
    }

    fn tell(&self, step: &Step<LicenseEffect>, done: &Done) {
        let words = match done {
            Done::Uploaded => (Reason::LicenseInstalled, "Create"),
            // The condition says so, with coderd's words.
            Done::Refused => return,
            Done::Deleted => (Reason::LicenseRetired, "Delete"),
        };
        let changes: Vec<String> = step.changes.iter().map(status::line).collect();
        let note = format!("{}: {}", step.reason, changes.join(", "));
        tracing::info!(action = words.1, "{note}");
        publish(&*self.plane, EventType::Normal, words, &note, self.shared);
    }
}
