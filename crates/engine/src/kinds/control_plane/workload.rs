//! The objects of a managed control plane: which are there, which should be, what is applied, and what became of the pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use api::{CoderControlPlane, Reason, condition};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::{Resource as _, ResourceExt as _};

use super::{
    KINDS,
    children::{Desired, desire},
    facts::{PlaneContext, facts},
    names::selector,
    plan::{check, target},
    version,
    workspace_roles::{self, FoundRoles},
};
use crate::{
    objects::{self, ChildEffect, Comparison, Kept, Planned, Run, rollout::Rollout},
    pipeline::{
        held_back::{Changes, masked},
        outcome::Blocked,
        plan::{Plan, PlanView},
    },
    ports::{
        Cluster, ClusterError, Event, Reading,
        object::{Key, Live},
    },
};

/// One more kind, where the cluster has it.
const GATEWAY: (&str, &str, &str) = ("gateway.networking.k8s.io", "v1", "HTTPRoute");

/// What would be done to the objects of a control plane.
#[derive(Debug)]
pub struct PlanePreview {
    /// The steps, without values that may be secret.
    pub plan: PlanView,
    /// What is left out, and what a person should know.
    pub notices: Vec<Blocked>,
}

/// How it stands with the objects of a control plane that we run.
#[derive(Debug)]
pub struct Workload {
    /// Whether the pods are those that are declared, and serve.
    pub standing: Result<(), Blocked>,
    pub ready_replicas: Option<i32>,
    /// The newest version of Coder that has worked on the database, as far as containers tell.
    pub database_version: Option<String>,
    /// What is left out, and what a person should know; nothing where that is not known.
    pub notices: Option<Vec<Blocked>>,
    /// Further namespaces that have Roles for workspaces. `None` where that was not found out.
    pub workspace_namespaces: Option<Vec<String>>,
}

impl Workload {
    /// The objects were not compared.
    pub fn stopped(waiting: Blocked) -> Self {
        Self {
            standing: Err(waiting),
            ready_replicas: None,
            database_version: None,
            notices: None,
            workspace_namespaces: None,
        }
    }
}

/// The objects that should be and those that are.
struct Compared {
    desired: Desired,
    live: Vec<Live>,
    /// What was found of Roles for workspaces.
    unlisted: Vec<Blocked>,
    /// Further namespaces that have Roles for workspaces, or will.
    namespaces: BTreeSet<String>,
}

/// Makes the objects what the manifest declares, and returns what became of them. The manifest is the one of the last write.
pub async fn keep(
    plane: &mut CoderControlPlane,
    changes: &mut Changes,
    context: &PlaneContext<'_>,
) -> Result<Workload, ClusterError> {
    let Compared { desired, live, unlisted, namespaces } = match compare(plane, context).await? {
        Ok(compared) => compared,
        Err(blocked) => return Ok(Workload::stopped(blocked)),
    };
    workspace_roles::record(plane, &namespaces, context.cluster).await?;
    let (name, pods) = (plane.name_any(), selector(plane));
    let conditions = plane.status.iter().flat_map(|it| &it.conditions);
    let reads_names = !plane.spec.changes.is_automatic() || objects::was_taken(conditions);
    let compared =
        Comparison { deployment: &name, pods: &pods, children: &desired.children, live, reads_names };
    let held_back = Mutex::new(None);
    let may = |plan: &Plan<ChildEffect>| {
        let checked = check(plane, &plan.view(&target(plane)));
        let is_ok = checked.is_ok();
        let mut first = held_back.lock().unwrap_or_else(PoisonError::into_inner);
        *first = first.take().or_else(|| checked.err());
        is_ok
    };
    let kept = objects::keep(&*plane, compared, &may, context.cluster).await?;
    let Kept { run: seen, mut refused, changed } = kept;
    changes.changed |= changed;
    changes.held_back = held_back.into_inner().unwrap_or_else(PoisonError::into_inner);
    refused.extend(unlisted);
    let workspace_namespaces = Some(namespaces.into_iter().collect());
    Ok(Workload { workspace_namespaces, ..outcome(plane, &desired, refused, &seen) })
}

/// Returns what [`keep`] would do and writes nothing. The uid and the status are those of the control plane in the cluster, if
/// there is one. The plan is empty for a control plane that runs elsewhere.
pub async fn preview(
    plane: &CoderControlPlane,
    cluster: &dyn Cluster,
    allowed_rules: &[PolicyRule],
) -> Result<PlanePreview, Blocked> {
    let target = target(plane);
    if plane.spec.external.is_some() {
        return Ok(PlanePreview { plan: Plan::<ChildEffect>::empty().view(&target), notices: Vec::new() });
    }
    let name = plane.name_any();
    let unread = |error: ClusterError| Blocked {
        reason: if error.code() == Some(403) { Reason::NotPermitted } else { Reason::ClusterError },
        message: format!("the objects of CoderControlPlane {name} cannot be compared: {error}"),
    };
    let namespace = plane.namespace().unwrap_or_default();
    let stored = cluster.read::<CoderControlPlane>(&namespace, &name, Reading::Now).await.map_err(unread)?;
    let mut plane = plane.clone();
    plane.metadata.uid = stored.as_ref().and_then(kube::ResourceExt::uid);
    plane.status = stored.and_then(|it| it.status);
    let context = PlaneContext { cluster, allowed_rules, fingerprints: None };
    let Compared { desired, live, unlisted, .. } = compare(&plane, &context).await.map_err(unread)??;
    let pods = selector(&plane);
    let compared =
        Comparison { deployment: &name, pods: &pods, children: &desired.children, live, reads_names: true };
    let compared = Box::pin(objects::compare(&plane, compared, cluster)).await.map_err(unread)?;
    let Planned { plan, refused } = compared.planned;
    let notices = refused.into_iter().chain(desired.notices).chain(unlisted).collect();
    Ok(PlanePreview { plan: masked(plan.view(&target)), notices })
}

/// Finds the objects that are there, and those that should be. `Blocked` where the latter cannot be known.
async fn compare(
    plane: &CoderControlPlane,
    context: &PlaneContext<'_>,
) -> Result<Result<Compared, Blocked>, ClusterError> {
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
    Ok(Ok(Compared { desired, live, unlisted, namespaces }))
}

/// Names the objects that are not managed any more, in the first reconcile after the manifest declares `external`: from the
/// status that it writes the condition of a managed control plane is gone. The objects stay, since the Coder elsewhere may
/// still be the one that they are for.
pub async fn report_unmanaged(plane: &CoderControlPlane, cluster: &dyn Cluster) -> Result<(), ClusterError> {
    let conditions = plane.status.iter().flat_map(|it| &it.conditions);
    if !conditions.into_iter().any(|it| it.type_ == condition::COMPLETE) {
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

/// What became of the objects after the writes.
fn outcome(plane: &CoderControlPlane, desired: &Desired, refused: Vec<Blocked>, seen: &Run) -> Workload {
    let known = plane.status.as_ref().and_then(|it| it.database_version.as_deref());
    let started: Vec<String> = seen.started().collect();
    let notices: Vec<Blocked> = refused.into_iter().chain(desired.notices.iter().cloned()).collect();
    let standing = match (notices.iter().find(|it| it.reason.blocks_rollout()).cloned(), seen.rollout()) {
        (Some(notice), _) => Err(notice),
        (None, Some(Rollout::Done)) => Ok(()),
        (None, Some(Rollout::Stuck(message))) => Err(Blocked { reason: Reason::RolloutStuck, message }),
        (None, Some(Rollout::Progressing(message))) => Err(Blocked { reason: Reason::Progressing, message }),
        (None, None) => {
            let message = "the Deployment is not there yet".to_owned();
            Err(Blocked { reason: Reason::Progressing, message })
        }
    };
    Workload {
        standing,
        ready_replicas: seen.ready(),
        database_version: version::newest(known, None, started.iter().map(String::as_str)),
        notices: Some(notices),
        workspace_namespaces: None,
    }
}

/// The routes that have our labels. `None` where the cluster does not know such objects. That may change at any time, so it is
/// asked each time, also when none is declared: one that no longer is has to go.
async fn routes(plane: &CoderControlPlane, cluster: &dyn Cluster) -> Result<Option<Vec<Live>>, ClusterError> {
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
async fn live(
    plane: &CoderControlPlane,
    roles: Vec<Live>,
    cluster: &dyn Cluster,
) -> Result<Vec<Live>, ClusterError> {
    let here = cluster.labelled(&KINDS, plane.namespace().as_deref(), &selector(plane)).await?;
    let found: BTreeMap<Key, Live> = here.into_iter().chain(roles).map(|it| (it.key.clone(), it)).collect();
    Ok(found.into_values().collect())
}
