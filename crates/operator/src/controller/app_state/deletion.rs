//! Lets an object go, and takes the remote one away where that is the policy.

use std::time::Instant;

use api::{AppState as _, DeletionPolicy, Mode, Reason, annotation, finalizer};
use engine::{Blocked, Freshness, Kind, Object, Outcome, Report, pipeline::status};
use kube::{Resource as _, runtime::controller::Action};

use super::{
    Context, announce, claims::Claims, ended, next_status, plane_of, record_status::write_status, tell,
};
use crate::controller::{
    about::About,
    control_plane::departure::{DEADLINE, leaving},
    letting_go::{Obstacle, is_terminating, plane},
    record::{is_held, leave_behind, release},
};

pub(super) async fn delete<K: Kind>(
    manifest: K::Manifest,
    context: &Context<K>,
) -> Result<Action, kube::Error> {
    let (shared, started, about) = (&context.shared, Instant::now(), About::of(&manifest));
    if !is_held(&manifest, finalizer::FINALIZER, shared) {
        shared.passes.forget(&about);
        return Ok(Action::await_change());
    }
    let (age, is_forced) = leaving(&manifest);
    let mut object = Object::<K>::new(manifest);
    let taken = take_away(&mut object, context).await;
    let remains = match object.left() {
        Some(left) => left,
        None => K::remains(&object.manifest, shared.key_store()).await,
    };
    let left = match taken {
        Ok(outcome) => {
            shared.metrics.reconciled(about.kind.clone(), outcome.reason(), started.elapsed());
            None
        }
        Err(Obstacle::Gone(why)) => Some(why),
        Err(Obstacle::NotNow(outcome)) => {
            let words = status::message(&outcome, &engine::Plan::<()>::empty().view(""));
            // What does not answer is waited for, for a while, unless there is nowhere to come back to.
            if !(is_forced || age > DEADLINE || is_terminating(&about.namespace, shared).await) {
                let message = format!("{remains} is not taken away yet: {words}");
                let plane = plane_of::<K>(&object.manifest).1;
                let waiting = Blocked {
                    reason: outcome.reason(),
                    message: not_yet(&remains, &plane, &outcome, &words),
                };
                let report = Report { outcome: Outcome::Blocked(waiting), id: None, done: 0 };
                let next = next_status(&object, None, None, &report);
                write_status(&object.manifest, next, &serde_json::Map::new(), shared).await?;
                ended(&about, &outcome, &message, started.elapsed(), shared);
                return Ok(Action::requeue(shared.memory.after_failure(&about, None)));
            }
            Some(Blocked { reason: outcome.reason(), message: words })
        }
    };
    if let Some(Blocked { reason, message }) = left {
        shared.metrics.reconciled(about.kind.clone(), reason, started.elapsed());
        leave_behind(&object.manifest, reason, &format!("{remains} is left behind: {message}"), shared).await;
    }
    release(&object.manifest, finalizer::FINALIZER, shared).await?;
    // The control plane may be waiting for just this.
    shared.planes.release(&plane_of::<K>(&object.manifest));
    Ok(Action::await_change())
}

/// Why a deletion waits, for the status: which remote objects are left, what Coder's answer means, and what to do.
fn not_yet(remains: &str, plane: &str, outcome: &Outcome, words: &str) -> String {
    let why = match outcome.reason() {
        Reason::Unauthorized => {
            format!("Coder rejects the credentials of control plane {plane}; correct them")
        }
        Reason::Forbidden => format!(
            "the account of control plane {plane} may not delete this in Coder; give the account the rights that it needs"
        ),
        Reason::Unreachable => format!("the Coder of control plane {plane} does not answer"),
        Reason::RateLimited => "Coder limits the rate of requests".to_owned(),
        _ => words.to_owned(),
    };
    let minutes = DEADLINE.as_secs() / 60;
    format!(
        "not deleted in Coder yet: {remains}: {why}. The deletion is retried for {minutes} minutes; set the annotation {} to \
         \"true\" to give up at once and leave that in Coder",
        annotation::FORCE_FINALIZE
    )
}

/// Takes the remote object away, where there is one of ours and the policy says so.
async fn take_away<K: Kind>(object: &mut Object<K>, context: &Context<K>) -> Result<Outcome, Obstacle> {
    let (manifest, shared) = (&object.manifest, &context.shared);
    let (policy, status) = (manifest.policy(), manifest.status().cloned().unwrap_or_default());
    let deletes = policy.deletion_policy() == DeletionPolicy::Delete;
    if !deletes && !K::owes(manifest) {
        return Ok(Outcome::Equal);
    }
    if policy.mode() != Mode::Enforce {
        if !K::owes(manifest) {
            return Ok(Outcome::Equal);
        }
        let message = "mode is Observe, which changes nothing in Coder: delete it there".to_owned();
        return Err(Obstacle::Gone(Blocked { reason: Reason::Observed, message }));
    }
    match status.id {
        Some(id) if deletes && Claims::new::<K>(manifest, None, context).is_left_to_another(&id) => {
            return Ok(Outcome::Equal);
        }
        Some(_) => {}
        None if K::has_traces(manifest) => {}
        // There is nothing to take away, so there is nobody to wait for.
        None if status.creating.is_none() => return Ok(Outcome::Equal),
        None => {
            let message = "it was being made, and nobody knows what came of that: look for it".to_owned();
            return Err(Obstacle::Gone(Blocked { reason: Reason::Deleting, message }));
        }
    }
    let name = plane_of::<K>(manifest);
    let plane = plane(&name, shared).await?;
    let coder = plane.coder(Freshness::BegunAfter(tokio::time::Instant::now()));
    let assessment = object.assess_deletion(&coder).await;
    let report = object.carry_out(&assessment, &coder).await;
    shared.metrics.steps(&K::Manifest::kind(&()), &assessment.plan, report.done);
    announce::<K>(&object.manifest, &report, shared);
    tell(object, Some(&assessment), &report, shared).await;
    if report.outcome.is_ready() {
        return Ok(report.outcome);
    }
    if report.outcome.reason() == Reason::Unauthorized {
        // What is declared may have other credentials by now.
        shared.planes.drop_client(&name);
    }
    Err(Obstacle::NotNow(report.outcome))
}
