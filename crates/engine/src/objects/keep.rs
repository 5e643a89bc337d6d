//! Objects of the cluster that are kept for a manifest: what is there, what is applied, and what became of the pods.

use std::collections::BTreeMap;

use api::Reason;
use futures::future::join_all;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::Pod,
    },
};
use kube::{Resource, ResourceExt as _, core::Selector};
use serde_json::json;

use super::{
    Child, Keeper, Key, Live, ObjectsSituation, Planned,
    carry_out::tell,
    plan, pod_logs,
    rollout::{Rollout, RolloutSeen, rollout},
};
use crate::{
    objects::WORKSPACES_ROLE,
    pipeline::{outcome::Blocked, plan::Plan},
    ports::{Cluster, ClusterError, Reading, Write},
    secrets::own_secrets::{self, RefusedSecret},
};

/// What should be, and what is.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// The Deployment whose pods are looked at, and the labels of these.
    pub deployment: &'a str,
    pub pods: &'a Selector,
    /// The objects that should be.
    pub children: &'a [Child],
    /// Those that have their labels.
    pub live: Vec<Live>,
    /// Whether objects that have the name of a missing one and not our labels are looked for, as for a plan that people read.
    /// Otherwise the creation finds them: it changes no object that exists.
    pub reads_names: bool,
}

/// The objects of a manifest, compared with what they should be.
#[derive(Debug)]
pub struct Compared {
    pub planned: Planned,
    /// Whether the objects were compared.
    is_complete: bool,
    pub run: Run,
}

impl Compared {
    /// Asks pods that are in trouble for their last log lines.
    pub async fn listen(
        &mut self,
        namespace: &str,
        pods: &Selector,
        cluster: &dyn Cluster,
    ) -> Result<(), ClusterError> {
        if self.is_complete {
            self.run.listen(namespace, pods, cluster).await?;
        }
        Ok(())
    }
}

/// Compares the objects that should be with those that are. Nothing is written. Nothing is planned where pods would be given a
/// Secret that they must not have.
pub async fn compare<K>(
    keeper: &K,
    objects: Comparison<'_>,
    cluster: &dyn Cluster,
) -> Result<Compared, ClusterError>
where
    K: Keeper + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let Comparison { deployment, pods, children, mut live, reads_names } = objects;
    if let Some(refused) = refused_secret(keeper, children, &live, cluster).await? {
        let run = seen(keeper, deployment, pods, cluster).await?;
        let planned = Planned { plan: Plan::empty(), refused: vec![refused] };
        return Ok(Compared { planned, is_complete: false, run });
    }
    let own_namespace = keeper.namespace().unwrap_or_default();
    // In other namespaces the operator may have no rights: then nothing is planned.
    let is_read = |it: &&Child| reads_names || it.key.namespace != own_namespace;
    let unseen = children.iter().filter(|it| live.iter().all(|live| live.key != it.key));
    let Namesakes { found, forbidden } =
        namesakes(unseen.filter(is_read).collect(), &own_namespace, cluster).await?;
    live.extend(found);
    let (children, mut left_out) = without(children, &forbidden);
    let is_it = |it: &&Live| it.key.kind == "Deployment" && it.key.name == deployment;
    let run = Run::of(keeper, live.iter().find(is_it).and_then(typed), pods, cluster).await?;
    let rolled_out = run.rollout() == Some(Rollout::Done);
    let mut planned = plan(&ObjectsSituation { keeper, children: &children, live: &live, rolled_out });
    planned.refused.append(&mut left_out);
    Ok(Compared { planned, is_complete: true, run })
}

/// A Secret that pods of these objects would be given, and that the operator keeps for itself or for another object.
async fn refused_secret(
    keeper: &impl Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    children: &[Child],
    live: &[Live],
    cluster: &dyn Cluster,
) -> Result<Option<Blocked>, ClusterError> {
    let namespace = keeper.namespace().unwrap_or_default();
    let names = own_secrets::referenced(&children.iter().map(|it| &it.object).collect::<Vec<_>>());
    let uid = keeper.meta().uid.as_deref();
    let refused = own_secrets::refused(cluster, &namespace, names, uid).await?;
    Ok(refused.map(|it| Blocked { reason: Reason::SecretNotAllowed, message: refusal_of(it, live) }))
}

/// Says why a Secret is refused, and whether pods may have it already: the Secret may have come after the reference.
fn refusal_of(refused: RefusedSecret, live: &[Live]) -> String {
    let RefusedSecret { name: secret, message } = refused;
    let refers = |it: &&Live| {
        it.key.kind == "Deployment" && own_secrets::referenced(&it.object).iter().any(|it| *it == secret)
    };
    match live.iter().find(refers) {
        None => message,
        Some(deployment) => format!(
            "{message}. Deployment {} refers to the Secret already, so its pods may have read it: remove the reference, \
             delete the pods, and replace the credentials in the Secret",
            deployment.key.name
        ),
    }
}

/// What there is of a Deployment and its pods.
pub async fn seen(
    keeper: &impl Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    deployment: &str,
    pods: &Selector,
    cluster: &dyn Cluster,
) -> Result<Run, ClusterError> {
    Run::of(keeper, self::deployment(keeper, deployment, cluster).await?, pods, cluster).await
}

/// A Deployment, unless it is somebody else's.
pub async fn deployment(
    keeper: &impl Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    name: &str,
    cluster: &dyn Cluster,
) -> Result<Option<Deployment>, ClusterError> {
    let namespace = keeper.namespace().unwrap_or_default();
    let found = cluster.read::<Deployment>(&namespace, name, Reading::Known).await?;
    Ok(found.filter(|it| is_its(keeper, it)))
}

fn typed(live: &Live) -> Option<Deployment> {
    serde_json::from_value(live.object.clone()).ok()
}

/// One of that name that is somebody else's says nothing of ours.
fn is_its(keeper: &impl Resource<DynamicType = ()>, deployment: &Deployment) -> bool {
    let uid = keeper.meta().uid.as_ref();
    deployment.owner_references().iter().any(|it| Some(&it.uid) == uid)
}

/// Takes all pods of a Deployment away and leaves the rest as it is.
pub async fn scale_to_zero(
    keeper: &impl Resource<DynamicType = ()>,
    deployment: &Deployment,
    why: &str,
    cluster: &dyn Cluster,
) -> Result<(), ClusterError> {
    let name = deployment.name_any();
    let key = Key::new("apps/v1", "Deployment", &deployment.namespace().unwrap_or_default(), &name);
    let version = deployment.resource_version();
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": 0}});
    cluster.write(Write::Merge { key: &key, patch: &patch }, "").await?;
    let note = format!("Deployment {name} has no pods any more: {why}");
    tell(keeper, true, (Reason::ScaledToZero, "Update"), &note, cluster).await;
    Ok(())
}

/// The Deployment and its pods.
#[derive(Debug)]
pub struct Run {
    pub deployment: Option<Deployment>,
    replica_sets: Vec<ReplicaSet>,
    pub pods: Vec<Pod>,
    /// What pods in trouble said last, by their names.
    last_lines: BTreeMap<String, String>,
}

impl Run {
    async fn of(
        keeper: &impl Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        deployment: Option<Deployment>,
        labels: &Selector,
        cluster: &dyn Cluster,
    ) -> Result<Self, ClusterError> {
        let deployment = deployment.filter(|it| is_its(keeper, it));
        let namespace = keeper.namespace().unwrap_or_default();
        let replica_sets = cluster.find::<ReplicaSet>(&namespace, labels, Reading::Known).await?;
        let pods = cluster.find::<Pod>(&namespace, labels, Reading::Known).await?;
        Ok(Self { deployment, replica_sets, pods, last_lines: BTreeMap::new() })
    }

    /// Asks pods that are in trouble for their last log lines. These are scrubbed by what whole pods say of their secrets.
    async fn listen(
        &mut self,
        namespace: &str,
        labels: &Selector,
        cluster: &dyn Cluster,
    ) -> Result<(), ClusterError> {
        if matches!(self.rollout(), Some(Rollout::Stuck(_))) {
            let pods = cluster.find::<Pod>(namespace, labels, Reading::Now).await?;
            self.last_lines = pod_logs::of(&pods, namespace, cluster).await;
        }
        Ok(())
    }

    pub fn rollout(&self) -> Option<Rollout> {
        let deployment = self.deployment.as_ref()?;
        let (replica_sets, pods, last_lines) = (&self.replica_sets, &self.pods, &self.last_lines);
        Some(rollout(&RolloutSeen { deployment, replica_sets, pods, last_lines }))
    }

    pub fn ready(&self) -> Option<i32> {
        self.deployment.as_ref()?.status.as_ref()?.ready_replicas
    }

    /// The images of containers that have been started: Coder changes its tables before it answers anybody.
    pub fn started(&self) -> impl Iterator<Item = String> {
        let pods = self.pods.iter().filter_map(|it| it.status.as_ref());
        let containers = pods.flat_map(|it| it.container_statuses.iter().flatten());
        let ran = containers.filter(|it| it.started == Some(true) || it.restart_count > 0);
        let all_run = self.rollout() == Some(Rollout::Done);
        let template = self.deployment.iter().filter(move |_| all_run);
        let template = template.filter_map(|it| it.spec.as_ref()?.template.spec.as_ref());
        let template = template.flat_map(|it| it.containers.iter().filter_map(|it| it.image.clone()));
        ran.map(|it| it.image.clone()).chain(template)
    }
}

/// What is found under the names of children.
struct Namesakes {
    found: Vec<Live>,
    /// Those in other namespaces that the operator may not read, with the API server's answer.
    forbidden: BTreeMap<Key, String>,
}

/// What has the name of something that should be ours and not our labels: somebody else's, most likely.
async fn namesakes(
    children: Vec<&Child>,
    own_namespace: &str,
    cluster: &dyn Cluster,
) -> Result<Namesakes, ClusterError> {
    let mut namesakes = Namesakes { found: Vec::new(), forbidden: BTreeMap::new() };
    let reads = children.into_iter().map(async |child| (child, cluster.get(&child.key, Reading::Now).await));
    for (child, read) in join_all(reads).await {
        match read {
            Ok(object) => namesakes.found.extend(object),
            Err(error) if error.code() == Some(403) && child.key.namespace != own_namespace => {
                namesakes.forbidden.insert(child.key.clone(), error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(namesakes)
}

/// The children without those that the operator may not read, and a notice for each of these.
fn without(children: &[Child], forbidden: &BTreeMap<Key, String>) -> (Vec<Child>, Vec<Blocked>) {
    let (left_out, kept): (Vec<Child>, Vec<Child>) =
        children.iter().cloned().partition(|it| forbidden.contains_key(&it.key));
    let notices = left_out.iter().filter_map(|it| {
        let answer = forbidden.get(&it.key)?;
        let message = format!("{} is left out: {answer}. Apply {WORKSPACES_ROLE} in that namespace", it.key);
        Some(Blocked { reason: Reason::NotPermitted, message })
    });
    (kept, notices.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_secret_that_running_pods_refer_to_is_reported() {
        let live = |kind: &str, secret: &str| {
            let container = json!({"name": "coder", "envFrom": [{"secretRef": {"name": secret}}]});
            Live::new(json!({"apiVersion": "apps/v1", "kind": kind,
                "metadata": {"name": "main", "namespace": "platform"},
                "spec": {"template": {"spec": {"containers": [container]}}}}))
            .unwrap()
        };
        let message = |live: Live| {
            let (name, message) = ("token".to_owned(), "Secret token is refused".to_owned());
            refusal_of(RefusedSecret { name, message }, &[live])
        };
        assert!(
            message(live("Deployment", "token")).contains("Deployment main refers to the Secret already")
        );
        for other in [live("Deployment", "other"), live("Job", "token")] {
            assert_eq!(message(other), "Secret token is refused");
        }
    }
}
