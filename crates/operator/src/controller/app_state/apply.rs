//! One object: compared with its deployment, and made equal to its manifest.

use std::time::Duration;

use api::{AppState, Mode, Reason, Status};
use engine::{
    Aside, Assessment, Blocked, Coder, Contact, Decision, Door, Freshness, Kind, Object, Outcome, Report,
    Trouble, Verdict,
    kinds::fingerprint,
    pipeline::{ledger::Leaves, status},
    ports::ClusterError,
};
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::{Compared, claims::Claims, record_status::write_status, waits};
use crate::{
    controller::{
        Shared,
        about::About,
        driver::{Driven, Driver},
        predicate,
        record::{has_finalizer, mark_where, set_finalizer},
        wake::{PERIODIC, Wake},
    },
    planes::Plane,
};

/// How long a new object may be without a status while its deployment does not answer.
const FIRST_STATUS: Duration = Duration::from_secs(1);

/// How often an object is assessed again after its steps in one reconcile.
const MOST_ROUNDS: usize = 4;

/// Compares an object with its deployment and does what is decided. An object that changed in Coder after it was read is
/// compared once more.
pub(super) async fn compare_and_apply<K: Kind, D: Driven<Manifest = K::Manifest>>(
    object: &mut Object<K>,
    plane: &Plane,
    wake: &Wake,
    driver: &Driver<D>,
) -> Result<Compared, ClusterError> {
    let claims = Claims::new::<K, D>(&object.manifest, Some(plane.deployment()), driver);
    if let Some(report) = claims.kept_by_name() {
        return Ok(Compared { report, ..Compared::default() });
    }
    let intent = intent(&object.manifest).cloned();
    let was_new = is_new::<K>(&object.manifest, wake);
    let (coder, assessment) = Box::pin(compare(object, plane, wake, driver)).await?;
    let claims = Some(&claims);
    let done = Box::pin(attempt(object, assessment, &coder, claims, driver)).await?;
    if done.report.outcome.is_stale() {
        // An intent of this very reconcile had no effect: the object that has the name is not ours.
        if let Some(status) = object.manifest.status().cloned() {
            object.manifest.set_status(Status { creating: intent, ..status });
        }
        let coder = coder.anew();
        let assessment = object.assess(&coder, Door::Controller).await;
        let again = Box::pin(attempt(object, assessment, &coder, claims, driver)).await?;
        return Ok(again.after(done));
    }
    if !K::LOOKS_AGAIN {
        return Ok(done);
    }
    let done = go_on(object, done, &coder, claims, driver).await?;
    let has_failed = matches!(done.report.outcome, Outcome::Failed(_));
    if was_new || has_failed || done.report.done == 0 || coder.rests_on(wake.need()) {
        return Ok(done);
    }
    // The steps rest on what they overwrite; what is reported after them has to rest on reads after the cause.
    let coder = D::coder(driver, plane, wake.need());
    let assessment = assess(object, &coder, &driver.shared).await?;
    let again = Box::pin(attempt(object, assessment, &coder, claims, driver)).await?;
    Ok(again.after(done))
}

/// Compares and applies a part of a control plane. No other manifest can claim it, and its reads are never shared.
pub(in crate::controller) async fn compare_and_apply_part<K: Kind, D: Driven<Manifest = K::Manifest>>(
    object: &mut Object<K>,
    coder: &Coder,
    driver: &Driver<D>,
) -> Result<Compared, ClusterError> {
    let assessment = assess(object, coder, &driver.shared).await?;
    let done = Box::pin(attempt(object, assessment, coder, None, driver)).await?;
    go_on(object, done, coder, None, driver).await
}

/// Assesses the object again after its steps, and carries out the next rounds.
async fn go_on<K: Kind, D: Driven<Manifest = K::Manifest>>(
    object: &mut Object<K>,
    mut done: Compared,
    coder: &Coder,
    claims: Option<&Claims>,
    driver: &Driver<D>,
) -> Result<Compared, ClusterError> {
    let mut steps_done = 0;
    for round in 0..MOST_ROUNDS {
        // Steps that were refused would be refused again.
        let has_failed = has_failed(&done.report) || !done.report.refused.is_empty();
        let retries = round == 0 && done.report.retry.is_some();
        if done.report.done == 0 && !retries && !(has_failed && done.has_written) {
            break;
        }
        let was_applied = done.assessment.as_ref().is_some_and(|it| was_applied(it, &done.report));
        object.put_off(done.report.retry.is_some(), was_applied);
        let assessment = Box::pin(object.assess(coder, Door::Controller)).await;
        steps_done += done.report.done;
        if has_failed {
            // What was done before that is known by now.
            if let Verdict::Stopped(unread @ Outcome::Failed(Trouble::Cluster(_))) = &assessment.verdict {
                done.report.outcome = unread.clone();
            }
            done.assessment = Some(assessment);
            done.report.done = 0;
            break;
        }
        let retry = done.report.retry;
        done = Box::pin(attempt(object, assessment, coder, claims, driver)).await?;
        done.report.retry = done.report.retry.or(retry);
    }
    if done.report.done > 0 && done.report.outcome.is_ready() {
        let message = "the steps are done; waiting for their effect".to_owned();
        done.report.outcome = Outcome::Blocked(Blocked { reason: Reason::Progressing, message });
    }
    done.report.done += steps_done;
    Ok(done)
}

/// Whether all steps of a plan are done, upkeep apart that has to be tried again.
fn was_applied(assessment: &Assessment, report: &Report) -> bool {
    let steps = &assessment.plan.steps;
    let upkeep = steps.iter().filter(|it| !it.needs_approval()).count();
    let undone = if report.retry.is_some() { upkeep } else { 0 };
    assessment.is_to_apply() && report.done + undone >= steps.len()
}

fn has_failed(report: &Report) -> bool {
    match &report.outcome {
        Outcome::Failed(_) => true,
        Outcome::Blocked(blocked) => blocked.reason != Reason::Progressing,
        _ => false,
    }
}

/// Compares on reads that are recent enough for what comes of it. A plan may be made from an older list, since every write
/// checks what it overwrites; a claim that no write is needed must rest on reads after its cause.
async fn compare<K: Kind, D: Driven<Manifest = K::Manifest>>(
    object: &mut Object<K>,
    plane: &Plane,
    wake: &Wake,
    driver: &Driver<D>,
) -> Result<(Coder, Assessment), ClusterError> {
    let is_new = is_new::<K>(&object.manifest, wake);
    let need = if is_new { PERIODIC } else { wake.need() };
    let coder = D::coder(driver, plane, need);
    let assessment = assess(object, &coder, &driver.shared).await?;
    let need = match needed::<K>(&object.manifest, &assessment, wake) {
        Some(need) if !coder.rests_on(need) => need,
        _ => return Ok((coder, assessment)),
    };
    let coder = D::coder(driver, plane, need);
    let assessment = assess(object, &coder, &driver.shared).await?;
    Ok((coder, assessment))
}

/// Whether nothing of the object is in the deployment yet, so that an answer to its creation, which comes after the cause of the
/// reconcile, says the same as lists do.
fn is_new<K: Kind>(manifest: &K::Manifest, wake: &Wake) -> bool {
    if K::OWNS_OBJECTS {
        return !wake.is_doubtful() && K::is_unrecorded(manifest);
    }
    !K::HAS_SECRETS && manifest.status().is_none_or(|it| it.id.is_none())
}

/// How recent the reads have to be that a decision rests on; `None` where its writes have preconditions of their own.
fn needed<K: Kind>(manifest: &K::Manifest, assessment: &Assessment, wake: &Wake) -> Option<Freshness> {
    if K::OWNS_OBJECTS {
        if assessment.is_to_apply() || matches!(assessment.verdict, Verdict::Stopped(Outcome::Failed(_))) {
            return None;
        }
        // The reconciles before have read what their causes need, and this one rests on reads that are no older.
        let is_too_old = wake.is_doubtful() && wake.is_too_old_for(is_ready(manifest), is_equal(assessment));
        return Some(if is_too_old { wake.need_to_write() } else { wake.need() });
    }
    if assessment.is_to_apply() || !assessment.carried_out().is_empty() {
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
    let assessing = Box::pin(object.assess(coder, Door::Controller));
    let (assessment, written) = with_first_status::<K, _>(&manifest, assessing, shared).await?;
    if let Some(written) = written {
        take_status(&mut object.manifest, &written);
    }
    Ok(assessment)
}

/// Waits for what a deployment answers. A new manifest gets its first status meanwhile, and is returned with it.
pub(in crate::controller) async fn with_first_status<K: Kind, T>(
    manifest: &K::Manifest,
    mut answer: impl Future<Output = T> + Send + Unpin,
    shared: &Shared,
) -> Result<(T, Option<K::Manifest>), ClusterError> {
    let Some((first, aside)) = first_status::<K>(manifest) else { return Ok((answer.await, None)) };
    tokio::select! {
        biased;
        answer = &mut answer => Ok((answer, None)),
        () = sleep(FIRST_STATUS) => {
            let written = write_status(manifest, first, &aside, shared).await;
            // Also where the write failed: the answer may have side effects, and must not be cancelled.
            let answer = answer.await;
            Ok((answer, Some(written?)))
        }
    }
}

/// Does what was decided.
async fn attempt<K: Kind, D: Driven<Manifest = K::Manifest>>(
    object: &mut Object<K>,
    mut assessment: Assessment,
    coder: &Coder,
    claims: Option<&Claims>,
    driver: &Driver<D>,
) -> Result<Compared, ClusterError> {
    let id = assessment.id.map(|it| it.to_string());
    if let Some(report) = claims.zip(id).and_then(|(claims, id)| claims.kept_by_id::<K, D>(&id, driver)) {
        return Ok(Compared { report, ..Compared::default() });
    }
    // What stands in a status or a pod must not depend on a key that a restart loses.
    if let Err(blocked) = fingerprint::store_key(coder).await {
        // The plan and the kind-specific status may have fingerprints of a key that is lost.
        let stopped = Assessment::stopped(&K::target(&object.manifest), Outcome::Blocked(blocked.clone()));
        return Ok(Compared { report: waits(blocked), ..Compared::of(stopped) });
    }
    let mut has_written = false;
    if assessment.is_to_apply() {
        let contended = contended::<K, D>(object, &assessment, driver);
        // Contention must not delay keys, licences and access.
        if let Some(contended) = contended.filter(|_| !K::LOOKS_AGAIN) {
            return Ok(Compared { report: waits(contended), ..Compared::of(assessment) });
        }
        let needs_finalizer = object.ledger().needs_finalizer(Leaves::of(&object.manifest.policy()));
        if needs_finalizer && !has_finalizer(&object.manifest, D::FINALIZER) {
            let held = set_finalizer(&object.manifest, D::FINALIZER, true, &driver.shared).await?;
            *object.manifest.meta_mut() = held.meta().clone();
        }
        has_written = begin(object, &assessment, &driver.shared).await?;
    }
    let shared = &driver.shared;
    // What an earlier reconcile has left is old by now.
    drop(written(&object.manifest, shared));
    let mut report = Box::pin(object.carry_out(&assessment, coder)).await;
    if let Some(written) = written(&object.manifest, shared) {
        has_written = true;
        take_status(&mut object.manifest, &written);
    }
    let mut done = assessment.carried_out().clone();
    done.steps.truncate(report.done);
    shared.metrics.steps(&K::Manifest::kind(&()), &done.steps);
    if report.done > 0 && !K::LOOKS_AGAIN {
        let (manifest, now) = (&object.manifest, Timestamp::now());
        driver.shared.memory.with(&About::of(manifest), |it| {
            it.mended.record(manifest.meta().generation, &done, now);
        });
    }
    if K::HAS_SECRETS && !K::OWNS_OBJECTS && (assessment.is_to_apply() || report.done > 0) {
        // It knows more of itself by now.
        let again = object.assess(coder, Door::Controller).await;
        match (&assessment.verdict, &again.verdict) {
            (Verdict::Decided(Decision::Apply), Verdict::Stopped(waits @ Outcome::Blocked(_)))
                if matches!(report.outcome, Outcome::Applied) =>
            {
                report.outcome = waits.clone();
                assessment = again;
            }
            (Verdict::Decided(Decision::Apply), _) => assessment.aside = again.aside,
            // The rest waits for the same as before.
            (Verdict::Decided(before), Verdict::Decided(now)) if before == now => assessment = again,
            _ => {
                let message = "the upkeep is done; reconciling again".to_owned();
                report.outcome = Outcome::Blocked(Blocked { reason: Reason::Progressing, message });
            }
        }
    }
    Ok(Compared { report, has_written, steps: done.steps, ..Compared::of(assessment) })
}

/// Writes what has to stand in the status before the first write to a deployment: that there is one, and what is about to be
/// created. Should the answer to the creation be lost, the object that came of it is known to be ours. Returns whether something
/// was written.
async fn begin<K: Kind>(
    object: &mut Object<K>,
    assessment: &Assessment,
    shared: &Shared,
) -> Result<bool, ClusterError> {
    let known = object.manifest.status().and_then(|it| it.approved.clone());
    let approved = object.approval();
    let intents = object.intents();
    let is_recorded = intents.is_empty()
        && (assessment.rest.is_none() || assessment.rest.as_ref() == intent(&object.manifest))
        && (approved.is_none() || approved == known);
    let written = match first_status::<K>(&object.manifest) {
        Some((first, mut aside)) => {
            let creating = assessment.rest.clone().or_else(|| first.creating.clone());
            let first = Status { creating, approved: approved.or(known), ..first };
            aside.extend(intents);
            write_status(&object.manifest, first, &aside, shared).await?
        }
        None if is_recorded => return Ok(false),
        None => {
            let mut fields = intents;
            if let Some(rest) = &assessment.rest {
                fields.insert("creating".to_owned(), json!(rest));
            }
            if let Some(approved) = approved {
                fields.insert("approved".to_owned(), json!(approved));
            }
            let status_of = |it: &K::Manifest| serde_json::to_value(it).unwrap_or_default()["status"].take();
            let known = status_of(&object.manifest);
            for (field, value) in &mut fields {
                replace(&known[field], value);
            }
            let traces = |it: &K::Manifest| {
                let status = status_of(it);
                let written = fields.keys().filter(|it| *it != "approved");
                let written: Vec<Value> = written.map(|field| status[field].clone()).collect();
                (it.status().map(|it| (it.id.clone(), it.creating.clone())), written)
            };
            let read = traces(&object.manifest);
            // What another operator has recorded since may be the object that is about to be created.
            let fields = Value::Object(fields.clone());
            mark_where(&object.manifest, &fields, shared, |now| traces(now) == read).await?
        }
    };
    take_status(&mut object.manifest, &written);
    Ok(true)
}

/// Completes a value, so that a merge leaves nothing of the value before it.
fn replace(before: &Value, next: &mut Value) {
    let (Value::Object(before), Value::Object(next)) = (before, next) else { return };
    for (field, value) in before {
        replace(value, next.entry(field.clone()).or_insert(Value::Null));
    }
}

/// Writes the first status of a manifest that has none, where that is possible, and returns the manifest with it.
pub(in crate::controller) async fn write_first_status<K: Kind>(
    manifest: &K::Manifest,
    shared: &Shared,
) -> Option<K::Manifest> {
    let (first, aside) = first_status::<K>(manifest)?;
    write_status(manifest, first, &aside, shared).await.ok()
}

/// The status of an object that has none yet, and the fields of it that only the kind has.
pub(super) fn first_status<K: Kind>(manifest: &K::Manifest) -> Option<(Status, Map<String, Value>)> {
    let message = "not compared with the deployment yet".to_owned();
    let outcome = Outcome::Blocked(Blocked { reason: Reason::Progressing, message });
    let Aside { status: fields, facts, .. } = K::conclude(manifest, None, None, &outcome);
    let generation = manifest.meta().generation;
    let first = status::begun(manifest.status(), generation, &facts, Timestamp::now())?;
    Some((first, fields))
}

/// Takes over the status and the version of what was written. Everything else stays as it was assessed. The version of another
/// generation is not taken over: then nothing more can be written about this one, and the next reconcile is about that one.
pub(in crate::controller) fn take_status<M: AppState>(manifest: &mut M, written: &M) {
    if written.meta().generation == manifest.meta().generation {
        manifest.meta_mut().resource_version = written.resource_version();
    }
    manifest.take_status(written);
}

/// The manifest with the status that steps have written since it was last asked for. `None` where they have not.
fn written<M: AppState>(manifest: &M, shared: &Shared) -> Option<M> {
    let (namespace, name) = (manifest.namespace().unwrap_or_default(), manifest.name_any());
    let written = shared.keys.take_object(&M::kind(&()), &namespace, &name)?;
    // Another object of the same name is none of ours: nothing of this is written to it.
    if written.metadata().uid != manifest.uid() {
        return None;
    }
    serde_json::from_value(written.object).ok()
}

/// What was about to be created, by the status.
fn intent(manifest: &impl AppState) -> Option<&String> {
    manifest.status()?.creating.as_ref()
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
fn contended<K: Kind, D: Driven<Manifest = K::Manifest>>(
    object: &Object<K>,
    assessment: &Assessment,
    driver: &Driver<D>,
) -> Option<Blocked> {
    let (manifest, now) = (&object.manifest, Timestamp::now());
    driver.shared.memory.with(&About::of(manifest), |it| {
        it.mended.contended(manifest.meta().generation, &assessment.plan, now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_of_another_generation_is_not_taken_over() {
        let group = |generation: i64, version: &str| -> api::CoderGroup {
            serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup",
                "metadata": {"name": "a", "generation": generation, "resourceVersion": version},
                "spec": {"controlPlaneRef": {"name": "main"}, "name": "a"}, "status": {"id": version}}))
            .unwrap()
        };
        for (generation, version) in [(1, "2"), (2, "1")] {
            let mut reconciled = group(1, "1");
            take_status(&mut reconciled, &group(generation, "2"));
            assert_eq!(reconciled.resource_version().as_deref(), Some(version));
            assert_eq!(reconciled.status().unwrap().id.as_deref(), Some("2"));
        }
    }

    #[test]
    fn merge_of_an_intent_leaves_nothing_of_the_record_before() {
        let before =
            json!({"version": "a", "result": "passed", "deleted": true, "of": {"id": 1, "name": "x"}});
        let mut next = json!({"version": "b", "of": {"name": "y"}});
        replace(&before, &mut next);
        let expected =
            json!({"version": "b", "result": null, "deleted": null, "of": {"id": null, "name": "y"}});
        assert_eq!(next, expected);
        let mut first = json!({"version": "b"});
        replace(&Value::Null, &mut first);
        assert_eq!(first, json!({"version": "b"}));
    }
}
