//! Fields that are written into a status whatever else happens to its object.

use api::CoderProvisionerKey;
use engine::{
    Cluster,
    secrets::{Record, mirror::advanced},
};
use serde_json::{Value, json};

use crate::support;

fn key(epoch: u64) -> Value {
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisionerKey",
        "metadata": {"name": "alpha", "namespace": "n", "uid": "u"},
        "spec": {"controlPlaneRef": {"name": "main"}}, "status": {"keyEpoch": epoch}})
}

/// The epoch that the status has after a write over a version that was read before, and whether the write was refused.
async fn written(stored: u64, epoch: u64) -> (Value, bool) {
    let memory = support::cluster();
    memory.set(&key(1));
    let read: CoderProvisionerKey =
        serde_json::from_value(memory.find("CoderProvisionerKey", "alpha").unwrap()).unwrap();
    memory.set(&key(stored));
    let record = Record { epoch: Some(epoch), ..Record::default() };
    let fields = |now: &CoderProvisionerKey| advanced(&now.status.clone().unwrap_or_default().key, &record);
    let cluster: &dyn Cluster = &memory;
    let is_refused = match cluster.mark(&read, fields).await {
        Ok(_) => false,
        Err(error) => error.is_conflict(),
    };
    let stored = memory.find("CoderProvisionerKey", "alpha").unwrap();
    (stored["status"]["keyEpoch"].clone(), is_refused)
}

#[tokio::test]
async fn status_with_a_higher_epoch_is_not_overwritten() {
    assert_eq!(written(2, 3).await, (json!(3), false));
    assert_eq!(written(4, 3).await, (json!(4), true));
    assert_eq!(written(3, 3).await, (json!(3), false), "it is there already");
}

#[tokio::test]
async fn another_object_of_the_same_name_gets_no_fields() {
    let memory = support::cluster();
    memory.set(&key(1));
    let read: CoderProvisionerKey =
        serde_json::from_value(memory.find("CoderProvisionerKey", "alpha").unwrap()).unwrap();
    let mut other = key(1);
    other["metadata"]["uid"] = "v".into();
    memory.set(&other);
    let cluster: &dyn Cluster = &memory;
    let fields = |_: &CoderProvisionerKey| json!({"keyEpoch": 2}).as_object().cloned();
    assert!(cluster.mark(&read, fields).await.unwrap_err().is_conflict());
    assert_eq!(memory.find("CoderProvisionerKey", "alpha").unwrap()["status"]["keyEpoch"], 1);
}
