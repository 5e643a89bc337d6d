//! The engine's port to Kubernetes: requests with the operator's client, and what its watches have shown.

#![expect(clippy::disallowed_methods, reason = "what the port does is done here")]

use std::sync::{Arc, OnceLock};

use api::{CoderControlPlane, Reason};
use engine::{
    Cluster,
    objects::{FIELD_MANAGER, Key, Live},
    ports::{Answer, ClusterError, Event, List, Log, Only, RandomBytes, Reading, Write},
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Namespace, ObjectReference, Pod, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams, Preconditions,
    },
    core::GroupVersionKind,
    runtime::{
        events::EventType,
        reflector::{ObjectRef, Store},
    },
};
use serde_json::Value;

use crate::telemetry::metrics::Metrics;

use super::{
    events::{Events, Words},
    left::Left,
    own_writes::OwnWrites,
    owned::Owned,
    patches,
    secret_cache::SecretCache,
    writes,
};

/// The cluster that this operator works in.
pub(crate) struct KubeCluster {
    client: Client,
    /// `None` for a command, which has no watches.
    watches: Option<Watches>,
    /// How a command reports to people.
    say: fn(&str),
}

/// What the watches of the controllers have shown, and where the controllers report.
pub(crate) struct Watches {
    pub(crate) secrets: Arc<SecretCache>,
    pub(crate) owned: Arc<Owned>,
    /// The manifests of control planes, once their controller runs.
    pub(crate) control_planes: Arc<OnceLock<Store<CoderControlPlane>>>,
    pub(crate) own_writes: Arc<OwnWrites>,
    pub(crate) events: Arc<Events>,
    pub(crate) metrics: Arc<Metrics>,
    /// The namespace that is watched. `None` for all of them.
    pub(crate) namespace: Option<String>,
    /// The operator's own Pod, where its environment names it.
    pub(crate) own_pod: Option<ObjectReference>,
    pub(crate) left: Left,
}

impl Watches {
    /// An object that the watch has shown. `None` where it has not, and where nothing watches its kind.
    async fn known(&self, key: &Key) -> Option<Live> {
        if key.kind != CoderControlPlane::kind(&()) {
            return self.owned.get(key).await;
        }
        let found = self.control_planes.get()?.get(&ObjectRef::new(&key.name).within(&key.namespace))?;
        Live::typed(&*found)
    }

    /// Enters the answer to a write of ours.
    fn note(&self, written: &Live, writer: &str) {
        if written.key.kind == Secret::kind(&()) {
            self.secrets.note(written.metadata(), writer);
        } else if written.key.api_version.starts_with(api::GROUP) {
            self.own_writes.note(written.metadata());
        } else {
            self.owned.note(written.clone());
        }
    }

    /// Reports something that stays behind: in a log line, in a metric, and in an Event. A deletion that is retried repeats none
    /// of them; the Event is sent again, should it have been refused, and is a series otherwise.
    async fn left_behind(&self, about: &ObjectReference, reason: Reason, note: &str) {
        if self.left.is_new(about.uid.as_deref().unwrap_or_default(), note) {
            tracing::warn!(%reason, "{note}");
            self.metrics.left_behind(about.kind.clone().unwrap_or_default().into());
        }
        let words = Words { type_: EventType::Warning, reason: Reason::LeftBehind, action: "Delete", note };
        self.events.publish_surely(about, words, self.own_pod.as_ref()).await;
    }
}

impl std::fmt::Debug for KubeCluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("KubeCluster")
    }
}

impl KubeCluster {
    pub(crate) fn new(client: Client, watches: Watches) -> Self {
        Self { client, watches: Some(watches), say: |_| {} }
    }

    /// A cluster without watches, for a command that reports to people with `say`.
    pub(crate) fn unwatched(client: Client, say: fn(&str)) -> Self {
        Self { client, watches: None, say }
    }

    /// The namespace of the Kubernetes context.
    pub(crate) fn default_namespace(&self) -> &str {
        self.client.default_namespace()
    }

    fn api(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
    ) -> (Api<DynamicObject>, ApiResource) {
        let resource = resource(api_version, kind);
        let client = self.client.clone();
        let api = match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        (api, resource)
    }

    fn objects(&self, key: &Key) -> (Api<DynamicObject>, ApiResource) {
        self.api(&key.api_version, &key.kind, Some(&key.namespace))
    }

    /// Objects that the watch has shown. `None` where nothing watches their kind, or not reliably.
    async fn known_list(&self, list: &List<'_>) -> Option<Vec<Live>> {
        self.watches.as_ref()?.owned.list(list.kind, list.namespace?, &list.labels).await
    }

    async fn written(&self, write: Write<'_>) -> Result<Live, ClusterError> {
        let (key, written, resource) = match write {
            Write::Create(object) => {
                let (key, object) = decoded(object)?;
                let (objects, resource) = self.objects(&key);
                (key, objects.create(&writes(), &object).await, resource)
            }
            Write::Replace(object) => {
                let (key, object) = decoded(object)?;
                let (objects, resource) = self.objects(&key);
                let written = objects.replace(&key.name, &writes(), &object).await;
                (key, written, resource)
            }
            Write::Apply(object) => {
                let (key, _) = decoded(object)?;
                let (objects, resource) = self.objects(&key);
                let params = PatchParams::apply(FIELD_MANAGER).force();
                let written = objects.patch(&key.name, &params, &Patch::Apply(object)).await;
                (key, written, resource)
            }
            Write::Merge { key, patch } => {
                let (objects, resource) = self.objects(key);
                let written = objects.patch(&key.name, &patches(), &Patch::Merge(patch)).await;
                (key.clone(), written, resource)
            }
            Write::ReplaceStatus(object) => {
                let (key, object) = decoded(object)?;
                let (objects, resource) = self.objects(&key);
                let written = objects.replace_status(&key.name, &writes(), &object).await;
                (key, written, resource)
            }
            Write::MergeStatus { key, patch } => {
                let (objects, resource) = self.objects(key);
                let written = objects.patch_status(&key.name, &patches(), &Patch::Merge(patch)).await;
                (key.clone(), written, resource)
            }
        };
        live(written.map_err(failure)?, &resource, &key)
    }
}

impl Cluster for KubeCluster {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn random(&self) -> RandomBytes {
        super::random()
    }

    fn get<'a>(&'a self, key: &'a Key, reading: Reading) -> Answer<'a, Option<Live>> {
        Box::pin(async move {
            if reading == Reading::Known
                && let Some(watches) = &self.watches
                && let Some(known) = watches.known(key).await
            {
                return Ok(Some(known));
            }
            let (objects, resource) = self.objects(key);
            let found = objects.get_opt(&key.name).await.map_err(failure)?;
            found.map(|it| live(it, &resource, key)).transpose()
        })
    }

    fn secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        reader: &'a str,
    ) -> Answer<'a, Option<Secret>> {
        Box::pin(async move {
            let found = Api::<Secret>::namespaced(self.client.clone(), namespace).get_opt(name).await;
            let found = found.map_err(failure)?;
            if let (Some(secret), Some(watches)) = (&found, &self.watches) {
                watches.secrets.note(&secret.metadata, reader);
            }
            Ok(found)
        })
    }

    fn secret_metadata<'a>(&'a self, namespace: &'a str, name: &'a str) -> Answer<'a, Option<ObjectMeta>> {
        Box::pin(async move {
            let Some(watches) = &self.watches else {
                let secrets = Api::<Secret>::namespaced(self.client.clone(), namespace);
                let found = secrets.get_metadata_opt(name).await.map_err(failure)?;
                return Ok(found.map(|it| it.metadata));
            };
            let found = watches.secrets.metadata(&self.client, namespace, name).await.map_err(failure)?;
            Ok(found.map(|it| (*it).clone()))
        })
    }

    fn secrets<'a>(&'a self, namespace: &'a str) -> Answer<'a, Vec<ObjectMeta>> {
        Box::pin(async move {
            let secrets = Api::<Secret>::namespaced(self.client.clone(), namespace);
            let found = secrets.list_metadata(&ListParams::default()).await.map_err(failure)?;
            Ok(found.into_iter().map(|it| it.metadata).collect())
        })
    }

    fn namespace<'a>(&'a self, name: &'a str) -> Answer<'a, Option<ObjectMeta>> {
        Box::pin(async move {
            let namespaces = Api::<Namespace>::all(self.client.clone());
            let found = namespaces.get_metadata_opt(name).await.map_err(failure)?;
            Ok(found.map(|it| it.metadata))
        })
    }

    fn served_namespace(&self) -> Option<String> {
        self.watches.as_ref()?.namespace.clone()
    }

    fn list<'a>(&'a self, list: &'a List<'a>, reading: Reading) -> Answer<'a, Vec<Live>> {
        Box::pin(async move {
            if reading == Reading::Known
                && let Some(known) = self.known_list(list).await
            {
                return Ok(known);
            }
            let served = self.served_namespace();
            let namespace = list.namespace.or(served.as_deref());
            let (objects, resource) = self.api(list.api_version, list.kind, namespace);
            let params = ListParams::default().labels(&list.labels.to_string());
            let found = objects.list(&params).await.map_err(failure)?.items;
            Ok(found.into_iter().filter_map(|it| Live::of(it, &resource)).collect())
        })
    }

    fn log<'a>(&'a self, log: &'a Log<'a>) -> Answer<'a, String> {
        Box::pin(async move {
            let params = LogParams {
                container: Some(log.container.to_owned()),
                previous: log.previous,
                tail_lines: Some(log.lines),
                limit_bytes: Some(log.bytes),
                ..LogParams::default()
            };
            let pods = Api::<Pod>::namespaced(self.client.clone(), log.namespace);
            pods.logs(log.pod, &params).await.map_err(failure)
        })
    }

    fn write<'a>(&'a self, write: Write<'a>, writer: &'a str) -> Answer<'a, Live> {
        Box::pin(async move {
            let written = self.written(write).await?;
            if let Some(watches) = &self.watches {
                watches.note(&written, writer);
            }
            Ok(written)
        })
    }

    fn delete<'a>(&'a self, key: &'a Key, only: Only<'a>) -> Answer<'a, ()> {
        Box::pin(async move {
            let preconditions = Preconditions {
                uid: Some(only.uid.to_owned()),
                resource_version: only.version.map(str::to_owned),
            };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
            match self.objects(key).0.delete(&key.name, &params).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                done => done.map(drop).map_err(failure),
            }
        })
    }

    fn event<'a>(&'a self, about: &'a ObjectReference, event: Event<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Event { is_warning, reason, action, note, must_be_written } = event;
            tracing::info!(%reason, action, "{note}");
            let type_ = if is_warning { EventType::Warning } else { EventType::Normal };
            let Some(watches) = &self.watches else { return (self.say)(note) };
            if must_be_written {
                let words = Words { type_, reason, action, note };
                watches.events.publish_surely(about, words, watches.own_pod.as_ref()).await;
            } else {
                watches.events.send(about.clone(), type_, (reason, action), note.to_owned());
            }
        })
    }

    fn left_behind<'a>(
        &'a self,
        about: &'a ObjectReference,
        reason: Reason,
        note: &'a str,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            match &self.watches {
                Some(watches) => watches.left_behind(about, reason, note).await,
                // A command has no log: its standard error is for people.
                None => (self.say)(note),
            }
        })
    }
}

/// The resource of a kind.
fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

fn decoded(object: &Value) -> Result<(Key, DynamicObject), ClusterError> {
    let key = Key::of(object).ok_or_else(|| ClusterError::NoAnswer("an object without a name".to_owned()))?;
    let object = serde_json::from_value(object.clone());
    Ok((key, object.map_err(|error| ClusterError::NoAnswer(error.to_string()))?))
}

fn live(object: DynamicObject, resource: &ApiResource, key: &Key) -> Result<Live, ClusterError> {
    Live::of(object, resource)
        .ok_or_else(|| ClusterError::NoAnswer(format!("{key} cannot be read as an object")))
}

fn failure(error: kube::Error) -> ClusterError {
    match error {
        kube::Error::Api(status) => ClusterError::Refused(status),
        other => ClusterError::NoAnswer(format!("{:#}", anyhow::Error::from(other))),
    }
}
