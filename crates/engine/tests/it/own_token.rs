//! The operator's own token for a managed control plane, before anything is asked of coderd.

use api::{CoderControlPlane, Reason, annotation};
use engine::{
    Blocked,
    coder::TokenMemory,
    kinds::control_plane::{
        access::{AccessContext, AccessRights, admin_job, own_token},
        facts::PlaneContext,
        identity::ReachedDeployment,
    },
    secrets::FingerprintKeys,
};
use serde_json::{Value, json};
use sim::MemoryCluster;
use uuid::Uuid;

use crate::{memory, support, wire::Wire};

const DEPLOYMENT: Uuid = Uuid::from_u128(1);

fn plane(spec: &Value) -> CoderControlPlane {
    let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "spec": spec,
        "metadata": {"name": "main", "namespace": "platform", "uid": "u"}});
    serde_json::from_value(plane).unwrap()
}

fn secret(name: &str, annotations: &Value, data: &Value) -> Value {
    let owner =
        json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "name": "main", "uid": "u"});
    json!({"apiVersion": "v1", "kind": "Secret", "data": data, "metadata": {"name": name, "namespace": "platform",
        "annotations": annotations, "ownerReferences": [owner]}})
}

/// Why there is no token. Nothing was written, and nothing was asked of coderd.
async fn refused(spec: &Value, cluster: &MemoryCluster) -> Blocked {
    let wire = Wire::new(memory::licensed());
    let (tokens, fingerprints) = (TokenMemory::default(), FingerprintKeys::default());
    let objects = PlaneContext { cluster, allowed_rules: &[], fingerprints: Some(&fingerprints) };
    let (client, before) = (wire.client(), cluster.writes());
    let reached = ReachedDeployment { client: &client, deployment: DEPLOYMENT };
    let context = AccessContext { objects, tokens: &tokens };
    let plane = plane(spec);
    let refused = Box::pin(own_token(&plane, reached, AccessRights::of(&plane), &context)).await.unwrap_err();
    assert_eq!((cluster.writes(), wire.asked().len()), (before, 0));
    refused
}

#[tokio::test]
async fn observed_control_plane_gets_no_account() {
    let refused = refused(&json!({"mode": "Observe"}), &support::cluster()).await;
    assert_eq!(refused.reason, Reason::Observed);
}

#[tokio::test]
async fn token_of_another_deployment_is_not_used() {
    let cluster = support::cluster();
    let record = json!({"deploymentID": Uuid::from_u128(2)}).to_string();
    cluster.set(&secret(
        "main-operator-token",
        &json!({annotation::OPERATOR_ACCESS: record}),
        &json!({"token": "aWQtaHVudGVyMg=="}),
    ));
    let refused = refused(&json!({}), &cluster).await;
    assert_eq!(refused.reason, Reason::DeploymentChanged);
    assert!(refused.message.ends_with(&DEPLOYMENT.to_string()), "{refused:?}");
}

#[tokio::test]
async fn account_that_a_job_may_have_made_is_named_unless_it_is_used() {
    let cluster = support::cluster();
    let left = |account| {
        let cluster = &cluster;
        async move { admin_job::left(&plane(&json!({})), account, cluster).await.unwrap() }
    };
    assert_eq!(left(None).await, None);
    let account = json!({"username": "b3A=", "email": "YUBi", "password": "aHVudGVyMg=="});
    cluster.set(&secret("main-create-admin-user", &json!({}), &account));
    let note = left(None).await.unwrap();
    assert!(note.starts_with("the account op, if Job main-create-admin-user created it"), "{note}");
    assert_eq!(left(Some("op")).await, None);
}
