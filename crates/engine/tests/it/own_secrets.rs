//! Which Secrets pods must not be given.

use engine::own_secrets::refused;
use serde_json::json;
use sim::MemoryCluster;

use crate::support;

async fn asked(cluster: &MemoryCluster, uid: Option<&str>) -> Option<String> {
    refused(cluster, "n", ["left".to_owned()], uid).await.unwrap().map(|it| it.name)
}

#[tokio::test]
async fn key_that_its_holder_left_behind_may_be_given_to_pods() {
    let cluster = support::cluster();
    let annotations = json!({"coder.com/provisioner-key": r#"{"holder":"u"}"#});
    cluster.set(&json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "left", "namespace": "n", "annotations": annotations}}));
    cluster.set(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisionerKey",
        "metadata": {"name": "alpha", "namespace": "n", "uid": "u"},
        "spec": {"controlPlaneRef": {"name": "main"}, "secretName": "left"}}));
    assert_eq!(asked(&cluster, Some("v")).await.as_deref(), Some("left"));
    assert_eq!(asked(&cluster, Some("u")).await, None);
    cluster.remove("CoderProvisionerKey", "alpha");
    assert_eq!(asked(&cluster, Some("v")).await, None);
    assert_eq!(asked(&cluster, None).await.as_deref(), Some("left"), "the pod of a Job owns no Secret");
}

#[tokio::test]
async fn object_that_cannot_be_decoded_is_taken_to_keep_its_secret() {
    let cluster = support::cluster();
    let annotations = json!({"coder.com/provisioner-key": r#"{"holder":"u"}"#});
    cluster.set(&json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "left", "namespace": "n", "annotations": annotations}}));
    cluster.set(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
        "metadata": {"name": "alpha", "namespace": "n", "uid": "u"}, "spec": {"replicas": "many"}}));
    assert_eq!(asked(&cluster, Some("v")).await.as_deref(), Some("left"));
}
