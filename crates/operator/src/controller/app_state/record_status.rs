//! Writing the status of a manifest of any app-state kind.

use api::{AppState, Status};
use engine::ports::ClusterError;
use serde_json::{Map, Value, json};

use crate::controller::{Shared, record::mark_where};

/// Writes the status if it changed, and returns the object that has it. Fails when the object changed since it was read; the id
/// of a remote object is recorded all the same.
pub(super) async fn write_status<M: AppState>(
    manifest: &M,
    next: Status,
    aside: &Map<String, Value>,
    shared: &Shared,
) -> Result<M, ClusterError> {
    if aside.is_empty() && manifest.status() == Some(&next) {
        return Ok(manifest.clone());
    }
    let mut written = edited(manifest, |status| {
        for (field, value) in aside {
            status[field] = value.clone();
        }
        if let Value::Object(fields) = status {
            fields.retain(|_, it| !it.is_null());
        }
    })?;
    let new_id = next.id.clone().filter(|_| next.id != manifest.status().and_then(|it| it.id.clone()));
    let deployment = next.remote_deployment_id.clone();
    written.set_status(next);
    // With the version that was read: of two writers one is refused and compares again.
    let cluster: &dyn engine::Cluster = &*shared.cluster;
    let result = cluster.put_status(&written).await;
    if let (Err(_), Some(id)) = (&result, new_id) {
        // The remote object was created or adopted: whatever happened to the manifest, its id must not be lost.
        let (read, id) = (manifest.status().and_then(|it| it.id.clone()), Some(id));
        let fields = json!({"id": id, "remoteDeploymentID": deployment});
        // An id that another operator has recorded since belongs to a remote object, too.
        mark_where(manifest, &fields, shared, |now: &M| {
            let recorded = now.status().and_then(|it| it.id.clone());
            recorded == read || recorded == id
        })
        .await?;
    }
    result
}

/// The manifest with another status.
fn edited<M: AppState>(manifest: &M, edit: impl FnOnce(&mut Value)) -> Result<M, ClusterError> {
    let mut json = serde_json::to_value(manifest).map_err(unreadable)?;
    edit(&mut json["status"]);
    serde_json::from_value(json).map_err(unreadable)
}

/// A manifest that cannot be written as JSON, or read back.
#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` needs")]
fn unreadable(error: serde_json::Error) -> ClusterError {
    ClusterError::NoAnswer(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::CoderProvisioner;
    use engine::Cluster;
    use jiff::Timestamp;
    use sim::MemoryCluster;

    use super::*;
    use crate::{
        cluster::fence::Fence,
        controller::{Limits, Outside},
    };

    #[tokio::test]
    async fn status_of_an_older_reconcile_is_not_written_over_a_newer_one() {
        let cluster = MemoryCluster::new(Arc::new(Timestamp::now), 1);
        let (connect, fence) = (Arc::new(|_: &_| Err("nowhere".to_owned())), Fence::open());
        let outside = Outside { cluster: Arc::new(cluster.clone()), connect, fence };
        let shared = Shared::new(outside, Limits::default(), Arc::default());
        cluster.set(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
            "metadata": {"name": "alpha", "namespace": "platform", "generation": 1},
            "spec": {"controlPlaneRef": {"name": "main"}}}));
        let port: &dyn Cluster = &cluster;
        let read = port.read::<CoderProvisioner>("platform", "alpha", engine::ports::Reading::Now);
        let read = read.await.unwrap().unwrap();
        let of_generation = |it| Status { observed_generation: Some(it), ..Status::default() };
        let newer = write_status(&read, of_generation(2), &Map::new(), &shared).await.unwrap();
        let late = write_status(&read, of_generation(1), &Map::new(), &shared).await;
        assert!(late.unwrap_err().is_conflict());
        let stored = cluster.find("CoderProvisioner", "alpha").unwrap();
        assert_eq!(stored["status"]["observedGeneration"], 2);
        // One that has seen the newer one may speak.
        let fields = Map::from_iter([("phase".to_owned(), json!("Ready"))]);
        write_status(&newer, of_generation(3), &fields, &shared).await.unwrap();
        let stored = cluster.find("CoderProvisioner", "alpha").unwrap();
        assert_eq!(
            (&stored["status"]["phase"], &stored["status"]["observedGeneration"]),
            (&json!("Ready"), &json!(3))
        );
    }
}
