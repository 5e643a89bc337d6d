//! Tests on a real API server: the definitions are taken, the examples too, and mistakes are refused.

mod cluster;
mod control_planes;
mod mistakes;
mod provisioners;
mod transitions;

use serde_json::json;

use crate::examples::examples;
use cluster::{Cluster, refusal};

#[tokio::test]
async fn every_example_is_taken_as_it_is_written() {
    let cluster = Cluster::new("examples").await;
    for example in examples() {
        let taken = cluster.apply(&example).await.unwrap_or_else(|error| panic!("{error} for {example}"));
        assert_eq!(taken.data["spec"], example["spec"], "the API server writes nothing into a spec");
    }
}

#[tokio::test]
async fn null_is_refused_because_it_could_mean_absent_or_empty() {
    let cluster = Cluster::new("null").await;
    for field in ["name", "mode", "members", "displayName"] {
        let spec = json!({"controlPlaneRef": {"name": "main"}, field: null});
        let said = refusal(cluster.apply_spec("CoderGroup", "dev", &spec).await);
        assert!(said.contains(&format!("spec.{field}: ")) && said.contains("\"null\""), "{said}");
    }
}

#[tokio::test]
async fn what_a_list_declares_is_all_of_it_whoever_wrote_before() {
    let cluster = Cluster::new("owners").await;
    let members = |members: &[&str]| json!({"controlPlaneRef": {"name": "main"}, "members": members});
    cluster.apply_as("git", "CoderGroup", "dev", &members(&["alice"])).await.unwrap();
    cluster.apply_as("hand", "CoderGroup", "dev", &members(&["alice", "mallory"])).await.unwrap();
    let taken = cluster.apply_as("git", "CoderGroup", "dev", &members(&["alice"])).await.unwrap();
    assert_eq!(taken.data["spec"]["members"], json!(["alice"]));
    let mapping =
        |mapping: serde_json::Value| json!({"controlPlaneRef": {"name": "main"}, "mapping": mapping});
    let git = mapping(json!({"/a": ["a"]}));
    cluster.apply_as("git", "CoderRoleSync", "dev", &git).await.unwrap();
    cluster
        .apply_as("hand", "CoderRoleSync", "dev", &mapping(json!({"/a": ["a"], "/b": ["b"]})))
        .await
        .unwrap();
    let taken = cluster.apply_as("git", "CoderRoleSync", "dev", &git).await.unwrap();
    assert_eq!(taken.data["spec"]["mapping"], json!({"/a": ["a"]}));
}

#[tokio::test]
async fn a_status_is_kept_whole() {
    let cluster = Cluster::new("status").await;
    let spec = json!({"controlPlaneRef": {"name": "main"}});
    cluster.apply_spec("CoderGroup", "dev", &spec).await.unwrap();
    let step = json!({"action": "Update", "target": "group dev", "field": "quotaAllowance", "before": "1", "after": "2",
        "impact": "None", "reason": "differs"});
    let condition = json!({"type": api::condition::READY, "status": "False", "reason": api::Reason::Observed,
        "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let status = json!({"observedGeneration": 1, "conditions": [condition], "id": "1",
        "plan": {"hash": "h", "summary": "one change", "steps": [step], "omitted": 3},
        "drift": [{"field": "quotaAllowance", "expected": "2", "found": "1"}],
        "lastAppliedTime": "2026-01-02T03:04:05Z", "lastHandledReconcileAt": "now"});
    let typed: api::Status = serde_json::from_value(status.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), status);
    let kept = cluster.apply_status("CoderGroup", "dev", &status).await.unwrap();
    assert_eq!(kept.data["status"], status);
}

#[tokio::test]
async fn the_objects_of_a_control_plane_can_be_selected() {
    let cluster = Cluster::new("selected").await;
    for (name, plane) in [("one", "main"), ("two", "other")] {
        cluster.apply_spec("CoderGroup", name, &json!({"controlPlaneRef": {"name": plane}})).await.unwrap();
    }
    assert_eq!(cluster.names("CoderGroup", "spec.controlPlaneRef.name=other").await, ["two"]);
}
