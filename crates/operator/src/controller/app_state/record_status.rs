//! Writing the status of a manifest of any app-state kind.

use api::{AppState, Status};
use engine::ports::{ClusterError, Reading};
use kube::ResourceExt as _;
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

/// The manifest with its status, and the version of that, as they are by now. Everything else stays as it was assessed.
pub(super) async fn with_status_as_it_is<M: AppState>(
    manifest: &M,
    shared: &Shared,
) -> Result<M, ClusterError> {
    let cluster: &dyn engine::Cluster = &*shared.cluster;
    let (namespace, name) = (manifest.namespace().unwrap_or_default(), manifest.name_any());
    let now: Option<M> = cluster.read(&namespace, &name, Reading::Now).await?;
    let now = now.ok_or_else(|| ClusterError::refusal(404, "NotFound", &format!("{name} is gone")))?;
    let version = now.resource_version().filter(|_| now.uid() == manifest.uid());
    let now = serde_json::to_value(now).map_err(unreadable)?;
    let mut known = edited(manifest, |status| *status = now["status"].clone())?;
    // Another object of the same name is none of ours: nothing of this is written to it.
    known.meta_mut().resource_version = version.or_else(|| manifest.resource_version());
    Ok(known)
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
