//! Beds beside each other, and a node that loses its agent.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use serde_json::{Value, json};
use testbed::{Bed, Options, shared::parts};

use crate::support::{condition, create, wait_for};

async fn cluster_alone() -> Bed {
    Bed::start(parts().unwrap(), Options { coderds: false }).await.unwrap()
}

/// A pod that listens on the port on which every coderd does.
fn listener() -> Value {
    let script = "python3 -m http.server 8080 --bind $(IP)";
    let container = json!({
        "name": "main", "image": "bed/host", "command": ["sh", "-c", script],
        "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "readinessProbe": {"httpGet": {"port": 8080}, "periodSeconds": 1},
    });
    json!({"metadata": {"name": "listener"}, "spec": {"containers": [container]}})
}

async fn pods_of(bed: &Bed) -> Api<Pod> {
    let client = bed.info().client().await.unwrap();
    // The default service account is made by the controller manager, a moment after the namespace.
    let accounts = Api::<k8s_openapi::api::core::v1::ServiceAccount>::default_namespaced(client.clone());
    wait_for(&accounts, "default", "there", |_| true).await;
    Api::default_namespaced(client)
}

fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready") == Some("True")
}

#[tokio::test]
async fn two_beds_run_side_by_side_and_each_removes_only_itself() {
    let (one, other) = tokio::join!(cluster_alone(), cluster_alone());
    for bed in [&one, &other] {
        let pods = pods_of(bed).await;
        create(&pods, listener()).await;
        wait_for(&pods, "listener", "ready", is_ready).await;
    }
    let (gone, stays) = (one.folder(), other.folder());
    tokio::task::spawn_blocking(move || drop(one)).await.unwrap();
    assert!(!gone.exists());
    assert!(stays.exists());
    assert!(is_ready(&pods_of(&other).await.get("listener").await.unwrap()));
}

#[tokio::test]
async fn the_pods_of_a_node_without_its_agent_are_not_ready() {
    let mut bed = cluster_alone().await;
    let pods = pods_of(&bed).await;
    create(&pods, listener()).await;
    wait_for(&pods, "listener", "ready", is_ready).await;
    bed.stop_agent().await;
    wait_for(&pods, "listener", "not ready", |pod| !is_ready(pod)).await;
    let nodes = Api::<Node>::all(bed.info().client().await.unwrap());
    let node = nodes.get("bed").await.unwrap();
    let ready = node.status.unwrap().conditions.unwrap().into_iter().find(|it| it.type_ == "Ready").unwrap();
    assert_eq!(ready.status, "Unknown");
}

#[tokio::test]
async fn a_bed_that_does_not_start_says_why_and_keeps_its_logs() {
    let mut broken = parts().unwrap().clone();
    // A program that ends at once, with words: what a flag that nobody knows does to the real one.
    broken.etcd = "/bin/ls".into();
    let error = Bed::start(&broken, Options { coderds: false }).await.unwrap_err();
    let said = format!("{error:#}");
    assert!(said.contains("etcd ended while it started") && said.contains("unrecognized option"), "{said}");
    let kept = said.split("its logs are in ").nth(1).unwrap().split(": ").next().unwrap();
    assert!(std::fs::read_to_string(format!("{kept}/etcd.log")).unwrap().contains("unrecognized option"));
    std::fs::remove_dir_all(kept).unwrap();
}
