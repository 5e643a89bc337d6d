//! Reads the objects of a control plane, and what they depend on.

use std::collections::{BTreeMap, BTreeSet};

use api::{CoderControlPlane, Reason};
use kube::ResourceExt as _;
use secrecy::SecretSlice;

use crate::{
    kinds::control_plane::{
        KINDS,
        children::{Desired, desire},
        facts::{PlaneContext, facts},
        names::selector,
        workspace_roles::{self, FoundRoles},
    },
    pipeline::outcome::Blocked,
    ports::{
        Cluster, ClusterError,
        object::{Key, Live},
    },
};

/// One more kind, where the cluster has it.
const GATEWAY: (&str, &str, &str) = ("gateway.networking.k8s.io", "v1", "HTTPRoute");

/// The objects that should be and those that are.
pub(super) struct Found {
    pub(super) desired: Desired,
    pub(super) live: Vec<Live>,
    /// Namespaces whose Roles for workspaces could not be listed.
    pub(super) unlisted: Vec<Blocked>,
    /// Further namespaces that have Roles for workspaces, or will.
    pub(super) namespaces: BTreeSet<String>,
    /// The key of fingerprints, where it is not stored yet.
    pub(super) unstored_key: Option<SecretSlice<u8>>,
}

/// Finds the objects that are there, and those that should be. `Blocked` where the latter cannot be known.
pub(super) async fn read(
    plane: &CoderControlPlane,
    context: &PlaneContext<'_>,
) -> Result<Result<Found, Blocked>, ClusterError> {
    let routes = routes(plane, context.cluster).await?;
    let has_gateway = routes.is_some();
    let roles = roles(plane, context).await?;
    let unlisted = roles.notices().collect();
    let mut namespaces = roles.namespaces(plane);
    let mut live = live(plane, roles.live, context.cluster).await?;
    live.extend(routes.into_iter().flatten());
    let facts = match facts(plane, &live, has_gateway, context).await {
        Ok(facts) => facts,
        Err(blocked) => return Ok(Err(blocked)),
    };
    let desired = match desire(plane, &facts) {
        Ok(desired) => desired,
        Err(invalid) => {
            let message = format!("{}: {}", invalid.field, invalid.message);
            return Ok(Err(Blocked { reason: Reason::Invalid, message }));
        }
    };
    let own = plane.namespace().unwrap_or_default();
    let declared = desired.children.iter().map(|it| &it.key.namespace).filter(|it| **it != own);
    namespaces.extend(declared.cloned());
    let unstored_key = facts.unstored_key;
    Ok(Ok(Found { desired, live, unlisted, namespaces, unstored_key }))
}

/// The routes that have our labels. `None` where the cluster does not know such objects. That may change at any time, so it is
/// asked each time, also when none is declared: one that no longer is has to go.
pub(super) async fn routes(
    plane: &CoderControlPlane,
    cluster: &dyn Cluster,
) -> Result<Option<Vec<Live>>, ClusterError> {
    let is_declared = plane.spec.expose.as_ref().is_some_and(|it| it.gateway.is_some());
    match cluster.labelled(&[GATEWAY], plane.namespace().as_deref(), &selector(plane)).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_missing() => Ok(None),
        // Who was never meant to make routes has none.
        Err(error) if error.code() == Some(403) && !is_declared => Ok(None),
        Err(error) => Err(error),
    }
}

/// The Roles for workspaces. Whoever previews may have rights in some namespaces only.
async fn roles(plane: &CoderControlPlane, context: &PlaneContext<'_>) -> Result<FoundRoles, ClusterError> {
    let is_preview = context.fingerprints.is_none();
    match workspace_roles::list(plane, context.cluster).await {
        Err(error) if is_preview && error.code() == Some(403) => {
            workspace_roles::list_recorded(plane, context.cluster).await
        }
        listed => listed,
    }
}

/// Every object that has our labels and is of a kind that every cluster knows, with the Roles for workspaces.
pub(super) async fn live(
    plane: &CoderControlPlane,
    roles: Vec<Live>,
    cluster: &dyn Cluster,
) -> Result<Vec<Live>, ClusterError> {
    let here = cluster.labelled(&KINDS, plane.namespace().as_deref(), &selector(plane)).await?;
    let found: BTreeMap<Key, Live> = here.into_iter().chain(roles).map(|it| (it.key.clone(), it)).collect();
    Ok(found.into_values().collect())
}
