//! Writes: each checks what it overwrites, and none makes anybody read a list again.

use std::sync::Arc;

use engine::{Coder, Door, Outcome};
use serde_json::{Value, json};
use sim::state::State;

use crate::{
    memory,
    support::{holding, pass, subject},
    wire::Wire,
};

const ORGANIZATION: &str = "00000000-0000-4000-8000-000000000001";
const GROUP: &str = "00000000-0000-4000-8000-000000000002";

fn manifest(kind: &str, name: &str, spec: &Value) -> Value {
    let mut manifest =
        json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    manifest["spec"]["controlPlaneRef"] = json!({"name": "main"});
    manifest
}

fn group(name: &str, quota: u32) -> Value {
    manifest("CoderGroup", name, &json!({"organization": "alpha", "quotaAllowance": quota}))
}

fn organization(name: &str, description: &str) -> Value {
    manifest("CoderOrganization", name, &json!({"description": description}))
}

/// A deployment with an organization and, where a quota is named, a group in it.
fn deployment(quota: Option<u32>) -> (Arc<Wire>, Coder) {
    let alpha = json!({"name": "alpha", "display_name": "alpha", "description": "as found"});
    let mut state = json!({"organizations": {ORGANIZATION: alpha}});
    if let Some(quota) = quota {
        let group = json!({"organization_id": ORGANIZATION, "name": "developers", "quota_allowance": quota});
        state["groups"] = json!({GROUP: group});
    }
    let wire = Wire::new(memory::described(&state));
    let coder = wire.coder();
    (wire, coder)
}

/// The requests for so many new groups.
async fn requests_to_create(count: u32) -> usize {
    let (wire, coder) = deployment(None);
    for number in 0..count {
        let report = pass(&group(&format!("group-{number}"), 1), &coder).await;
        assert!(matches!(report.outcome, Outcome::Applied), "{report:?}");
    }
    let asked = wire.asked();
    assert_eq!(
        asked.iter().filter(|it| it.starts_with("GET") && it.ends_with("/groups")).count(),
        1,
        "{asked:?}"
    );
    asked.len()
}

#[tokio::test]
async fn creation_costs_one_request_an_object() {
    let (few, many) = (requests_to_create(20).await, requests_to_create(40).await);
    assert_eq!(many - few, 20);
}

#[tokio::test]
async fn object_is_equal_in_the_shared_list_after_its_own_write() {
    let (wire, coder) = deployment(Some(3));
    let declared = holding(&group("developers", 20), GROUP);
    let report = pass(&declared, &coder).await;
    assert!(matches!(report.outcome, Outcome::Applied), "{report:?}");
    wire.asked();
    let report = pass(&declared, &coder).await;
    assert!(matches!(report.outcome, Outcome::Equal), "{report:?}");
    assert_eq!(wire.asked(), [""; 0]);
}

/// Compares, lets somebody change the deployment, and then carries out what was decided. Nothing of that is written.
async fn overtaken(manifest: &Value, quota: Option<u32>, change: impl FnOnce(&mut State)) {
    let (wire, coder) = deployment(quota);
    let mut subject = subject(manifest);
    let assessment = subject.assess(&coder, Door::Controller).await;
    assert!(!assessment.plan.is_empty(), "{assessment:?}");
    wire.deployment.edit(change);
    let report = subject.carry_out(&assessment, &coder).await;
    assert!(report.outcome.is_stale() && report.done == 0, "{manifest}: {report:?}");
    let again = pass(manifest, &coder.anew()).await;
    assert!(!again.outcome.is_stale(), "{again:?}: {:#?}", wire.asked());
}

#[tokio::test]
async fn update_is_not_written_over_a_change_that_the_plan_does_not_know() {
    let held = holding(&group("developers", 20), GROUP);
    let id = GROUP.parse().unwrap();
    let change: [fn(&mut sim::state::Group); 2] =
        [|it| it.quota_allowance = 7, |it| it.name = "renamed".to_owned()];
    for change in change {
        overtaken(&held, Some(3), |it| change(it.groups.get_mut(&id).unwrap())).await;
    }
    overtaken(&held, Some(3), |it| drop(it.groups.remove(&id))).await;
    let held = holding(&organization("alpha", "declared"), ORGANIZATION);
    let home = ORGANIZATION.parse().unwrap();
    overtaken(&held, None, |it| {
        "by hand".clone_into(&mut it.organizations.get_mut(&home).unwrap().description);
    })
    .await;
}

#[tokio::test]
async fn creation_of_a_name_that_was_taken_meanwhile_is_compared_again() {
    let (taken, _) = deployment(Some(3));
    overtaken(&group("developers", 20), None, |it| *it = taken.deployment.state()).await;
    overtaken(&organization("bravo", "declared"), None, |it| {
        let mut other = it.organizations[&ORGANIZATION.parse().unwrap()].clone();
        (other.id, other.name) = (GROUP.parse().unwrap(), "bravo".to_owned());
        it.organizations.insert(other.id, other);
    })
    .await;
}
