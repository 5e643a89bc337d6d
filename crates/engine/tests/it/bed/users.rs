//! Accounts on a real coderd: whom no manifest harms, what a deleted one leaves, and what the list of all of them costs.

use api::Reason;
use engine::{Decision, Door, Outcome, Verdict};
use reqwest::Method;
use serde_json::{Value, json};
use testbed::Coderd;

use super::deployment::{Deployment, applied, licensed};
use crate::{
    examples::request,
    support::{holding, pass, subject},
};

/// A manifest of a service account.
fn user(name: &str, more: &Value) -> Value {
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderUser", "metadata": {"name": name},
        "spec": {"controlPlaneRef": {"name": "main"}, "serviceAccount": true}});
    manifest["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    manifest
}

/// A manifest of a person who is there already.
fn person(name: &str, email: &str, id: &str, more: &Value) -> Value {
    let mut manifest = user(name, more);
    manifest["spec"].as_object_mut().unwrap().remove("serviceAccount");
    manifest["spec"]["email"] = json!(email);
    holding(&manifest, id)
}

/// Makes a person by hand, and returns the id.
async fn sign_up(coderd: &Coderd, name: &str, roles: &[&str]) -> String {
    let body = json!({"username": name, "email": format!("{name}@bed.test"), "password": "Bed-person-31-cases!",
        "organization_ids": [uuid::Uuid::nil()], "roles": roles});
    let made = request(&coderd.owner, Method::POST, "/api/v2/users", Some(&body)).await;
    made["id"].as_str().unwrap().to_owned()
}

fn reason(outcome: &Outcome) -> Reason {
    let Outcome::Blocked(blocked) = outcome else { panic!("{outcome:?}") };
    blocked.reason
}

#[tokio::test]
async fn own_account_and_last_owner_are_never_harmed() {
    let (coderd, deployment) = licensed().await;
    let own = request(&coderd.owner, Method::GET, "/api/v2/users/me", None).await;
    let (name, email, id) =
        (own["username"].as_str().unwrap(), own["email"].as_str().unwrap(), own["id"].as_str().unwrap());
    for harm in [json!({"roles": []}), json!({"suspended": true})] {
        let report = pass(&person(name, email, id, &harm), &deployment.coder()).await;
        assert_eq!(reason(&report.outcome), Reason::OwnAccount, "{harm}");
    }
    let deleted = person(name, email, id, &json!({"deletionPolicy": "Delete"}));
    let mut deleting = subject(&deleted);
    let assessment = deleting.assess_deletion(&deployment.coder()).await;
    let report = deleting.carry_out(&assessment, &deployment.coder()).await;
    assert_eq!(reason(&report.outcome), Reason::OwnAccount);
    let equal = person(name, email, id, &json!({"roles": ["owner"], "suspended": false}));
    let report = pass(&equal, &deployment.coder()).await;
    assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);

    // The account of the token is an automation; the one human owner must stay.
    let (_, automation) = applied(&user("automation", &json!({"roles": ["owner"]})), &deployment).await;
    let token = format!("/api/v2/users/{automation}/keys/tokens");
    let key = request(&coderd.owner, Method::POST, &token, Some(&json!({}))).await["key"].clone();
    let automated = Deployment::at(&coderd.owner.url, key.as_str().unwrap());
    for harm in [json!({"roles": []}), json!({"roles": [], "suspended": true})] {
        let report = pass(&person(name, email, id, &harm), &automated.coder()).await;
        assert_eq!(reason(&report.outcome), Reason::LastOwner, "{harm}");
    }
    let mut deleting = subject(&deleted);
    let assessment = deleting.assess_deletion(&automated.coder()).await;
    let report = deleting.carry_out(&assessment, &automated.coder()).await;
    assert_eq!(reason(&report.outcome), Reason::LastOwner);
    assert_eq!(automated.writes(), Vec::<String>::new());

    // With another owner who can sign in the same manifest is applied.
    sign_up(&coderd, "second", &["owner"]).await;
    let report = pass(&person(name, email, id, &json!({"roles": []})), &automated.coder()).await;
    assert!(matches!(report.outcome, Outcome::Applied), "{:?}", report.outcome);
}

#[tokio::test]
async fn deleted_user_is_made_again_under_the_same_name_and_address() {
    let (coderd, deployment) = licensed().await;
    let first = sign_up(&coderd, "robin", &[]).await;
    let held = person("robin", "ROBIN@bed.test", &first, &json!({"organizations": ["default"]}));
    let report = pass(&held, &deployment.coder()).await;
    assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);
    request(&coderd.owner, Method::DELETE, "/api/v2/users/robin", None).await;
    // By its id the deleted user still answers; the list does not show it.
    let report = pass(&held, &deployment.coder()).await;
    assert_eq!(reason(&report.outcome), Reason::Invalid, "a new person needs a password");
    let second = sign_up(&coderd, "robin", &[]).await;
    let report = pass(&held, &deployment.coder()).await;
    assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);
    assert_eq!(report.id.map(|it| it.to_string()), Some(second));
}

#[tokio::test]
async fn address_and_login_type_that_differ_are_reported_and_not_written() {
    let (coderd, deployment) = licensed().await;
    let id = sign_up(&coderd, "robin", &[]).await;
    let other = person("robin", "other@bed.test", &id, &json!({}));
    let oidc = person("robin", "robin@bed.test", &id, &json!({"loginType": "oidc"}));
    let mut taken = user("sparrow", &json!({}));
    taken["spec"].as_object_mut().unwrap().remove("serviceAccount");
    taken["spec"]["email"] = json!("robin@bed.test");
    for manifest in [other, oidc, taken] {
        let report = pass(&manifest, &deployment.coder()).await;
        assert_eq!(reason(&report.outcome), Reason::Invalid, "{manifest}");
    }
    assert_eq!(deployment.writes(), Vec::<String>::new());
}

#[tokio::test]
async fn roles_membership_name_and_suspension_are_healed_together() {
    let (coderd, deployment) = licensed().await;
    request(&coderd.owner, Method::POST, "/api/v2/organizations", Some(&json!({"name": "alpha"}))).await;
    let declared = json!({"roles": ["auditor"], "organizations": ["alpha"], "suspended": false});
    let (held, id) = applied(&user("automation", &declared), &deployment).await;
    let path = format!("/api/v2/users/{id}");
    request(&coderd.owner, Method::PUT, &format!("{path}/roles"), Some(&json!({"roles": ["user-admin"]})))
        .await;
    request(&coderd.owner, Method::PUT, &format!("{path}/profile"), Some(&json!({"username": "renamed"})))
        .await;
    request(&coderd.owner, Method::POST, &format!("/api/v2/organizations/default/members/{id}"), None).await;
    request(&coderd.owner, Method::PUT, &format!("{path}/status/suspend"), None).await;
    applied(&held, &deployment).await;
    let report = pass(&held, &deployment.coder()).await;
    assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);
    let healed = request(&coderd.owner, Method::GET, &path, None).await;
    assert_eq!(healed["username"], "automation");
    assert_eq!(healed["roles"][0]["name"], "auditor");
    assert_eq!(healed["organization_ids"].as_array().unwrap().len(), 1);
    assert_ne!(healed["status"], "suspended");
}

#[tokio::test]
async fn twice_as_many_users_cost_the_same_number_of_requests() {
    let (_coderd, deployment) = licensed().await;
    let mut made = Vec::new();
    let mut costs = Vec::new();
    for count in [10, 20] {
        while made.len() < count {
            let manifest =
                user(&format!("user-{}", made.len()), &json!({"roles": [], "organizations": ["default"]}));
            made.push(applied(&manifest, &deployment).await.0);
        }
        deployment.asked();
        let coder = deployment.coder();
        for manifest in &made {
            let assessment = subject(manifest).assess(&coder, Door::Controller).await;
            let is_equal = matches!(assessment.verdict, Verdict::Decided(Decision::Nothing));
            assert!(is_equal, "{:?}", assessment.verdict);
        }
        let asked = deployment.asked();
        eprintln!("plan of {count} users: {} requests: {asked:?}", asked.len());
        costs.push(asked.len());
    }
    assert_eq!(costs[0], costs[1]);
}
