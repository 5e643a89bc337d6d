//! What a fresh deployment shows for things that always exist: it counts as absent, so that it may be declared.

use engine::{Contact, Outcome};
use reqwest::Method;
use serde_json::{Value, json};

use super::deployment::{Deployment, applied, licensed};
use crate::{
    examples::{by_hand, request},
    support::{assess, holding, pass},
};

fn manifest(kind: &str, spec: &Value) -> Value {
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": kind,
        "metadata": {"name": "example"}, "spec": spec});
    manifest["spec"]["controlPlaneRef"] = json!({"name": "main"});
    manifest
}

async fn contact(manifest: &Value, deployment: &Deployment) -> Option<Contact> {
    assess(manifest, &deployment.coder()).await.contact
}

#[tokio::test]
async fn the_default_organization_can_be_declared_and_renamed_and_stays_the_default_one() {
    let (_coderd, deployment) = licensed().await;
    let declared = manifest("CoderOrganization", &json!({"name": "default", "displayName": "Headquarters"}));
    assert_eq!(contact(&declared, &deployment).await, Some(Contact::Absent));
    let (_, id) = applied(&declared, &deployment).await;
    assert_eq!(contact(&declared, &deployment).await, Some(Contact::Foreign));
    // An edit of the name renames it, and `default` goes on to mean it.
    let renamed = manifest("CoderOrganization", &json!({"name": "headquarters"}));
    let (_, same) = applied(&holding(&renamed, id), &deployment).await;
    assert_eq!(same, id);
    let report = pass(&holding(&declared, id), &deployment.coder()).await;
    assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);
}

#[tokio::test]
async fn documents_of_a_fresh_deployment_and_of_its_default_organization_are_absent() {
    let (coderd, deployment) = licensed().await;
    let organizations = request(&coderd.owner, Method::GET, "/api/v2/organizations", None).await;
    let home = organizations[0]["id"].as_str().unwrap().to_owned();
    for kind in ["CoderAppearance", "CoderOrganizationSync", "CoderGroupSync", "CoderRoleSync"] {
        let hand = by_hand(kind).unwrap();
        let mut declared = manifest(kind, &json!({}));
        declared["spec"][hand.field] = hand.value;
        assert_eq!(contact(&declared, &deployment).await, Some(Contact::Absent), "{kind}");
        // Another organization was held before: that one's document is not this one.
        let report = pass(&holding(&declared, uuid::Uuid::from_u128(7)), &deployment.coder()).await;
        assert!(report.outcome.is_ready(), "{kind}: {:?}", report.outcome);
        if ["CoderGroupSync", "CoderRoleSync"].contains(&kind) {
            assert_eq!(report.id.unwrap().to_string(), home);
        }
    }
}

#[tokio::test]
async fn everyone_of_an_organization_has_a_quota_and_is_never_deleted() {
    let (_coderd, deployment) = licensed().await;
    let mut everyone = manifest("CoderGroup", &json!({"name": "Everyone", "quotaAllowance": 5}));
    assert_eq!(contact(&everyone, &deployment).await, Some(Contact::Absent));
    let (held, id) = applied(&everyone, &deployment).await;
    let report = pass(&held, &deployment.coder()).await;
    assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);
    everyone["spec"]["deletionPolicy"] = "Delete".into();
    let mut deleted = crate::support::subject(&holding(&everyone, id));
    assert!(deleted.assess_deletion(&deployment.coder()).await.plan.is_empty());
}

#[tokio::test]
async fn people_are_found_by_name_and_by_address_in_any_case() {
    let (coderd, deployment) = licensed().await;
    let organizations = request(&coderd.owner, Method::GET, "/api/v2/organizations", None).await;
    let user = json!({"email": "Alice@bed.test", "username": "Alice", "login_type": "password",
        "password": format!("Bed-{}", uuid::Uuid::new_v4()),
        "organization_ids": [organizations[0]["id"]]});
    request(&coderd.owner, Method::POST, "/api/v2/users", Some(&user)).await;
    let mut group = manifest("CoderGroup", &json!({"members": ["ADMIN", "alice@BED.test", "alice"]}));
    let (held, id) = applied(&group, &deployment).await;
    let report = pass(&held, &deployment.coder()).await;
    assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);
    group["spec"]["members"] = json!([]);
    applied(&holding(&group, id), &deployment).await;
    group["spec"]["members"] = json!(["nobody"]);
    let report = pass(&holding(&group, id), &deployment.coder()).await;
    assert!(
        matches!(&report.outcome, Outcome::Blocked(it) if it.message.contains("nobody")),
        "{:?}",
        report.outcome
    );
}
