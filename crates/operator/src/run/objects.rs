//! Objects of the cluster that are kept for a manifest: what is there, what is applied, and what became of the pods.

use std::collections::BTreeMap;

use api::Reason;
use engine::{
    Action, Blocked, Step,
    control_plane::children::WORKSPACES_ROLE,
    objects::{
        Child, ChildEffect, FIELD_MANAGER, Keeper, Key, Live, Situation, plan,
        rollout::{Rollout, Seen, rollout},
    },
    own_secrets::{self, RefusedSecret},
};
use futures::future::{join_all, try_join_all};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::Pod,
    },
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions},
    core::{GroupVersionKind, Selector},
    runtime::events::EventType,
};
use serde_json::{Value, json};

use super::{
    Shared,
    kube_cluster::error_of,
    last_words, owned,
    record::{patches, publish, words_of},
};

/// Makes the objects what they should be. Tells what became of the pods of that Deployment, which have these labels, and what
/// was not done because it is somebody else's.
pub(super) async fn keep<K>(
    keeper: &K,
    (deployment, pods): (&str, &Selector),
    children: &[Child],
    mut live: Vec<Live>,
    shared: &Shared,
) -> Result<(Run, Vec<Blocked>), kube::Error>
where
    K: Keeper + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    if let Some(refused) = refused_secret(keeper, children, &live, shared).await? {
        return Ok((seen(keeper, deployment, pods, shared).await?, vec![refused]));
    }
    let own_namespace = keeper.namespace().unwrap_or_default();
    let Namesakes { found, forbidden } = namesakes(children, &live, &own_namespace, shared).await?;
    live.extend(found);
    let (children, mut left_out) = without(children, &forbidden);
    let is_it = |it: &&Live| it.key.kind == "Deployment" && it.key.name == deployment;
    let mut run = Run::of(keeper, live.iter().find(is_it).and_then(typed), pods, shared).await?;
    let rolled_out = run.rollout() == Some(Rollout::Done);
    let mut planned = plan(&Situation { keeper, children: &children, live: &live, rolled_out });
    planned.refused.append(&mut left_out);
    planned.refused.extend(carry_out(keeper, &planned.plan.steps, shared).await?);
    if !planned.plan.is_empty() {
        run = seen(keeper, deployment, pods, shared).await?;
    }
    run.listen(&own_namespace, pods, shared).await?;
    Ok((run, planned.refused))
}

/// A Secret that pods of these objects would be given, and that the operator keeps for itself or for another object.
async fn refused_secret(
    keeper: &impl Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    children: &[Child],
    live: &[Live],
    shared: &Shared,
) -> Result<Option<Blocked>, kube::Error> {
    let namespace = keeper.namespace().unwrap_or_default();
    let names = own_secrets::referenced(&children.iter().map(|it| &it.object).collect::<Vec<_>>());
    let uid = keeper.meta().uid.as_deref();
    let refused = own_secrets::refused(&*shared.cluster, &namespace, names, uid).await.map_err(error_of)?;
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

/// Every object of these kinds that has these labels, in one namespace or wherever we look.
pub(super) async fn labelled(
    kinds: &[(&str, &str, &str)],
    namespace: Option<&str>,
    labels: &Selector,
    shared: &Shared,
) -> Result<Vec<Live>, kube::Error> {
    let ours = ListParams::default().labels(&labels.to_string());
    let lists = kinds.iter().map(async |(group, version, kind)| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let objects: Api<DynamicObject> = match namespace.or(shared.namespace.as_deref()) {
            Some(namespace) => Api::namespaced_with(shared.client.clone(), namespace, &resource),
            None => Api::all_with(shared.client.clone(), &resource),
        };
        let found = objects.list(&ours).await?.items;
        Ok::<Vec<Live>, kube::Error>(found.into_iter().filter_map(|it| Live::of(it, &resource)).collect())
    });
    Ok(try_join_all(lists).await?.into_iter().flatten().collect())
}

/// What the API server says against a step, in words. Everything that may pass by itself stays an error.
fn refusal(step: &Step<ChildEffect>, error: kube::Error) -> Result<Blocked, kube::Error> {
    match error {
        kube::Error::Api(status) if [400, 403, 404, 405, 422].contains(&status.code) => {
            let message = format!("the API server does not take it: {}: {}", step.reason, status.message);
            Ok(Blocked { reason: Reason::NotApplied, message })
        }
        error => Err(error),
    }
}

/// What there is of a Deployment and its pods.
pub(super) async fn seen(
    keeper: &impl Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    deployment: &str,
    pods: &Selector,
    shared: &Shared,
) -> Result<Run, kube::Error> {
    Run::of(keeper, self::deployment(keeper, deployment, shared).await?, pods, shared).await
}

/// A Deployment, unless it is somebody else's.
pub(super) async fn deployment(
    keeper: &impl Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    name: &str,
    shared: &Shared,
) -> Result<Option<Deployment>, kube::Error> {
    let found = owned::deployment(shared, &keeper.namespace().unwrap_or_default(), name).await?;
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
pub(super) async fn scale_to_zero(
    keeper: &impl Resource<DynamicType = ()>,
    deployment: &Deployment,
    why: &str,
    shared: &Shared,
) -> Result<(), kube::Error> {
    let namespace = deployment.namespace().unwrap_or_default();
    let deployments = Api::<Deployment>::namespaced(shared.client.clone(), &namespace);
    let version = deployment.resource_version();
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": 0}});
    deployments.patch(&deployment.name_any(), &patches(), &Patch::Merge(patch)).await?;
    let note = format!("Deployment {} has no pods any more: {why}", deployment.name_any());
    tracing::info!("{note}");
    publish(keeper, EventType::Warning, (Reason::ScaledToZero, "Update"), &note, shared);
    Ok(())
}

/// The Deployment and its pods.
pub(super) struct Run {
    pub(super) deployment: Option<Deployment>,
    replica_sets: Vec<ReplicaSet>,
    pub(super) pods: Vec<Pod>,
    /// What pods in trouble said last, by their names.
    last_lines: BTreeMap<String, String>,
}

impl Run {
    async fn of(
        keeper: &impl Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        deployment: Option<Deployment>,
        labels: &Selector,
        shared: &Shared,
    ) -> Result<Self, kube::Error> {
        let deployment = deployment.filter(|it| is_its(keeper, it));
        let namespace = keeper.namespace().unwrap_or_default();
        let replica_sets = owned::replica_sets(shared, &namespace, labels).await?;
        let pods = owned::pods(shared, &namespace, labels).await?;
        Ok(Self { deployment, replica_sets, pods, last_lines: BTreeMap::new() })
    }

    /// Asks pods that are in trouble for their last log lines. These are scrubbed by what whole pods say of their secrets.
    async fn listen(
        &mut self,
        namespace: &str,
        labels: &Selector,
        shared: &Shared,
    ) -> Result<(), kube::Error> {
        if matches!(self.rollout(), Some(Rollout::Stuck(_))) {
            let pods: Vec<Pod> = owned::list(shared, namespace, labels).await?;
            self.last_lines = last_words::of(&pods, namespace, shared).await;
        }
        Ok(())
    }

    pub(super) fn rollout(&self) -> Option<Rollout> {
        let deployment = self.deployment.as_ref()?;
        let (replica_sets, pods, last_lines) = (&self.replica_sets, &self.pods, &self.last_lines);
        Some(rollout(&Seen { deployment, replica_sets, pods, last_lines }))
    }

    pub(super) fn ready(&self) -> Option<i32> {
        self.deployment.as_ref()?.status.as_ref()?.ready_replicas
    }

    /// The images of containers that have been started: Coder changes its tables before it answers anybody.
    pub(super) fn started(&self) -> impl Iterator<Item = String> {
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
    children: &[Child],
    live: &[Live],
    own_namespace: &str,
    shared: &Shared,
) -> Result<Namesakes, kube::Error> {
    let mut namesakes = Namesakes { found: Vec::new(), forbidden: BTreeMap::new() };
    for child in children.iter().filter(|it| live.iter().all(|live| live.key != it.key)) {
        match objects(&child.key, shared).get_opt(&child.key.name).await {
            Ok(object) => {
                let live = object.and_then(|it| Live::of(it, &resource_of(&child.key)));
                namesakes.found.extend(live);
            }
            Err(kube::Error::Api(status)) if status.code == 403 && child.key.namespace != own_namespace => {
                namesakes.forbidden.insert(child.key.clone(), status.message.clone());
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

/// Carries out the steps and reports those that were done. Creations come together, and are one Event.
async fn carry_out(
    keeper: &impl Resource<DynamicType = ()>,
    steps: &[Step<ChildEffect>],
    shared: &Shared,
) -> Result<Vec<Blocked>, kube::Error> {
    let (mut created, mut refused, mut done) = (Vec::new(), Vec::new(), Ok(()));
    for batch in batches(steps) {
        let groups = batch.into_iter().map(|group| carry_out_group(group, shared));
        for (step, result) in join_all(groups).await.into_iter().flatten() {
            match result {
                Ok(note) if step.action == Action::Create => created.push(note),
                Ok(note) => {
                    publish(keeper, EventType::Normal, words_of(step.action), &note, shared);
                }
                // The same request would be refused again, and nothing else may wait for it.
                Err(error) => match refusal(step, error) {
                    Ok(refusal) => refused.push(refusal),
                    Err(error) => done = Err(error),
                },
            }
        }
        if done.is_err() {
            break;
        }
    }
    if !created.is_empty() {
        publish(keeper, EventType::Normal, words_of(Action::Create), &created.join("; "), shared);
    }
    done.map(|()| refused)
}

/// Steps in the order in which they are carried out: accounts and Roles, then what refers to them, then what goes. Steps of a
/// batch are carried out side by side, those of one object one after the other.
fn batches(steps: &[Step<ChildEffect>]) -> [Vec<Vec<&Step<ChildEffect>>>; 3] {
    let mut batches = [Vec::new(), Vec::new(), Vec::new()];
    let mut groups: BTreeMap<&Key, Vec<&Step<ChildEffect>>> = BTreeMap::new();
    for step in steps {
        groups.entry(step.effect.key()).or_default().push(step);
    }
    for (key, group) in groups {
        let goes = |it: &&Step<ChildEffect>| {
            matches!(it.effect, ChildEffect::Delete { .. } | ChildEffect::Release { .. })
        };
        let is_referred_to = ["ServiceAccount", "Role"].contains(&key.kind.as_str());
        let batch = match (group.iter().any(goes), is_referred_to) {
            (true, _) => 2,
            (false, true) => 0,
            (false, false) => 1,
        };
        batches[batch].push(group);
    }
    batches
}

/// Carries out the steps of one object, up to the first that fails.
async fn carry_out_group<'a>(
    steps: Vec<&'a Step<ChildEffect>>,
    shared: &Shared,
) -> Vec<(&'a Step<ChildEffect>, Result<String, kube::Error>)> {
    let mut results = Vec::new();
    for step in steps {
        let result = carry_out_one(step, shared).await;
        let failed = result.is_err();
        results.push((step, result));
        if failed {
            break;
        }
    }
    results
}

/// Does one step and nothing else. Gives back what there is to say of it.
async fn carry_out_one(step: &Step<ChildEffect>, shared: &Shared) -> Result<String, kube::Error> {
    let key = match &step.effect {
        ChildEffect::Migrate { key, patch } => {
            let migrated = objects(key, shared).patch(&key.name, &patches(), &Patch::Merge(patch)).await?;
            note(key, migrated, shared);
            key
        }
        ChildEffect::Apply { key, object } | ChildEffect::Release { key, object } => {
            apply(key, object, shared).await?;
            key
        }
        ChildEffect::Delete { key, uid, version } => {
            let preconditions =
                Some(Preconditions { uid: Some(uid.clone()), resource_version: version.clone() });
            let params = DeleteParams { preconditions, ..DeleteParams::default() };
            match objects(key, shared).delete(&key.name, &params).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                done => drop(done?),
            }
            key
        }
    };
    let fields: Vec<&str> = step.changes.iter().map(|it| it.field.as_str()).collect();
    // A reason to make something names it already.
    let note = match step.action {
        Action::Create => step.reason.clone(),
        Action::Update | Action::Delete => format!("{key}: {} ({})", step.reason, fields.join(", ")),
    };
    let action = format!("{:?}", step.action);
    tracing::info!(action, "{note}");
    Ok(note)
}

async fn apply(key: &Key, object: &Value, shared: &Shared) -> Result<(), kube::Error> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let applied = objects(key, shared).patch(&key.name, &params, &Patch::Apply(object)).await?;
    note(key, applied, shared);
    Ok(())
}

fn note(key: &Key, written: DynamicObject, shared: &Shared) {
    if let Some(live) = Live::of(written, &resource_of(key)) {
        shared.owned.note(live);
    }
}

fn objects(key: &Key, shared: &Shared) -> Api<DynamicObject> {
    Api::namespaced_with(shared.client.clone(), &key.namespace, &resource_of(key))
}

fn resource_of(key: &Key) -> ApiResource {
    let (group, version) = key.api_version.split_once('/').unwrap_or(("", &key.api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &key.kind))
}

#[cfg(test)]
mod tests {
    use engine::Impact;

    use super::*;

    fn answered(code: u16) -> Result<Blocked, kube::Error> {
        let key = Key::new("apps/v1", "Deployment", "platform", "main");
        let step = Step {
            action: Action::Create,
            impact: Impact::Safe,
            reason: "Deployment platform/main is declared and missing".to_owned(),
            changes: Vec::new(),
            effect: ChildEffect::Apply { key, object: Value::Null },
        };
        let status = kube::core::Status::failure("denied by policy", "Forbidden").with_code(code);
        refusal(&step, kube::Error::Api(status.boxed()))
    }

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

    #[test]
    fn what_the_api_server_refuses_is_told_and_what_may_pass_is_tried_again() {
        for code in [400, 403, 422] {
            let notice = answered(code).unwrap();
            assert_eq!(notice.reason, Reason::NotApplied);
            assert!(notice.message.contains("platform/main") && notice.message.contains("denied by policy"));
        }
        for code in [409, 429, 500, 503] {
            assert!(answered(code).is_err(), "{code}");
        }
    }
}
