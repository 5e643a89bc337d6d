//! A control plane that we run, as objects of the cluster: what it reads, what is there, what is applied, what became of it.

use std::collections::{BTreeMap, BTreeSet};

use api::{CoderControlPlane, reason};
use engine::{
    Action, Step, Waiting,
    control_plane::{
        ChildEffect, Desired, FIELD_MANAGER, Facts, KINDS, Key, Live, Notice, Situation,
        children::Deployed,
        consents, desire, plan,
        references::{Reference, Source, references},
        report::Workload,
        rollout::{Rollout, Seen, rollout},
        selector, version, workspace_selector,
    },
};
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{ConfigMap, Namespace, Pod, Secret},
};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions},
    core::GroupVersionKind,
    runtime::events::EventType,
};
use secrecy::ExposeSecret as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::vault::TokenSecret;
use crate::run::{
    Shared,
    record::{patches, publish},
};

/// One more where the cluster has it.
const GATEWAY: (&str, &str, &str) = ("gateway.networking.k8s.io", "v1", "HTTPRoute");

/// Makes the objects what the manifest says, and tells what became of them.
pub(super) async fn keep(plane: &CoderControlPlane, shared: &Shared) -> Result<Workload, kube::Error> {
    let has_gateway = has_gateway_api(plane, shared).await?;
    let mut live = live(plane, has_gateway, shared).await?;
    let facts = match facts(plane, &live, has_gateway, shared).await {
        Ok(facts) => facts,
        Err(waiting) => return Ok(Workload::stopped(waiting)),
    };
    let desired = match desire(plane, &facts) {
        Ok(desired) => desired,
        Err(invalid) => {
            let message = format!("{}: {}", invalid.field, invalid.message);
            return Ok(Workload::stopped(Waiting { reason: reason::INVALID, message }));
        }
    };
    live.extend(namesakes(&desired, &live, shared).await?);
    let seen = Run::read(plane, shared).await?;
    let is_rolled_out = seen.rollout() == Some(Rollout::Done);
    let planned = plan(&Situation { plane, desired: &desired, live: &live, rolled_out: is_rolled_out });
    for step in &planned.plan.steps {
        carry_out(plane, step, shared).await?;
    }
    let seen = if planned.plan.is_empty() { seen } else { Run::read(plane, shared).await? };
    Ok(outcome(plane, &desired, planned.refused, &seen))
}

/// How it stands after the writes.
fn outcome(plane: &CoderControlPlane, desired: &Desired, refused: Vec<Notice>, seen: &Run) -> Workload {
    let known = plane.status.as_ref().and_then(|it| it.database_version.as_deref());
    let started: Vec<String> = seen.started().collect();
    let holds_up = |it: &Notice| [reason::DOWNGRADE_REFUSED, reason::NOT_OURS].contains(&it.reason);
    let waiting = |it: Notice| Waiting { reason: it.reason, message: it.message };
    let (grave, notices): (Vec<Notice>, Vec<Notice>) =
        refused.into_iter().chain(desired.notices.iter().cloned()).partition(holds_up);
    let standing = match (grave.into_iter().next(), seen.rollout()) {
        (Some(notice), _) => Err(waiting(notice)),
        (None, Some(Rollout::Done)) => Ok(()),
        (None, Some(Rollout::Stuck(message))) => Err(Waiting { reason: reason::ROLLOUT_STUCK, message }),
        (None, Some(Rollout::Progressing(message))) => Err(Waiting { reason: reason::PROGRESSING, message }),
        (None, None) => {
            let message = "the Deployment is not there yet".to_owned();
            Err(Waiting { reason: reason::PROGRESSING, message })
        }
    };
    Workload {
        standing,
        ready_replicas: seen.ready(),
        database_version: version::newest(known, None, started.iter().map(String::as_str)),
        notices: notices.into_iter().map(|it| it.message).collect(),
    }
}

/// The Deployment and its pods.
struct Run {
    deployment: Option<Deployment>,
    replica_sets: Vec<ReplicaSet>,
    pods: Vec<Pod>,
}

impl Run {
    async fn read(plane: &CoderControlPlane, shared: &Shared) -> Result<Self, kube::Error> {
        let (namespace, client) = (plane.namespace().unwrap_or_default(), &shared.client);
        let deployments = Api::<Deployment>::namespaced(client.clone(), &namespace);
        let deployment = deployments.get_opt(&plane.name_any()).await?;
        let is_done = |it: &Deployment| {
            let none = BTreeMap::new();
            let seen = Seen { deployment: it, replica_sets: &[], pods: &[], last_lines: &none };
            rollout(&seen) == Rollout::Done
        };
        // The single pods are looked at only while something is not as it should be.
        if deployment.as_ref().is_none_or(is_done) {
            return Ok(Self { deployment, replica_sets: Vec::new(), pods: Vec::new() });
        }
        let ours = ListParams::default().labels(&selector(plane));
        let replica_sets = Api::<ReplicaSet>::namespaced(client.clone(), &namespace).list(&ours).await?.items;
        let pods = Api::<Pod>::namespaced(client.clone(), &namespace).list(&ours).await?.items;
        Ok(Self { deployment, replica_sets, pods })
    }

    fn rollout(&self) -> Option<Rollout> {
        let none = BTreeMap::new();
        let deployment = self.deployment.as_ref()?;
        let (replica_sets, pods) = (&self.replica_sets, &self.pods);
        Some(rollout(&Seen { deployment, replica_sets, pods, last_lines: &none }))
    }

    fn ready(&self) -> Option<i32> {
        self.deployment.as_ref()?.status.as_ref()?.ready_replicas
    }

    /// The images of containers that have been started: Coder changes its tables before it answers anybody.
    fn started(&self) -> impl Iterator<Item = String> {
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

async fn facts(
    plane: &CoderControlPlane,
    live: &[Live],
    gateway_api: bool,
    shared: &Shared,
) -> Result<Facts, Waiting> {
    let unreadable = |what: &str, error: &kube::Error| Waiting {
        reason: reason::SECRET_UNREADABLE,
        message: format!("{what} cannot be read: {error}"),
    };
    let namespace = plane.namespace().unwrap_or_default();
    let wanted = references(&plane.spec);
    let mut sources = BTreeMap::new();
    if !wanted.is_empty() {
        let key = TokenSecret::fingerprint_key(plane, shared).await?;
        for reference in wanted {
            let found = match &reference {
                Reference::Secret(name) => {
                    let secrets = Api::<Secret>::namespaced(shared.client.clone(), &namespace);
                    let found = secrets.get_opt(name).await.map_err(|it| unreadable(name, &it))?;
                    found.map(|it| {
                        it.data.into_iter().flatten().map(|(key, it)| (key, it.0)).collect::<Vec<_>>()
                    })
                }
                Reference::ConfigMap(name) => {
                    let maps = Api::<ConfigMap>::namespaced(shared.client.clone(), &namespace);
                    let found = maps.get_opt(name).await.map_err(|it| unreadable(name, &it))?;
                    found.map(|it| {
                        it.data
                            .into_iter()
                            .flatten()
                            .map(|(key, it)| (key, it.into_bytes()))
                            .collect::<Vec<_>>()
                    })
                }
            };
            if let Some(values) = found {
                sources.insert(reference, source(&values, key.expose_secret()));
            }
        }
    }
    let consenting = consenting(plane, shared).await.map_err(|it| unreadable("a namespace", &it))?;
    let deployed = live.iter().find(|it| it.key.kind == "Deployment" && it.key.name == plane.name_any());
    Ok(Facts {
        sources,
        gateway_api,
        consenting,
        allowed_rules: Vec::new(),
        deployed: deployed.map(|it| Deployed::of(&it.object)),
        database_version: plane.status.as_ref().and_then(|it| it.database_version.clone()),
    })
}

/// What a Secret or a ConfigMap holds, as far as pods care. The fingerprint is made with a key that only we have, because it
/// ends in an annotation that more people may read than the Secret.
fn source(values: &[(String, Vec<u8>)], key: &[u8]) -> Source {
    let mut hash = Sha256::new();
    let sorted: BTreeMap<&String, &Vec<u8>> = values.iter().map(|(key, value)| (key, value)).collect();
    hash.update(key);
    for (name, value) in &sorted {
        for part in [name.as_bytes(), value] {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
    }
    let fingerprint = base16ct::lower::encode_string(&hash.finalize());
    Source { keys: sorted.into_keys().cloned().collect(), fingerprint }
}

/// The declared namespaces that consent to take workspaces.
async fn consenting(plane: &CoderControlPlane, shared: &Shared) -> Result<BTreeSet<String>, kube::Error> {
    let declared = plane.spec.rbac.iter().flat_map(|it| it.workspace_namespaces.iter().flatten());
    let (namespaces, mut consenting) = (Api::<Namespace>::all(shared.client.clone()), BTreeSet::new());
    for name in declared {
        let found = namespaces.get_metadata_opt(name).await?;
        if found.is_some_and(|it| consents(plane, it.labels())) {
            consenting.insert(name.clone());
        }
    }
    Ok(consenting)
}

/// Whether the cluster has what an exposure by Gateway needs. It may come at any time, so it is asked each time.
async fn has_gateway_api(plane: &CoderControlPlane, shared: &Shared) -> Result<bool, kube::Error> {
    if plane.spec.expose.as_ref().is_none_or(|it| it.gateway.is_none()) {
        return Ok(false);
    }
    match shared.client.list_api_group_resources("gateway.networking.k8s.io/v1").await {
        Ok(found) => Ok(found.resources.iter().any(|it| it.kind == GATEWAY.2)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

/// Every object that has our labels.
async fn live(
    plane: &CoderControlPlane,
    has_gateway: bool,
    shared: &Shared,
) -> Result<Vec<Live>, kube::Error> {
    let namespace = plane.namespace().unwrap_or_default();
    let mut found: BTreeMap<Key, Live> = BTreeMap::new();
    for (group, version, kind) in KINDS.into_iter().chain(has_gateway.then_some(GATEWAY)) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let here = Api::<DynamicObject>::namespaced_with(shared.client.clone(), &namespace, &resource);
        let mut objects = here.list(&ListParams::default().labels(&selector(plane))).await?.items;
        if kind.starts_with("Role") {
            let everywhere = match &shared.namespace {
                Some(only) => Api::namespaced_with(shared.client.clone(), only, &resource),
                None => Api::<DynamicObject>::all_with(shared.client.clone(), &resource),
            };
            let ours = ListParams::default().labels(&workspace_selector(plane));
            objects.extend(everywhere.list(&ours).await?.items);
        }
        found.extend(objects.into_iter().filter_map(|it| as_live(it, &resource)));
    }
    Ok(found.into_values().collect())
}

/// What has the name of something that should be ours and not our labels: somebody else's, most likely.
async fn namesakes(desired: &Desired, live: &[Live], shared: &Shared) -> Result<Vec<Live>, kube::Error> {
    let mut found = Vec::new();
    for child in desired.children.iter().filter(|it| live.iter().all(|live| live.key != it.key)) {
        let object = objects(&child.key, shared).get_opt(&child.key.name).await?;
        found.extend(object.and_then(|it| as_live(it, &resource_of(&child.key))).map(|(_, it)| it));
    }
    Ok(found)
}

/// Items of a list do not say what they are.
fn as_live(mut object: DynamicObject, resource: &ApiResource) -> Option<(Key, Live)> {
    let (api_version, kind) = (resource.api_version.clone(), resource.kind.clone());
    object.types = Some(kube::core::TypeMeta { api_version, kind });
    let live = Live::new(serde_json::to_value(object).ok()?)?;
    Some((live.key.clone(), live))
}

/// Does one step and nothing else.
async fn carry_out(
    plane: &CoderControlPlane,
    step: &Step<ChildEffect>,
    shared: &Shared,
) -> Result<(), kube::Error> {
    let key = match &step.effect {
        ChildEffect::Migrate { key, patch } => {
            objects(key, shared).patch(&key.name, &patches(), &Patch::Merge(patch)).await?;
            key
        }
        ChildEffect::Apply { key, object } | ChildEffect::Release { key, object } => {
            apply(key, object, shared).await?;
            key
        }
        ChildEffect::Delete { key, uid } => {
            let preconditions = Some(Preconditions { uid: Some(uid.clone()), resource_version: None });
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
    publish(plane, EventType::Normal, (&format!("{action}d"), &action), &note, shared).await;
    Ok(())
}

async fn apply(key: &Key, object: &Value, shared: &Shared) -> Result<(), kube::Error> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    objects(key, shared).patch(&key.name, &params, &Patch::Apply(object)).await?;
    Ok(())
}

fn objects(key: &Key, shared: &Shared) -> Api<DynamicObject> {
    Api::namespaced_with(shared.client.clone(), &key.namespace, &resource_of(key))
}

fn resource_of(key: &Key) -> ApiResource {
    let (group, version) = key.api_version.split_once('/').unwrap_or(("", &key.api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &key.kind))
}
