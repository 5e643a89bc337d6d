//! The deletion of an app-state object: the remote one goes with it where that is the policy.

use api::{AppState as _, Mode, Reason, annotation};
use engine::{
    Blocked, Freshness, Kind, Object, Outcome,
    pipeline::{
        cleanup::{Cleanup, DEADLINE},
        ledger::Entry,
        status,
    },
};
use kube::Resource as _;

use super::{OfKind, announce, claims::Claims, plane_of, tell};
use crate::controller::{
    driver::{
        Driver,
        deletion::{Deletion, Taken, Waiting},
    },
    reach::{Obstacle, for_deletion},
};

/// Takes the remote object away, and names it where that is not possible in time.
pub(super) async fn take_back<K: Kind>(
    driver: &Driver<OfKind<K>>,
    manifest: &K::Manifest,
    deletion: &Deletion<'_>,
    cleanup: &mut Cleanup,
) -> Taken {
    let mut object = Object::<K>::new(manifest.clone());
    let Err(obstacle) = take_away(&mut object, driver).await else { return Taken::Back };
    let owed = object.owed(driver.shared.key_store()).await;
    // Other records than the status may say that nothing is ours.
    let Some(remains) = owed.in_words() else { return Taken::Back };
    match obstacle {
        Obstacle::Gone(why) => cleanup.fail(remains, why),
        Obstacle::NotNow(outcome) => {
            let message = status::message(&outcome, &engine::PlanView::empty());
            let reason = outcome.reason();
            // What does not answer is waited for, for a while, unless there is nowhere to come back to.
            if deletion.waits(DEADLINE).await {
                let plane = plane_of::<K>(manifest).1;
                let message = not_yet(&remains, &plane, &outcome, &message);
                return Taken::Waits(Waiting::failed(Blocked { reason, message }));
            }
            cleanup.fail(remains, Blocked { reason, message });
        }
    }
    Taken::Back
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
async fn take_away<K: Kind>(object: &mut Object<K>, driver: &Driver<OfKind<K>>) -> Result<Outcome, Obstacle> {
    if is_left_to_another(&object.manifest, driver) {
        object.leave_to_another();
    }
    let (manifest, shared) = (&object.manifest, &driver.shared);
    let owed = K::ledger(manifest).owed(object.leaves());
    if owed.is_empty() {
        return Ok(Outcome::Equal);
    }
    if manifest.policy().mode() != Mode::Enforce {
        let message = "mode is Observe, which changes nothing in Coder: delete it there".to_owned();
        return Err(Obstacle::Gone(Blocked { reason: Reason::Observed, message }));
    }
    if owed.entries().iter().all(|it| matches!(it, Entry::Creating(_))) {
        let message =
            "its creation was requested, and the answer was lost: look for it in Coder, and delete it there"
                .to_owned();
        return Err(Obstacle::Gone(Blocked { reason: Reason::Deleting, message }));
    }
    let name = plane_of::<K>(manifest);
    let plane = for_deletion(&name, shared).await?;
    let coder = plane.coder(Freshness::BegunAfter(tokio::time::Instant::now()));
    let assessment = object.assess_deletion(&coder).await;
    let report = object.carry_out(&assessment, &coder).await;
    let steps = &assessment.plan.steps[..report.done.min(assessment.plan.steps.len())];
    shared.metrics.steps(&K::Manifest::kind(&()), steps);
    announce::<K>(&object.manifest, steps, &report, shared);
    tell(object, steps, shared).await;
    if report.outcome.is_ready() {
        return Ok(report.outcome);
    }
    if report.outcome.reason() == Reason::Unauthorized {
        // What is declared may have other credentials by now.
        shared.planes.drop_client(&name);
    }
    Err(Obstacle::NotNow(report.outcome))
}

/// Whether the remote object stays because another manifest holds it too.
fn is_left_to_another<K: Kind>(manifest: &K::Manifest, driver: &Driver<OfKind<K>>) -> bool {
    let ledger = K::ledger(manifest);
    let held = ledger.entries().iter().find_map(|it| match it {
        Entry::Remote { id, .. } => Some(id),
        _ => None,
    });
    held.is_some_and(|id| {
        Claims::new::<K, OfKind<K>>(manifest, None, driver).is_left_to_another::<K, _>(id, driver)
    })
}
