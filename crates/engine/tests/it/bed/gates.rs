//! Without a licence a kind waits, asks for nothing, and goes on by itself when one arrives.

use engine::{Outcome, Verdict, kinds};

use serde_json::Value;

use super::deployment::{Deployment, licensable, license, one_of_every_kind};
use crate::{
    examples,
    support::{assess, pass},
};

/// The kinds that need no licence.
const WITHOUT_LICENCE: [&str; 4] = ["CoderAIModel", "CoderAIProvider", "CoderTemplate", "CoderUser"];

#[tokio::test]
async fn without_a_licence_every_kind_waits_and_nothing_but_the_gate_is_asked() {
    let coder = testbed::shared().unwrap().coder.as_ref().unwrap();
    let deployment = Deployment::at(&coder.url, &coder.token);
    for kind in kinds::names().into_iter().filter(|it| !WITHOUT_LICENCE.contains(&it.as_str())) {
        let report = pass(&examples::of(&kind), &deployment.coder()).await;
        match &report.outcome {
            Outcome::Blocked(waiting) => assert_eq!(waiting.reason, api::Reason::NotEntitled, "{kind}"),
            other => panic!("{kind}: {other:?}"),
        }
        let mut asked = deployment.asked();
        asked.sort();
        assert_eq!(asked, ["GET /api/v2/buildinfo", "GET /api/v2/entitlements"], "{kind}");
    }
}

#[tokio::test]
async fn when_the_licence_arrives_every_kind_goes_on() {
    let (coderd, deployment) = licensable().await;
    let coder = deployment.coder();
    let is_gated = |it: &Value| !WITHOUT_LICENCE.contains(&it["kind"].as_str().unwrap());
    for manifest in examples::all().into_iter().filter(is_gated) {
        let assessment = assess(&manifest, &coder).await;
        assert!(
            matches!(assessment.verdict, Verdict::Stopped(Outcome::Blocked(_))),
            "{}: {:?}",
            manifest["kind"],
            assessment.verdict
        );
    }
    license(&coderd).await;
    one_of_every_kind(&deployment).await;
}
