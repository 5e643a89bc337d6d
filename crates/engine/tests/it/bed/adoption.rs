//! The first contact with what exists already, for every registered kind and both doors.

use engine::{Contact, Decision, Door, Outcome, Refusal, Verdict};
use serde_json::Value;

use super::deployment::{Deployment, applied, drift, licensed, one_of_every_kind};
use crate::support::{assess, pass, subject};

/// The manifest of somebody who has never held the object.
fn stranger(held: &Value, policy: &str) -> Value {
    let mut manifest = held.clone();
    manifest.as_object_mut().unwrap().remove("status");
    manifest["spec"]["adoptionPolicy"] = policy.into();
    manifest
}

async fn decision(manifest: &Value, deployment: &Deployment, door: Door) -> Decision {
    let assessment = subject(manifest).assess(&deployment.coder(), door).await;
    assert_eq!(assessment.contact, Some(Contact::Foreign), "{}", manifest["kind"]);
    match assessment.verdict {
        Verdict::Decided(decision) => decision,
        Verdict::Stopped(outcome) => panic!("{}: {outcome:?}", manifest["kind"]),
    }
}

#[tokio::test]
async fn what_exists_is_taken_over_only_as_the_policy_says() {
    let (coderd, deployment) = licensed().await;
    let (controller, command_line) = (Door::Controller, Door::CommandLine);
    let (not_equal, not_ours) = (Decision::Refuse(Refusal::NotEqual), Decision::Refuse(Refusal::NotOurs));
    for (held, id) in one_of_every_kind(&deployment).await {
        let kind = &held["kind"];
        if kind == "CoderProvisionerKey" {
            // Nobody can take over a key whose value only its maker has; the record says who that is.
            continue;
        }
        let [if_equal, adopt, never] = ["IfEqual", "Adopt", "Never"].map(|it| stranger(&held, it));
        for door in [controller, command_line] {
            assert_eq!(decision(&if_equal, &deployment, door).await, Decision::Nothing, "{kind}");
            assert_eq!(decision(&adopt, &deployment, door).await, Decision::Nothing, "{kind}");
            assert_eq!(decision(&never, &deployment, door).await, not_ours, "{kind}");
        }
        let taken = pass(&if_equal, &deployment.coder()).await;
        assert!(matches!(taken.outcome, Outcome::Equal), "{kind}: {:?}", taken.outcome);
        assert_eq!(taken.id, Some(id), "{kind}");

        drift(&held, id, &coderd, &deployment).await;
        if assess(&adopt, &deployment.coder()).await.contact == Some(Contact::Absent) {
            // A switch that is off by default is back at it, which counts as absent.
            continue;
        }
        assert_eq!(decision(&if_equal, &deployment, controller).await, not_equal, "{kind}");
        assert_eq!(decision(&if_equal, &deployment, command_line).await, Decision::Apply, "{kind}");
        for door in [controller, command_line] {
            assert_eq!(decision(&adopt, &deployment, door).await, Decision::Apply, "{kind}");
            assert_eq!(decision(&never, &deployment, door).await, not_ours, "{kind}");
        }
        for refused in [&if_equal, &never] {
            let report = pass(refused, &deployment.coder()).await;
            assert!(matches!(report.outcome, Outcome::Refused(_)), "{kind}: {:?}", report.outcome);
            assert_eq!(report.id, None, "{kind}");
        }
        assert_eq!(deployment.writes(), Vec::<String>::new(), "{kind}");
        let (_, adopted) = applied(&adopt, &deployment).await;
        assert_eq!(adopted, id, "{kind}");
    }
}
