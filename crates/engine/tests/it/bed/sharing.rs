//! Whose workspaces can be shared in an organization, on a real coderd.

use engine::{Outcome, Refusal};
use reqwest::Method;
use serde_json::{Value, json};

use super::deployment::{applied, licensed};
use crate::{examples::request, support::pass};

fn organization(sharing: &str, more: &Value) -> Value {
    let mut manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderOrganization",
        "metadata": {"name": "alpha"},
        "spec": {"controlPlaneRef": {"name": "main"}, "workspaceSharing": sharing}});
    manifest["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    manifest
}

#[tokio::test]
async fn sharing_is_narrowed_only_where_a_person_allows_it() {
    let (coderd, deployment) = licensed().await;
    // A new organization has no shares that could be lost.
    let (held, id) = applied(&organization("none", &json!({})), &deployment).await;
    let path = format!("/api/v2/organizations/{id}/settings/workspace-sharing");
    let sharing = async || request(&coderd.owner, Method::GET, &path, None).await;
    assert_eq!(sharing().await["shareable_workspace_owners"], "none");
    deployment.asked();
    let report = pass(&held, &deployment.coder()).await;
    assert!(matches!(report.outcome, Outcome::Equal), "{:?}", report.outcome);

    let by_hand = json!({"shareable_workspace_owners": "everyone"});
    request(&coderd.owner, Method::PATCH, &path, Some(&by_hand)).await;
    let report = pass(&held, &deployment.coder()).await;
    assert!(matches!(report.outcome, Outcome::Refused(Refusal::Destructive)), "{:?}", report.outcome);
    assert_eq!(deployment.writes(), Vec::<String>::new());
    assert_eq!(sharing().await["shareable_workspace_owners"], "everyone");
    let mut allowed = held.clone();
    allowed["spec"]["allowDestructive"] = json!(true);
    applied(&allowed, &deployment).await;
    assert_eq!(sharing().await["shareable_workspace_owners"], "none");

    // More sharing loses nothing.
    let mut open = held;
    open["spec"]["workspaceSharing"] = json!("everyone");
    applied(&open, &deployment).await;
    assert_eq!(sharing().await["shareable_workspace_owners"], "everyone");
}
