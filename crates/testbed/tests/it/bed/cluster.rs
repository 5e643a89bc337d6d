//! What the control plane does by itself.

use k8s_openapi::api::{
    authorization::v1::SubjectAccessReview,
    core::v1::{ConfigMap, Namespace, Pod},
};
use kube::{Api, ResourceExt as _, api::DeleteParams};
use serde_json::json;

use crate::support::{Corner, ask, condition, create, wait_until_gone};

#[tokio::test]
async fn what_an_object_owns_goes_with_it() {
    let corner = Corner::new("owner").await;
    let owner: ConfigMap = corner.create(json!({"metadata": {"name": "owner"}})).await;
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid()}]);
    corner.create::<ConfigMap>(json!({"metadata": {"name": "owned", "ownerReferences": reference}})).await;
    let config_maps = corner.api::<ConfigMap>();
    config_maps.delete("owner", &DeleteParams::default()).await.unwrap();
    wait_until_gone(&config_maps, "owned").await;
}

#[tokio::test]
async fn a_namespace_with_a_running_pod_deletes() {
    let corner = Corner::new("going").await;
    let container = json!({"name": "main", "image": "bed/host", "command": ["sleep", "1000"]});
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container]});
    corner.create::<Pod>(json!({"metadata": {"name": "sleeper"}, "spec": spec})).await;
    corner.pod("sleeper", "ready", |pod| condition(pod, "Ready") == Some("True")).await;
    let namespaces = Api::<Namespace>::all(corner.client.clone());
    namespaces.delete(&corner.namespace, &DeleteParams::default()).await.unwrap();
    wait_until_gone(&namespaces, &corner.namespace).await;
}

#[tokio::test]
async fn nobody_may_do_anything_without_a_role() {
    let corner = Corner::new("rbac").await;
    let asked = json!({"metadata": {}, "spec": {"user": "somebody",
        "resourceAttributes": {"namespace": corner.namespace, "verb": "get", "resource": "secrets"}}});
    let answer: SubjectAccessReview = create(&Api::all(corner.client.clone()), asked).await;
    assert!(!answer.status.unwrap().allowed);
}

#[tokio::test]
async fn every_request_is_in_the_audit_log_without_its_body() {
    let corner = Corner::new("audit").await;
    corner
        .create::<ConfigMap>(json!({"metadata": {"name": "traced"}, "data": {"key": "value-of-traced"}}))
        .await;
    let entry = ask("an entry in the audit log", || async {
        let log = std::fs::read_to_string(&corner.bed.audit_log).unwrap();
        let mut entries = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let about = json!([corner.namespace, "create", "traced"]);
        entries.find(|it| json!([it["objectRef"]["namespace"], it["verb"], it["objectRef"]["name"]]) == about)
    })
    .await;
    assert_eq!(entry["user"]["username"], "bed-admin");
    assert_eq!(entry["level"], "Metadata");
    assert!(!entry.to_string().contains("value-of-traced"));
}
