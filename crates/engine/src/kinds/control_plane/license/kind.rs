//! The licences of a control plane: compared, planned and uploaded like every other declared state.
//!
//! The command line records nothing, so it never deletes a licence: which ones a control plane has uploaded is known to the
//! controllers alone.

use std::sync::Arc;

use api::{CoderControlPlane, LicenseDeletionPolicy, Reason};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    Declared, Done, Jwt, LicenseEffect, LicenseRecord, LicenseVerdict, LicenseView, Licensing, Observed,
    Unread,
    applied::applied,
    apply::{apply, intend},
    plan::plan,
    verdict::{is_retried, verdict},
};
use crate::{
    coder::{Beside, Coder},
    kind::{Aside, Carried, Kind},
    kinds::control_plane::{self, entitlements::Summary, unlooked::unlooked},
    pipeline::{
        decide::Contact,
        ledger::Ledger,
        outcome::{Blocked, Invalid, Outcome, Trouble},
        plan::{Plan, Step},
        reference::Ref,
        status,
    },
    ports::{Cluster, ClusterError, Event, object::Live},
    secrets::referenced::{self, Unreadable},
};

const FIELD: &str = "spec.licenseSecretRef";

/// The licences that a control plane declares.
#[derive(Debug)]
pub struct Licenses;

/// The licences of a deployment, beside those that are declared.
#[derive(Debug)]
pub struct ObservedLicenses {
    work: Arc<Work>,
    plan: Plan<LicenseEffect>,
    pub licensing: Licensing,
    /// Why they could not be compared.
    stopped: Option<Outcome>,
}

/// What steps are carried out with.
struct Work {
    manifest: CoderControlPlane,
    declared: Vec<Declared>,
    /// The record with what is about to be uploaded.
    intended: LicenseRecord,
    /// Whether the status has a record. False on the command line.
    is_recorded: bool,
}

/// What a step is carried out with.
#[derive(Debug)]
pub struct Effect {
    work: Arc<Work>,
    what: LicenseEffect,
}

impl Kind for Licenses {
    type Manifest = CoderControlPlane;
    type Desired = CoderControlPlane;
    type Observed = ObservedLicenses;
    type Effect = Effect;

    /// Before everything that a licence covers.
    const RANK: u8 = 0;
    const SHOWS_ID: bool = false;
    const IS_GATED: bool = false;
    const HAS_RECORDS: bool = true;
    const LOOKS_AGAIN: bool = true;

    fn target(_: &CoderControlPlane) -> String {
        "licences".to_owned()
    }

    fn desire(plane: &CoderControlPlane) -> Result<CoderControlPlane, Invalid> {
        Ok(plane.clone())
    }

    fn refs(plane: &CoderControlPlane) -> Vec<Ref> {
        plane.spec.licenses().map(|(secret, _)| Ref::Secret(secret.to_owned())).collect()
    }

    fn ledger(plane: &CoderControlPlane) -> Ledger {
        control_plane::ledger(plane)
    }

    /// After a crash the record says whose a licence is. It is written also where it stands there already, with another epoch: of two
    /// operators that are about to do the same, one is refused.
    fn intends(effect: &Effect) -> Map<String, Value> {
        field(&effect.work.intended)
    }

    async fn observe(
        plane: &CoderControlPlane,
        _held: Option<Uuid>,
        coder: &Coder,
    ) -> Result<ObservedLicenses, Trouble> {
        observe(plane, coder).await
    }

    fn waits(observed: &ObservedLicenses) -> Option<Outcome> {
        let ObservedLicenses { plan, licensing, stopped, .. } = observed;
        let LicenseVerdict { status, reason, message } = &licensing.verdict;
        match (stopped, status) {
            (Some(stopped), _) => Some(stopped.clone()),
            (None, Some(false)) if plan.is_empty() => Some(if is_retried(*reason) {
                Outcome::Blocked(Blocked { reason: *reason, message: message.clone() })
            } else {
                Outcome::Invalid(Invalid::new(FIELD, message.clone()))
            }),
            (None, _) => None,
        }
    }

    fn is_default(_: &ObservedLicenses) -> bool {
        false
    }

    /// A licence is there or not, and is never changed.
    fn contact(observed: &ObservedLicenses, _held: Option<Uuid>) -> Contact {
        if observed.plan.is_empty() { Contact::Held } else { Contact::Absent }
    }

    fn id(_: &ObservedLicenses) -> Option<Uuid> {
        None
    }

    fn plan(_: &CoderControlPlane, observed: &ObservedLicenses) -> Plan<Effect> {
        observed.plan.clone().map(|what| Effect { work: Arc::clone(&observed.work), what })
    }

    /// Empty: the ledger names the licences that are to go.
    fn plan_deletion(_: &ObservedLicenses) -> Plan<Effect> {
        Plan::empty()
    }

    async fn apply(effect: &Effect, coder: &Coder) -> Result<Option<Uuid>, Trouble> {
        let Effect { work, what } = effect;
        apply(what, &work.declared, coder, &mut work.intended.clone()).await.map(|_| None)
    }

    async fn carry_out(steps: &[&Step<Effect>], coder: &Coder) -> Carried {
        carry_out(steps, coder).await
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

/// The licences that the manifest names. The error is that one of their Secrets was not read.
pub async fn declared(
    plane: &CoderControlPlane,
    references: &dyn Cluster,
) -> Result<Vec<Declared>, Unreadable> {
    let namespace = plane.namespace().unwrap_or_default();
    let has_first = plane.spec.license_secret_ref.is_some();
    let mut declared = Vec::new();
    for (position, (name, key)) in plane.spec.licenses().enumerate() {
        let values = referenced::values(references, &namespace, name).await?;
        let slot =
            if has_first && position == 0 { "licenseSecretRef".to_owned() } else { format!("{name}/{key}") };
        let text = values.and_then(|it| it.text(key));
        declared.push(Declared { slot, jwt: text.as_ref().and_then(Jwt::new) });
    }
    Ok(declared)
}

/// The record of the licences that the operator uploaded.
pub fn recorded(plane: &CoderControlPlane) -> LicenseRecord {
    let record = plane.status.as_ref().and_then(|it| it.license_record.as_deref());
    record.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default()
}

fn field(record: &LicenseRecord) -> Map<String, Value> {
    let text = serde_json::to_string(record).unwrap_or_default();
    Map::from_iter([("licenseRecord".to_owned(), json!(text))])
}

async fn observe(plane: &CoderControlPlane, coder: &Coder) -> Result<ObservedLicenses, Trouble> {
    let is_recorded = coder.cluster().is_some_and(|it| it.writes_status);
    let references = coder.references()?;
    let before = if is_recorded { recorded(plane) } else { LicenseRecord::default() };
    let stopped = |declared, licensing, outcome| {
        let manifest = plane.clone();
        let work = Arc::new(Work { manifest, declared, intended: before.clone(), is_recorded });
        Ok(ObservedLicenses { work, plan: Plan::empty(), licensing, stopped: Some(outcome) })
    };
    let declared = match declared(plane, references).await {
        Ok(declared) => declared,
        Err(unreadable) => {
            let message = format!("a Secret with a licence cannot be read: {}", unreadable.words());
            let outcome = Outcome::Blocked(Blocked { reason: unreadable.reason(), message });
            let verdict = LicenseVerdict::unread(&unreadable);
            return stopped(Vec::new(), Licensing::unread(verdict, before.clone(), None), outcome);
        }
    };
    let deployment = coder.identified().await?;
    let read = async { Ok((coder.client().entitlements().await?, coder.licenses().await?)) };
    let (summary, live) = match read.await {
        Ok((entitlements, live)) => (Summary::of(&entitlements), live),
        Err(error) => {
            let verdict = LicenseVerdict::unread_licences(&error, !declared.is_empty());
            let licensing = Licensing::unread(verdict, before.clone(), Some(Unread::of(&error)));
            return stopped(declared, licensing, Trouble::from(error).into());
        }
    };
    let now = references.now();
    let deletes = is_recorded && plane.spec.license_deletion_policy() == LicenseDeletionPolicy::Delete;
    let record = before.settled(deployment, &declared, &live, deletes);
    let observed = Observed { deployment, live: &live, record: &record, errors: &summary.errors, now };
    let plan = plan(&declared, &observed, deletes);
    let verdict = verdict(&declared, &observed, Some(&summary));
    let mut intended = LicenseRecord { epoch: before.epoch + 1, ..record.clone() };
    intend(&plan.steps, &mut intended);
    let mut next = record.clone();
    let announcements = next.announce(&declared, &live, now);
    let licensing = Licensing {
        verdict,
        licenses: Some(live.iter().map(|it| LicenseView::of(it, now)).collect()),
        entitlements: Some(summary),
        unread: None,
        record: next.following(&before),
        applied: applied(&declared, &live),
        announcements,
    };
    let work = Arc::new(Work { manifest: plane.clone(), declared, intended, is_recorded });
    Ok(ObservedLicenses { work, plan, licensing, stopped: None })
}

/// Uploads and deletes licences, up to the first that fails.
async fn carry_out(steps: &[&Step<Effect>], coder: &Coder) -> Carried {
    let mut carried = Carried::default();
    let Some(work) = steps.first().map(|it| &it.effect.work) else { return carried };
    let recorder = coder.cluster().filter(|_| work.is_recorded);
    let (mut record, mut written) = (work.intended.clone(), work.intended.clone());
    for step in steps {
        let done = match apply(&step.effect.what, &work.declared, coder, &mut record).await {
            Ok(done) => done,
            Err(trouble) => {
                carried.failed = Some(trouble.into());
                break;
            }
        };
        if let Some(beside) = recorder {
            work.report(step, &done, &*beside.cluster).await;
        }
        match (done, recorder) {
            (Done::Uploaded | Done::Deleted, _) => {}
            // It is not sent again, also where the manifest has changed since and this reconcile is for nothing.
            (Done::Refused, Some(beside)) => {
                record = record.following(&written);
                if let Err(error) = work.write_down(&record, &written, beside).await {
                    carried.failed = Some(Trouble::Cluster(error).into());
                    break;
                }
                written.clone_from(&record);
            }
            (Done::Refused, None) => {
                let words = record.refused.first().map(|it| it.words.clone()).unwrap_or_default();
                carried.failed = Some(Outcome::Invalid(Invalid::new(FIELD, words)));
                break;
            }
        }
        carried.done += 1;
    }
    carried
}

impl std::fmt::Debug for Work {
    /// The manifest has the values of variables.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "the licences of CoderControlPlane {}", self.manifest.name_any())
    }
}

impl Work {
    /// Writes the record into the status, whatever else happens to the manifest meanwhile. Fails with a conflict where another
    /// operator has written a record since.
    async fn write_down(
        &self,
        record: &LicenseRecord,
        before: &LicenseRecord,
        beside: &Beside,
    ) -> Result<(), ClusterError> {
        let fields = |now: &CoderControlPlane| (recorded(now) == *before).then(|| field(record));
        // The manifest was read before what is written down there by now.
        let mut plane = self.manifest.clone();
        plane.status.get_or_insert_default().license_record = serde_json::to_string(before).ok();
        let marked = beside.cluster.mark(&plane, fields).await?;
        if let Some(marked) = Live::typed(&marked) {
            beside.memory.keep_written(marked);
        }
        Ok(())
    }

    async fn report(&self, step: &Step<Effect>, done: &Done, cluster: &dyn Cluster) {
        let (reason, action) = match done {
            Done::Uploaded => (Reason::LicenseInstalled, "Create"),
            // The condition says so, with coderd's words.
            Done::Refused => return,
            Done::Deleted => (Reason::LicenseRetired, "Delete"),
        };
        let changes: Vec<String> = step.changes.iter().map(status::line).collect();
        let note = format!("{}: {}", step.reason, changes.join(", "));
        let event = Event { is_warning: false, reason, action, note: &note, must_be_written: false };
        cluster.event(&self.manifest.object_ref(&()), event).await;
    }
}
