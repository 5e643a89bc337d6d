//! Custom roles on a real coderd: what a role that people have needs before it goes.

use engine::{Decision, Outcome, Verdict};
use reqwest::Method;
use serde_json::{Value, json};

use super::deployment::{applied, licensed};
use crate::{
    examples::request,
    support::{assess, pass, subject},
};

fn role() -> Value {
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderRole", "metadata": {"name": "template-auditor"},
        "spec": {"controlPlaneRef": {"name": "main"}, "deletionPolicy": "Delete",
            "permissions": [{"resource": "template", "actions": ["read"]}]}})
}

#[tokio::test]
async fn role_in_use_names_its_users_and_goes_only_with_an_approval() {
    let (coderd, deployment) = licensed().await;
    let (held, _) = applied(&role(), &deployment).await;
    let user = json!({"username": "robin", "email": "robin@bed.test", "password": "Bed-robin-31-cases!",
        "organization_ids": [uuid::Uuid::nil()]});
    request(&coderd.owner, Method::POST, "/api/v2/users", Some(&user)).await;
    let roles = "/api/v2/organizations/default/members/robin/roles";
    request(&coderd.owner, Method::PUT, roles, Some(&json!({"roles": ["template-auditor"]}))).await;

    let coder = deployment.coder();
    let mut refused = subject(&held);
    let assessment = refused.assess_deletion(&coder).await;
    let users = assessment.plan.changes().find(|it| it.field == "users").unwrap();
    assert_eq!(users.before, json!(["robin"]));
    let report = refused.carry_out(&assessment, &coder).await;
    let Outcome::Blocked(blocked) = report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(blocked.reason, api::Reason::InUse);
    assert!(blocked.message.contains("assigned to robin"), "{}", blocked.message);
    assert!(blocked.message.contains(&assessment.plan.hash), "{}", blocked.message);
    assert!(
        matches!(pass(&held, &deployment.coder()).await.outcome, Outcome::Equal),
        "the role is still there"
    );

    let mut approved = held.clone();
    approved["metadata"]["annotations"] = json!({(api::annotation::APPROVED_PLAN): assessment.plan.hash});
    let coder = deployment.coder();
    let mut deleted = subject(&approved);
    let assessment = deleted.assess_deletion(&coder).await;
    let report = deleted.carry_out(&assessment, &coder).await;
    assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
    let again = assess(&role(), &deployment.coder()).await;
    assert!(matches!(again.verdict, Verdict::Decided(Decision::Apply)), "{:?}", again.verdict);
    assert_eq!(again.plan.summary, "1 to create");
}

#[tokio::test]
async fn role_of_a_renamed_organization_is_found_for_its_deletion() {
    let (coderd, deployment) = licensed().await;
    let made =
        request(&coderd.owner, Method::POST, "/api/v2/organizations", Some(&json!({"name": "alpha"}))).await;
    let mut manifest = role();
    manifest["spec"]["organization"] = json!("alpha");
    let (held, _) = applied(&manifest, &deployment).await;
    let path = format!("/api/v2/organizations/{}", made["id"].as_str().unwrap());
    request(&coderd.owner, Method::PATCH, &path, Some(&json!({"name": "renamed"}))).await;
    let coder = deployment.coder();
    let mut deleted = subject(&held);
    let assessment = deleted.assess_deletion(&coder).await;
    let report = deleted.carry_out(&assessment, &coder).await;
    assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
    let roles = request(&coderd.owner, Method::GET, &format!("{path}/members/roles"), None).await;
    assert!(roles.as_array().unwrap().iter().all(|it| it["name"] != "template-auditor"), "{roles}");
}
