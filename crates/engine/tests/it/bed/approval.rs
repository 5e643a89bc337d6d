//! Plans that a person approves by their hash, for every registered kind.

use engine::{Outcome, Refusal};
use serde_json::Value;
use uuid::Uuid;

use super::deployment::{Deployment, applied, licensed};
use crate::{
    examples::{all, by_hand, edit},
    support::{assess, holding, pass},
};

/// The manifest with the hash of the plan that may be applied.
fn approving(manifest: &Value, hash: &str) -> Value {
    let mut manifest = manifest.clone();
    manifest["metadata"]["annotations"] = serde_json::json!({(api::annotation::APPROVED_PLAN): hash});
    manifest
}

/// What is not approved is not written; the hash of its plan.
async fn is_refused(manifest: &Value, deployment: &Deployment) -> String {
    deployment.asked();
    let report = pass(manifest, &deployment.coder()).await;
    let kind = &manifest["kind"];
    assert!(matches!(report.outcome, Outcome::Refused(Refusal::NotApproved)), "{kind}: {:?}", report.outcome);
    assert_eq!(deployment.writes(), Vec::<String>::new(), "{kind}");
    assess(manifest, &deployment.coder()).await.plan.hash
}

#[tokio::test]
async fn only_the_very_plan_that_was_approved_is_applied() {
    let (coderd, deployment) = licensed().await;
    for mut manifest in all() {
        let kind = manifest["kind"].as_str().unwrap().to_owned();
        let (field, value) = edit(&kind);
        let declared = manifest["spec"][&field].clone();
        manifest["spec"]["approval"] = "Manual".into();
        let first = is_refused(&manifest, &deployment).await;
        assert_eq!(is_refused(&manifest, &deployment).await, first, "the same plan has the same hash");

        // The manifest has changed since.
        manifest["spec"][&field] = value;
        if assess(&manifest, &deployment.coder()).await.plan.is_empty() {
            // A switch that is off by default has no other plan.
            continue;
        }
        let second = is_refused(&approving(&manifest, &first), &deployment).await;
        assert_ne!(second, first);
        let (_, id): (_, Uuid) = applied(&approving(&manifest, &second), &deployment).await;

        let Some(hand) = by_hand(&kind) else { continue };
        // What was made is held; the way back is a plan of its own, and the approval of another one is none.
        manifest["spec"][&field] = declared.clone();
        let held = holding(&manifest, id);
        let third = is_refused(&approving(&held, &second), &deployment).await;
        applied(&approving(&held, &third), &deployment).await;

        // The coder has changed since, and by chance to what was approved already: approved is approved.
        hand.change(&coderd.owner, &id.to_string()).await;
        applied(&approving(&held, &third), &deployment).await;
    }
}
