//! Roles for workspaces in other namespaces. No owner reference can take them away with their control plane, so the status
//! records the namespaces that have some, and a deletion takes them back.

use std::collections::BTreeSet;

use api::{CoderControlPlane, Reason};
use kube::ResourceExt as _;

use super::{KINDS, names::workspace_selector};
use crate::{
    objects::{ChildEffect, ObjectsSituation, WORKSPACES_ROLE, plan},
    pipeline::{cleanup::Cleanup, ledger::Entry, outcome::Blocked},
    ports::{
        Cluster, ClusterError, Only,
        object::{Key, Live},
    },
};

/// The Roles that were found in the namespaces that may have some.
#[derive(Debug, Default)]
pub(super) struct FoundRoles {
    pub(super) live: Vec<Live>,
    /// The namespaces that could not be listed, with the API server's answer.
    unlisted: Vec<(String, ClusterError)>,
}

impl FoundRoles {
    /// Reports the namespaces that could not be listed.
    pub(super) fn notices(&self) -> impl Iterator<Item = Blocked> {
        self.unlisted.iter().map(|(namespace, error)| Blocked {
            reason: Reason::NotPermitted,
            message: format!(
                "Roles for workspaces in namespace {namespace} cannot be listed: {error}. Apply {WORKSPACES_ROLE} in that namespace"
            ),
        })
    }

    /// The namespaces that have some, or may have.
    pub(super) fn namespaces(&self, plane: &CoderControlPlane) -> BTreeSet<String> {
        let unlisted = self.unlisted.iter().map(|(namespace, _)| namespace.clone());
        held(plane, &self.live).into_iter().map(|(key, _)| key.namespace).chain(unlisted).collect()
    }
}

/// The namespaces that have some by the status.
pub(super) fn recorded(plane: &CoderControlPlane) -> BTreeSet<String> {
    plane.status.iter().flat_map(|it| it.workspace_namespaces.iter().cloned()).collect()
}

/// Lists them in all namespaces, or for an operator of one namespace in that one and in those of the status.
pub(super) async fn list(
    plane: &CoderControlPlane,
    cluster: &dyn Cluster,
) -> Result<FoundRoles, ClusterError> {
    if cluster.served_namespace().is_some() {
        return list_recorded(plane, cluster).await;
    }
    let live = cluster.labelled(&role_kinds(), None, &workspace_selector(plane)).await?;
    Ok(FoundRoles { live, unlisted: Vec::new() })
}

/// Lists them in the namespace of the control plane and in those of the status.
pub(super) async fn list_recorded(
    plane: &CoderControlPlane,
    cluster: &dyn Cluster,
) -> Result<FoundRoles, ClusterError> {
    let (kinds, selector) = (role_kinds(), workspace_selector(plane));
    let own = plane.namespace().unwrap_or_default();
    let live = cluster.labelled(&kinds, Some(&own), &selector).await?;
    let mut found = FoundRoles { live, unlisted: Vec::new() };
    for namespace in recorded(plane) {
        match cluster.labelled(&kinds, Some(&namespace), &selector).await {
            Ok(live) => found.live.extend(live),
            Err(error) => found.unlisted.push((namespace, error)),
        }
    }
    Ok(found)
}

fn role_kinds() -> Vec<(&'static str, &'static str, &'static str)> {
    KINDS.into_iter().filter(|(_, _, kind)| kind.starts_with("Role")).collect()
}

/// Deletes them.
pub async fn withdraw(plane: &CoderControlPlane, cleanup: &mut Cleanup, cluster: &dyn Cluster) {
    let found = match list(plane, cluster).await {
        Ok(found) => found,
        Err(error) => return cleanup.fail(Entry::Roles(Vec::new()).name(), refused(&error)),
    };
    for (namespace, error) in &found.unlisted {
        let mut blocked = refused(error);
        blocked.message = format!("{}. Apply {WORKSPACES_ROLE} in that namespace", blocked.message);
        cleanup.fail(Entry::Roles(vec![namespace.clone()]).name(), blocked);
    }
    for (key, uid) in held(plane, &found.live) {
        match cluster.delete(&key, Only { uid: &uid, version: None }).await {
            // Another object of that name has come since.
            Err(error) if error.is_conflict() => {}
            Err(error) => cleanup.fail(key.to_string(), refused(&error)),
            Ok(()) => {}
        }
    }
}

/// Those in other namespaces that are this very control plane's, with their uids.
pub(super) fn held(plane: &CoderControlPlane, live: &[Live]) -> Vec<(Key, String)> {
    let own = plane.namespace().unwrap_or_default();
    let elsewhere: Vec<Live> = live.iter().filter(|it| it.key.namespace != own).cloned().collect();
    let planned =
        plan(&ObjectsSituation { keeper: plane, children: &[], live: &elsewhere, rolled_out: true });
    let deleted =
        |effect| if let ChildEffect::Delete { key, uid, .. } = effect { Some((key, uid)) } else { None };
    planned.plan.steps.into_iter().filter_map(|it| deleted(it.effect)).collect()
}

fn refused(error: &ClusterError) -> Blocked {
    Blocked { reason: Reason::NotPermitted, message: error.to_string() }
}
