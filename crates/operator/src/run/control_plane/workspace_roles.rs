//! Roles for workspaces in other namespaces. No owner reference can take them away with their control plane, so the status
//! records the namespaces that have some, and a deletion takes them back.

use std::collections::BTreeSet;

use api::{CoderControlPlane, Reason};
use engine::{
    Blocked,
    control_plane::{KINDS, children::WORKSPACES_ROLE, workspace_selector},
    objects::{ChildEffect, Key, Live, Situation, plan},
};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Preconditions},
};
use serde_json::json;

use super::deletion::Cleanup;
use crate::run::{Shared, labelled::labelled, letting_go::answer, record::mark_with};

/// What was found in the namespaces that may have some.
#[derive(Default)]
pub(super) struct Found {
    pub(super) live: Vec<Live>,
    /// The namespaces that could not be listed, with the API server's answer.
    pub(super) unlisted: Vec<(String, kube::Error)>,
}

impl Found {
    /// Reports the namespaces that could not be listed.
    pub(super) fn notices(&self) -> impl Iterator<Item = Blocked> {
        self.unlisted.iter().map(|(namespace, error)| Blocked {
            reason: Reason::NotPermitted,
            message: format!(
                "Roles for workspaces in namespace {namespace} cannot be listed: {}. Apply {WORKSPACES_ROLE} in that namespace",
                answer(error)
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

/// Records namespaces that are about to get some. Nobody would look there for them after a crash.
pub(super) async fn record(
    plane: &mut CoderControlPlane,
    namespaces: &BTreeSet<String>,
    shared: &Shared,
) -> Result<(), kube::Error> {
    if namespaces.is_subset(&recorded(plane)) {
        return Ok(());
    }
    let fields = |now: &CoderControlPlane| {
        let all: BTreeSet<String> = recorded(now).union(namespaces).cloned().collect();
        json!({"workspaceNamespaces": all}).as_object().cloned()
    };
    let marked = mark_with(plane, &shared.client, fields).await?;
    // Everything else stays as it was read.
    plane.metadata.resource_version = marked.resource_version();
    plane.status = marked.status;
    Ok(())
}

/// Lists them in all namespaces, or for an operator of one namespace in that one and in those of the status.
pub(super) async fn list(plane: &CoderControlPlane, shared: &Shared) -> Result<Found, kube::Error> {
    let roles: Vec<_> = KINDS.into_iter().filter(|(_, _, kind)| kind.starts_with("Role")).collect();
    let selector = workspace_selector(plane);
    let mut found = Found::default();
    if shared.namespace.is_none() {
        found.live = labelled(&roles, None, &selector, shared).await?;
        return Ok(found);
    }
    let own = plane.namespace().unwrap_or_default();
    found.live = labelled(&roles, Some(&own), &selector, shared).await?;
    for namespace in recorded(plane) {
        match labelled(&roles, Some(&namespace), &selector, shared).await {
            Ok(live) => found.live.extend(live),
            Err(error) => found.unlisted.push((namespace, error)),
        }
    }
    Ok(found)
}

/// Deletes them.
pub(super) async fn withdraw(plane: &CoderControlPlane, cleanup: &mut Cleanup, shared: &Shared) {
    let is_managed = plane.spec.external.is_none();
    if !is_managed && recorded(plane).is_empty() {
        return;
    }
    let found = match list(plane, shared).await {
        Ok(found) => found,
        Err(error) => return cleanup.fail("a Role for workspaces in another namespace", refused(&error)),
    };
    for (namespace, error) in &found.unlisted {
        let mut waiting = refused(error);
        waiting.message = format!("{}. Apply {WORKSPACES_ROLE} in that namespace", waiting.message);
        cleanup.fail(format!("a Role for workspaces in namespace {namespace}"), waiting);
    }
    for (key, uid) in held(plane, &found.live) {
        if let Err(error) = delete(&key, uid, shared).await {
            cleanup.fail(key.to_string(), refused(&error));
        }
    }
}

/// Those in other namespaces that are this very control plane's, with their uids.
pub(super) fn held(plane: &CoderControlPlane, live: &[Live]) -> Vec<(Key, String)> {
    let own = plane.namespace().unwrap_or_default();
    let elsewhere: Vec<Live> = live.iter().filter(|it| it.key.namespace != own).cloned().collect();
    let planned = plan(&Situation { keeper: plane, children: &[], live: &elsewhere, rolled_out: true });
    let deleted =
        |effect| if let ChildEffect::Delete { key, uid, .. } = effect { Some((key, uid)) } else { None };
    planned.plan.steps.into_iter().filter_map(|it| deleted(it.effect)).collect()
}

async fn delete(key: &Key, uid: String, shared: &Shared) -> Result<(), kube::Error> {
    let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    let deleted = if key.kind == "Role" {
        let roles = Api::<Role>::namespaced(shared.client.clone(), &key.namespace);
        roles.delete(&key.name, &params).await.map(drop)
    } else {
        let bindings = Api::<RoleBinding>::namespaced(shared.client.clone(), &key.namespace);
        bindings.delete(&key.name, &params).await.map(drop)
    };
    match deleted {
        // It is gone, or another object of that name has come since.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        done => done,
    }
}

fn refused(error: &kube::Error) -> Blocked {
    Blocked { reason: Reason::NotPermitted, message: answer(error) }
}
