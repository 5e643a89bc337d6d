//! Objects of a control plane that runs elsewhere by now.

use api::{AppState as _, CoderControlPlane, Reason, condition};
use kube::Resource as _;

use super::read::{live, routes};
use crate::{
    kinds::control_plane::workspace_roles,
    ports::{Cluster, ClusterError, Event, object::Live},
};

/// Names the objects that are not managed any more, in the first reconcile after the manifest declares `external`: from the
/// status that it writes the condition of a managed control plane is gone. The objects stay, since the Coder elsewhere may
/// still be the one that they are for.
pub async fn report_unmanaged(plane: &CoderControlPlane, cluster: &dyn Cluster) -> Result<(), ClusterError> {
    let conditions = plane.status().map_or(&[][..], |it| &it.conditions);
    if !conditions.iter().any(|it| it.type_ == condition::COMPLETE) {
        return Ok(());
    }
    let objects = unmanaged(plane, cluster).await?;
    if !objects.is_empty() {
        let note = format!(
            "spec.external is set, so that these objects are not managed any more: {}. Delete them if nothing uses them; with \
             their owner references they are deleted together with this manifest",
            objects.join(", ")
        );
        let (reason, action) = (Reason::NoLongerManaged, "Update");
        let event = Event { is_warning: true, reason, action, note: &note, must_be_written: false };
        cluster.event(&plane.object_ref(&()), event).await;
    }
    Ok(())
}

/// The objects of a control plane that was managed and runs elsewhere now.
async fn unmanaged(plane: &CoderControlPlane, cluster: &dyn Cluster) -> Result<Vec<String>, ClusterError> {
    let mut found = live(plane, workspace_roles::list(plane, cluster).await?.live, cluster).await?;
    found.extend(routes(plane, cluster).await?.into_iter().flatten());
    let is_owned = |it: &Live| {
        let mut owners = it.metadata().owner_references.iter().flatten();
        owners.any(|owner| Some(&owner.uid) == plane.metadata.uid.as_ref())
    };
    let elsewhere = workspace_roles::held(plane, &found);
    let owned = found.iter().filter(|it| is_owned(it)).map(|it| it.key.to_string());
    Ok(owned.chain(elsewhere.into_iter().map(|(key, _)| key.to_string())).collect())
}
