//! One object: compared with its deployment, and made equal to its manifest.

use std::{pin::pin, time::Duration};

use api::{AppState, Mode, Status, finalizer};
use engine::{
    Assessment, Blocked, Coder, Contact, Decision, Door, Freshness, Kind, Object, Report, Verdict,
    pipeline::{ledger::Leaves, status},
    ports::ClusterError,
};
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::{
    OfKind,
    claims::Claims,
    record_status::{with_status_as_it_is, write_status},
    waits,
};
use crate::{
    controller::{
        Shared,
        about::About,
        driver::Driver,
        predicate,
        record::{has_finalizer, mark_where, set_finalizer},
        wake::{PERIODIC, Wake},
    },
    planes::Plane,
};

/// How long a new object may be without a status while its deployment does not answer.
const FIRST_STATUS: Duration = Duration::from_secs(1);

/// Compares an object with its deployment and does what is decided. An object that changed in Coder after it was read is
/// compared once more.
pub(super) async fn compare_and_apply<K: Kind>(
    object: &mut Object<K>,
    plane: &Plane,
    wake: &Wake,
    driver: &Driver<OfKind<K>>,
) -> Result<(Option<Assessment>, Report), ClusterError> {
    let claims = Claims::new::<K>(&object.manifest, Some(plane.deployment()), driver);
    if let Some(kept) = claims.kept_by_name() {
        return Ok((None, kept));
    }
    let intent = intent(&object.manifest).cloned();
    let (coder, assessment) = compare(object, plane, wake, driver).await?;
    let done = attempt(object, assessment, &coder, &claims, driver).await?;
    if !done.1.outcome.is_stale() {
        return Ok(done);
    }
    // An intent of this very reconcile had no effect: the object that has the name is not ours.
    if let Some(status) = object.manifest.status().cloned() {
        object.manifest.set_status(Status { creating: intent, ..status });
    }
    let coder = coder.anew();
    let assessment = object.assess(&coder, Door::Controller).await;
    attempt(object, assessment, &coder, &claims, driver).await
}

/// Compares on reads that are recent enough for what comes of it. A plan may be made from an older list, since every write
/// checks what it overwrites; a claim that no write is needed must rest on reads after its cause.
async fn compare<K: Kind>(
    object: &mut Object<K>,
    plane: &Plane,
    wake: &Wake,
    driver: &Driver<OfKind<K>>,
) -> Result<(Coder, Assessment), ClusterError> {
    let is_new = object.manifest.status().is_none_or(|it| it.id.is_none());
    let need = if is_new && !K::HAS_SECRETS { PERIODIC } else { wake.need() };
    let coder = plane.coder(need);
    let assessment = assess(object, &coder, &driver.shared).await?;
    let need = match needed::<K>(&object.manifest, &assessment, wake) {
        Some(need) if !coder.rests_on(need) => need,
        _ => return Ok((coder, assessment)),
    };
    let coder = plane.coder(need);
    let assessment = assess(object, &coder, &driver.shared).await?;
    Ok((coder, assessment))
}

/// How recent the reads have to be that a decision rests on; `None` where its writes have preconditions of their own.
fn needed<K: Kind>(manifest: &K::Manifest, assessment: &Assessment, wake: &Wake) -> Option<Freshness> {
    if is_to_apply(assessment) {
        return K::HAS_SECRETS.then(|| wake.need_to_write());
    }
    // What is equal is about to become ours: then it has to be equal now.
    let adopts = assessment.contact == Some(Contact::Foreign) && manifest.policy().mode() == Mode::Enforce;
    let was_ready = is_ready(manifest) && !adopts;
    let is_too_old = wake.is_too_old_for(was_ready, is_equal(assessment));
    Some(if is_too_old { wake.need_to_write() } else { wake.need() })
}

/// Compares once. A new object whose deployment does not answer soon gets its first status meanwhile.
async fn assess<K: Kind>(
    object: &mut Object<K>,
    coder: &Coder,
    shared: &Shared,
) -> Result<Assessment, ClusterError> {
    let manifest = object.manifest.clone();
    let Some(first) = first_status(&manifest) else {
        return Ok(object.assess(coder, Door::Controller).await);
    };
    let (assessment, written) = {
        let mut assessing = pin!(object.assess(coder, Door::Controller));
        tokio::select! {
            biased;
            assessment = &mut assessing => return Ok(assessment),
            () = sleep(FIRST_STATUS) => {
                let written = write_status(&manifest, first, &Map::new(), shared).await?;
                (assessing.await, written)
            }
        }
    };
    take_status(&mut object.manifest, &written);
    Ok(assessment)
}

/// Does what was decided.
async fn attempt<K: Kind>(
    object: &mut Object<K>,
    mut assessment: Assessment,
    coder: &Coder,
    claims: &Claims,
    driver: &Driver<OfKind<K>>,
) -> Result<(Option<Assessment>, Report), ClusterError> {
    let id = assessment.id.map(|it| it.to_string());
    if let Some(kept) = id.and_then(|id| claims.kept_by_id(&id)) {
        return Ok((None, kept));
    }
    if is_to_apply(&assessment) {
        if let Some(contended) = contended::<K>(object, &assessment, driver) {
            return Ok((Some(assessment), waits(contended)));
        }
        let needs_finalizer = object.ledger().needs_finalizer(Leaves::of(object.manifest.policy()));
        if needs_finalizer && !has_finalizer(&object.manifest, finalizer::FINALIZER) {
            let held = set_finalizer(&object.manifest, finalizer::FINALIZER, true, &driver.shared).await?;
            *object.manifest.meta_mut() = held.meta().clone();
        }
        begin(object, &assessment, &driver.shared).await?;
    }
    let report = object.carry_out(&assessment, coder).await;
    if K::HAS_SECRETS && is_to_apply(&assessment) {
        // It has written into the status itself, and knows more of itself by now.
        object.manifest = with_status_as_it_is(&object.manifest, &driver.shared).await?;
        assessment.aside = object.assess(coder, Door::Controller).await.aside;
    }
    if report.done > 0 {
        let mut done = assessment.plan.clone();
        done.steps.truncate(report.done);
        let (manifest, now) = (&object.manifest, Timestamp::now());
        driver.shared.memory.with(&About::of(manifest), |it| {
            it.mended.record(manifest.meta().generation, &done, now);
        });
    }
    Ok((Some(assessment), report))
}

/// Writes what has to stand in the status before the first write to a deployment: that there is one, and what is about to be
/// created. Should the answer to the creation be lost, the object that came of it is known to be ours.
async fn begin<K: Kind>(
    object: &mut Object<K>,
    assessment: &Assessment,
    shared: &Shared,
) -> Result<(), ClusterError> {
    let known = object.manifest.status().and_then(|it| it.approved.clone());
    let approved = object.approval(assessment);
    let intents = object.intents();
    let is_recorded = intents.is_empty()
        && (assessment.rest.is_none() || assessment.rest.as_ref() == intent(&object.manifest))
        && (approved.is_none() || approved == known);
    let written = match first_status(&object.manifest) {
        Some(first) => {
            let creating = assessment.rest.clone().or_else(|| first.creating.clone());
            let first = Status { creating, approved: approved.or(known), ..first };
            write_status(&object.manifest, first, &intents, shared).await?
        }
        None if is_recorded => return Ok(()),
        None => {
            let mut fields = Value::Object(intents);
            if let Some(rest) = &assessment.rest {
                fields["creating"] = json!(rest);
            }
            if let Some(approved) = approved {
                fields["approved"] = json!(approved);
            }
            let traces = |it: &K::Manifest| it.status().map(|it| (it.id.clone(), it.creating.clone()));
            let read = traces(&object.manifest);
            // What another operator has recorded since may be the object that is about to be created.
            mark_where(&object.manifest, &fields, shared, |now| traces(now) == read).await?
        }
    };
    take_status(&mut object.manifest, &written);
    Ok(())
}

/// The status of an object that has none yet.
pub(super) fn first_status<M: AppState>(manifest: &M) -> Option<Status> {
    status::begun(manifest.status(), manifest.meta().generation, Timestamp::now())
}

/// Takes over the status and the version of what was written. Everything else stays as it was assessed.
fn take_status<M: AppState>(manifest: &mut M, written: &M) {
    manifest.meta_mut().resource_version = written.resource_version();
    if let Some(status) = written.status() {
        manifest.set_status(status.clone());
    }
}

/// What was about to be created, by the status.
fn intent(manifest: &impl AppState) -> Option<&String> {
    manifest.status()?.creating.as_ref()
}

fn is_to_apply(assessment: &Assessment) -> bool {
    matches!(assessment.verdict, Verdict::Decided(Decision::Apply))
}

fn is_equal(assessment: &Assessment) -> bool {
    matches!(assessment.verdict, Verdict::Decided(Decision::Nothing))
}

/// Whether the status says `Ready=True`.
fn is_ready(manifest: &impl AppState) -> bool {
    let conditions = manifest.status().map_or(&[][..], |it| &it.conditions);
    predicate::is_ready(conditions)
}

/// Whether another writer keeps reverting what this plan would change.
fn contended<K: Kind>(
    object: &Object<K>,
    assessment: &Assessment,
    driver: &Driver<OfKind<K>>,
) -> Option<Blocked> {
    let (manifest, now) = (&object.manifest, Timestamp::now());
    driver.shared.memory.with(&About::of(manifest), |it| {
        it.mended.contended(manifest.meta().generation, &assessment.plan, now)
    })
}
