//! The Kubernetes objects that belong to manifests: one watch per resource, for all controllers.

use std::{collections::BTreeMap, sync::Arc};

use api::label;
use engine::{
    Cluster,
    kinds::provisioner::KINDS,
    objects::{Key, Live},
    ports::{Watch, WatchEvents},
};
use futures::future::BoxFuture;
use k8s_openapi::{
    api::{
        apps::v1::ReplicaSet,
        core::v1::{Pod, PodSpec},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Resource,
    api::ApiResource,
    core::{GroupVersionKind, Selector, SelectorExt as _},
};

use super::{cache::Cache, complaints::Complaints};
use crate::{
    index::{Index, KindName},
    telemetry::metrics::Metrics,
};

/// coder-k8s has given every object this label, and the selectors of Deployments that it made cannot change.
const MANAGED_BY: &str = "coder-k8s";

/// An object as text. As values it takes many times the memory, most of it for `managedFields`.
#[derive(Debug)]
struct Packed {
    labels: BTreeMap<String, String>,
    text: Box<str>,
}

impl Packed {
    fn of(object: &Live) -> Self {
        let labels = object.metadata().labels.clone().unwrap_or_default();
        Self { labels, text: object.object.to_string().into() }
    }

    fn unpack(&self) -> Option<Live> {
        Live::new(serde_json::from_str(&self.text).ok()?)
    }
}

/// The objects that belong to manifests.
#[derive(Debug)]
pub(crate) struct Owned {
    objects: Vec<(ApiResource, Cache<Packed>)>,
    replica_sets: Cache<ReplicaSet>,
    pods: Cache<Pod>,
    index: Arc<Index>,
}

impl Owned {
    pub(crate) fn new(index: Arc<Index>) -> Self {
        let resource = |(group, version, kind): (&str, &str, &str)| {
            ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
        };
        Self {
            objects: KINDS.map(|it| (resource(it), Cache::default())).into(),
            replica_sets: Cache::default(),
            pods: Cache::default(),
            index,
        }
    }

    /// Enters the answer to a write of ours, so that the next reconcile does not wait for the watch.
    pub(crate) fn note(&self, written: &Live) {
        let is_watched =
            written.metadata().labels.iter().flatten().any(|it| it == (&label(), &MANAGED_BY.to_owned()));
        let cache = self.objects.iter().find(|(resource, _)| resource.kind == written.key.kind);
        // The watch does not show an object without the label, and would never remove it.
        if let Some((_, cache)) = cache.filter(|_| is_watched) {
            cache.note(written.metadata(), Packed::of(written));
        }
    }

    /// An object that the watch has shown. `None` where it has not, and where its kind is not watched.
    pub(crate) async fn get(&self, key: &Key) -> Option<Live> {
        let (_, cache) = self.objects.iter().find(|(resource, _)| resource.kind == key.kind)?;
        cache.is_reliable().await.then(|| cache.get(&key.namespace, &key.name)).flatten()?.unpack()
    }

    /// The objects of a namespace that the watch has shown, those that are being deleted included. `None` where nothing watches their
    /// kind, or not reliably. Of a `ReplicaSet` only the metadata is there, and of a pod the fields that callers read.
    pub(crate) async fn list(&self, kind: &str, namespace: &str, labels: &Selector) -> Option<Vec<Live>> {
        if kind == Pod::kind(&()) {
            self.pods.is_reliable().await.then_some(())?;
            let found = self.pods.find(namespace, |it| has(&it.metadata, labels));
            return Some(found.iter().filter_map(|it| Live::typed(&**it)).collect());
        }
        if kind == ReplicaSet::kind(&()) {
            self.replica_sets.is_reliable().await.then_some(())?;
            let found = self.replica_sets.find(namespace, |it| has(&it.metadata, labels));
            return Some(found.iter().filter_map(|it| Live::typed(&**it)).collect());
        }
        let (_, cache) = self.objects.iter().find(|(resource, _)| resource.kind == kind)?;
        cache.is_reliable().await.then_some(())?;
        let found = cache.find(namespace, |it| labels.matches(&it.labels));
        Some(found.iter().filter_map(|it| it.unpack()).collect())
    }

    /// Another client has created, changed or deleted an object.
    fn changed(&self, metadata: &ObjectMeta) {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        for owner in metadata.owner_references.iter().flatten().filter(|it| it.controller == Some(true)) {
            self.index.owned_changed(&owner.kind.clone().into(), namespace, &owner.name);
        }
    }
}

/// The watches, each with the kind that it is for.
pub(crate) fn watches(
    owned: &Arc<Owned>,
    cluster: &Arc<dyn Cluster>,
    metrics: &Arc<Metrics>,
) -> Vec<(KindName, BoxFuture<'static, ()>)> {
    let mut watches: Vec<(KindName, BoxFuture<'static, ()>)> = Vec::new();
    for (index, (resource, _)) in owned.objects.iter().enumerate() {
        let events = selected(cluster, Watch::new(&resource.api_version, &resource.kind));
        let watch = Box::pin(watch_objects(Arc::clone(owned), events, index, Arc::clone(metrics)));
        watches.push((resource.kind.clone().into(), watch));
    }
    let events = selected(cluster, Watch::all::<ReplicaSet>().only_metadata());
    let replica_sets = watch_replica_sets(Arc::clone(owned), events, Arc::clone(metrics));
    watches.push((ReplicaSet::kind(&()), Box::pin(replica_sets)));
    let events = selected(cluster, Watch::all::<Pod>());
    let pods = watch_pods(Arc::clone(owned), events, Arc::clone(metrics));
    watches.push((Pod::kind(&()), Box::pin(pods)));
    watches
}

async fn watch_objects(owned: Arc<Owned>, events: WatchEvents, index: usize, metrics: Arc<Metrics>) {
    let (resource, cache) = &owned.objects[index];
    let failed = Complaints::reported(resource.kind.clone().into(), &metrics);
    cache.follow(events, |it| Some(Packed::of(&it)), |it| owned.changed(it), failed).await;
}

async fn watch_replica_sets(owned: Arc<Owned>, events: WatchEvents, metrics: Arc<Metrics>) {
    let read = |object: Live| {
        let metadata = ObjectMeta { managed_fields: None, ..object.metadata().clone() };
        Some(ReplicaSet { metadata, ..ReplicaSet::default() })
    };
    let failed = Complaints::reported(ReplicaSet::kind(&()), &metrics);
    owned.replica_sets.follow(events, read, |_| {}, failed).await;
}

async fn watch_pods(owned: Arc<Owned>, events: WatchEvents, metrics: Arc<Metrics>) {
    let failed = Complaints::reported(Pod::kind(&()), &metrics);
    let read = |pod: Live| serde_json::from_value(pod.object).ok().map(pruned);
    owned.pods.follow(events, read, |_| {}, failed).await;
}

/// The events of those objects that belong to manifests.
fn selected(cluster: &Arc<dyn Cluster>, watch: Watch) -> WatchEvents {
    let labels = [(label(), MANAGED_BY.to_owned())].into_iter().collect();
    Arc::clone(cluster).watch(watch.labelled(labels))
}

fn label() -> String {
    label::MANAGED_BY.to_owned()
}

fn has(metadata: &ObjectMeta, labels: &Selector) -> bool {
    metadata.labels.as_ref().is_some_and(|it| labels.matches(it))
}

/// Drops the fields of a pod that no caller reads: with thousands of pods they are most of the memory.
fn pruned(mut pod: Pod) -> Pod {
    pod.metadata.managed_fields = None;
    if let Some(spec) = &mut pod.spec {
        let PodSpec { containers, termination_grace_period_seconds, .. } = std::mem::take(spec);
        *spec = PodSpec { containers, termination_grace_period_seconds, ..PodSpec::default() };
        for container in &mut spec.containers {
            container.volume_mounts = None;
            container.args = None;
            container.command = None;
            container.env.iter_mut().for_each(|it| it.retain(|it| it.value_from.is_some()));
        }
    }
    pod
}
