//! The engine's port to Kubernetes: requests and watches with the operator's clients.

#![expect(clippy::disallowed_methods, reason = "what the port does is done here")]

use std::sync::Arc;

use api::Reason;
use engine::{
    Cluster,
    objects::{FIELD_MANAGER, Key, Live},
    ports::{Answer, ClusterError, Event, List, Log, Only, RandomBytes, Reading, Watch, WatchEvents, Write},
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Namespace, ObjectReference, Pod, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams, Preconditions,
    },
    runtime::events::EventType,
};
use serde_json::Value;

use super::{
    Clients,
    events::{Events, Words},
    failure, patches, resource, watch, writes,
};

/// The version that an object has while it does not exist, and no other one: etcd begins with the next. The API server compares
/// it with that of an object of the name, and ignores it where there is none.
const NO_VERSION: &str = "1";

/// The cluster that this operator works in, by requests alone.
pub(crate) struct KubeCluster {
    client: Client,
    /// For watches, which may hear nothing for minutes.
    watching: Client,
    /// The only namespace that the operator serves. `None` where it serves all.
    namespace: Option<String>,
    reporter: Reporter,
}

/// Where people read what happened to an object.
pub(crate) enum Reporter {
    /// In Events.
    Events {
        events: Arc<Events>,
        /// The operator's own Pod, where its environment names it.
        own_pod: Option<ObjectReference>,
    },
    /// On the standard error of a command.
    Terminal(fn(&str)),
}

impl std::fmt::Debug for KubeCluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("KubeCluster")
    }
}

impl KubeCluster {
    /// A cluster for controllers, which report in Events.
    pub(crate) fn new(clients: &Clients, namespace: Option<String>, reporter: Reporter) -> Self {
        let (client, watching) = (clients.acting.clone(), clients.watching.clone());
        Self { client, watching, namespace, reporter }
    }

    /// A cluster for a command that reports to people with `say`.
    pub(crate) fn for_command(client: Client, say: fn(&str)) -> Self {
        let (watching, reporter) = (client.clone(), Reporter::Terminal(say));
        Self { client, watching, namespace: None, reporter }
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

    async fn applied(
        &self,
        object: &Value,
    ) -> Result<(Key, kube::Result<DynamicObject>, ApiResource), ClusterError> {
        let (key, _) = decoded(object)?;
        let (objects, resource) = self.objects(&key);
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let written = objects.patch(&key.name, &params, &Patch::Apply(object)).await;
        Ok((key, written, resource))
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
            Write::Apply(object) => self.applied(object).await?,
            Write::ApplyNew(object) => {
                let mut object = object.clone();
                object["metadata"]["resourceVersion"] = NO_VERSION.into();
                self.applied(&object).await?
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

    fn get<'a>(&'a self, key: &'a Key, _: Reading) -> Answer<'a, Option<Live>> {
        Box::pin(async move {
            let (objects, resource) = self.objects(key);
            let found = objects.get_opt(&key.name).await.map_err(failure)?;
            found.map(|it| live(it, &resource, key)).transpose()
        })
    }

    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str, _: &'a str) -> Answer<'a, Option<Secret>> {
        Box::pin(async move {
            let secrets = Api::<Secret>::namespaced(self.client.clone(), namespace);
            secrets.get_opt(name).await.map_err(failure)
        })
    }

    fn secret_metadata<'a>(&'a self, namespace: &'a str, name: &'a str) -> Answer<'a, Option<ObjectMeta>> {
        Box::pin(async move {
            let secrets = Api::<Secret>::namespaced(self.client.clone(), namespace);
            let found = secrets.get_metadata_opt(name).await.map_err(failure)?;
            Ok(found.map(|it| it.metadata))
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
        self.namespace.clone()
    }

    fn list<'a>(&'a self, list: &'a List<'a>, _: Reading) -> Answer<'a, Vec<Live>> {
        Box::pin(async move {
            let namespace = list.namespace.or(self.namespace.as_deref());
            let (objects, resource) = self.api(list.api_version, list.kind, namespace);
            let params = ListParams::default().labels(&list.labels.to_string());
            let found = objects.list(&params).await.map_err(failure)?.items;
            Ok(found.into_iter().filter_map(|it| Live::of(it, &resource)).collect())
        })
    }

    fn watch(self: Arc<Self>, watch: Watch) -> WatchEvents {
        watch::events(self.watching.clone(), &watch, self.namespace.as_deref())
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

    fn write<'a>(&'a self, write: Write<'a>, _: &'a str) -> Answer<'a, Live> {
        Box::pin(self.written(write))
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
            match &self.reporter {
                Reporter::Terminal(say) => say(note),
                Reporter::Events { events, own_pod } if must_be_written => {
                    let words = Words { type_, reason, action, note };
                    events.publish_surely(about, words, own_pod.as_ref()).await;
                }
                Reporter::Events { events, .. } => {
                    events.send(about.clone(), type_, (reason, action), note.to_owned());
                }
            }
        })
    }

    fn left_behind<'a>(&'a self, about: &'a ObjectReference, _: Reason, note: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            match &self.reporter {
                // A command has no log: its standard error is for people.
                Reporter::Terminal(say) => say(note),
                Reporter::Events { events, own_pod } => {
                    let (type_, reason) = (EventType::Warning, Reason::LeftBehind);
                    let words = Words { type_, reason, action: "Delete", note };
                    events.publish_surely(about, words, own_pod.as_ref()).await;
                }
            }
        })
    }
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
