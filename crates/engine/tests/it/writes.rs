//! Writes: each checks what it overwrites, and none makes anybody read a list again.

use engine::{Coder, Door, Outcome, coder::Promises};
use serde_json::{Value, json};

use crate::{
    sheet::Sheet,
    support::{holding, pass, subject},
};

const ORGANIZATION: &str = "00000000-0000-4000-8000-000000000001";
const GROUP: &str = "00000000-0000-4000-8000-000000000002";

fn group(name: &str, quota: u32) -> Value {
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup", "metadata": {"name": name},
        "spec": {"controlPlaneRef": {"name": "main"}, "quotaAllowance": quota}})
}

fn organization(name: &str, description: &str) -> Value {
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderOrganization", "metadata": {"name": name},
        "spec": {"controlPlaneRef": {"name": "main"}, "description": description}})
}

fn remote_organization(description: &str) -> Value {
    json!([{"id": ORGANIZATION, "name": "alpha", "display_name": "alpha", "description": description, "icon": "",
        "is_default": true}])
}

fn remote_group(name: &str, quota: u32) -> Value {
    json!({"id": GROUP, "organization_id": ORGANIZATION, "name": name, "display_name": "", "avatar_url": "",
        "quota_allowance": quota, "source": "user", "members": [], "total_member_count": 0})
}

fn deployment(groups: &[Value]) -> (std::sync::Arc<Sheet>, Coder) {
    let state = json!({"organizations": remote_organization("as found"), "groups": {ORGANIZATION: groups}});
    let sheet = Sheet::new(&state);
    let coder = Coder::new(sheet.client(), Promises::default());
    (sheet, coder)
}

/// The requests for so many new groups.
async fn requests_to_create(count: u32) -> usize {
    let (sheet, coder) = deployment(&[]);
    for number in 0..count {
        let report = pass(&group(&format!("group-{number}"), 1), &coder).await;
        assert!(matches!(report.outcome, Outcome::Applied), "{report:?}");
    }
    let asked = sheet.asked();
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
    let (sheet, coder) = deployment(&[remote_group("developers", 3)]);
    let declared = holding(&group("developers", 20), GROUP);
    let report = pass(&declared, &coder).await;
    assert!(matches!(report.outcome, Outcome::Applied), "{report:?}");
    let since = sheet.asked().len();
    let report = pass(&declared, &coder).await;
    assert!(matches!(report.outcome, Outcome::Equal), "{report:?}");
    assert_eq!(sheet.asked().len(), since, "{:?}", sheet.asked());
}

/// Compares, lets somebody change the deployment, and then carries out what was decided.
async fn overtaken(manifest: &Value, groups: &[Value], change: impl FnOnce(&Sheet)) -> (Outcome, usize) {
    let (sheet, coder) = deployment(groups);
    let mut subject = subject(manifest);
    let assessment = subject.assess(&coder, Door::Controller).await;
    assert!(!assessment.plan.is_empty(), "{assessment:?}");
    change(&sheet);
    let report = subject.carry_out(&assessment, &coder).await;
    let changed = sheet.state();
    let again = pass(manifest, &coder.anew()).await;
    assert!(!again.outcome.is_stale(), "{again:?}: {changed:#}");
    (report.outcome, report.done)
}

#[tokio::test]
async fn update_is_not_written_over_a_change_that_the_plan_does_not_know() {
    let held = holding(&group("developers", 20), GROUP);
    let set = |groups: Value| move |it: &Sheet| it.set("groups", json!({ORGANIZATION: groups}));
    for groups in [json!([remote_group("developers", 7)]), json!([remote_group("renamed", 3)]), json!([])] {
        let (outcome, done) = overtaken(&held, &[remote_group("developers", 3)], set(groups.clone())).await;
        assert!(outcome.is_stale() && done == 0, "{groups}: {outcome:?}");
    }
    let held = holding(&organization("alpha", "declared"), ORGANIZATION);
    let change = |it: &Sheet| it.set("organizations", remote_organization("by hand"));
    let (outcome, done) = overtaken(&held, &[], change).await;
    assert!(outcome.is_stale() && done == 0, "{outcome:?}");
}

#[tokio::test]
async fn creation_of_a_name_that_was_taken_meanwhile_is_compared_again() {
    let take = |it: &Sheet| it.set("groups", json!({ORGANIZATION: [remote_group("developers", 3)]}));
    let (outcome, done) = overtaken(&group("developers", 20), &[], take).await;
    assert!(outcome.is_stale() && done == 0, "{outcome:?}");
    let take = |it: &Sheet| {
        let mut organizations = remote_organization("as found");
        let mut other = organizations[0].clone();
        other["id"] = json!(GROUP);
        other["name"] = json!("bravo");
        other["is_default"] = json!(false);
        organizations.as_array_mut().unwrap().push(other);
        it.set("organizations", organizations);
    };
    let (outcome, done) = overtaken(&organization("bravo", "declared"), &[], take).await;
    assert!(outcome.is_stale() && done == 0, "{outcome:?}");
}
