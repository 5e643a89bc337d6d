//! The objects of one namespace, as the bed's administrator reads and writes them.

use std::{collections::BTreeMap, future::ready, time::Duration};

use anyhow::{Context as _, Result, bail};
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams},
    runtime::{
        WatchStreamExt as _,
        conditions::is_crd_established,
        wait::await_condition,
        watcher::{self, Event},
    },
};
use serde_json::Value;
use tokio::time::timeout;

/// Far more than any work takes; only a failure waits this long.
pub(super) const LIMIT: Duration = Duration::from_mins(20);

/// A namespace of the cluster.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) namespace: String,
}

impl Cluster {
    /// Returns the objects of one of our kinds.
    pub(super) fn kind(&self, kind: &str) -> Api<DynamicObject> {
        self.of("coder.com/v1alpha1", kind)
    }

    /// Returns the objects of any kind.
    pub(super) fn of(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(api_version, kind))
    }

    /// Applies a manifest in this namespace.
    pub(super) async fn apply(&self, manifest: &Value) -> Result<()> {
        let mut manifest = manifest.clone();
        manifest["metadata"]["namespace"] = Value::String(self.namespace.clone());
        apply(&self.client, &manifest).await
    }

    /// Waits until objects of one of our kinds are as wanted, and returns when each of them first was.
    pub(super) async fn wait_for(
        &self,
        kind: &str,
        count: usize,
        what: &str,
        is: impl Fn(&DynamicObject) -> bool,
    ) -> Result<BTreeMap<String, Timestamp>> {
        let mut progress = Progress::default();
        let waiting = async {
            let mut events = events(self.kind(kind)).boxed();
            while progress.done() < count {
                match events.next().await {
                    Some(Event::Apply(object) | Event::InitApply(object)) => {
                        progress.note(&object.name_any(), &object.data["status"], is(&object));
                    }
                    Some(_) => {}
                    None => bail!("the watch of {kind} objects ended"),
                }
            }
            Ok(())
        };
        let waited = timeout(LIMIT, waiting).await;
        progress.ended(waited, &format!("{kind} {what}"), count)
    }

    /// Waits until no object of one of our kinds is left, and returns when each of them went.
    pub(super) async fn wait_until_gone(&self, kind: &str) -> Result<BTreeMap<String, Timestamp>> {
        let mut gone = BTreeMap::new();
        let mut left = BTreeMap::new();
        let waiting = async {
            let mut events = events(self.kind(kind)).boxed();
            let mut is_listed = false;
            while !is_listed || !left.is_empty() {
                match events.next().await {
                    Some(Event::Apply(object) | Event::InitApply(object)) => {
                        left.insert(object.name_any(), object.data["status"].clone());
                    }
                    Some(Event::Delete(object)) => {
                        left.remove(&object.name_any());
                        gone.insert(object.name_any(), Timestamp::now());
                    }
                    Some(Event::Init) => left.clear(),
                    Some(Event::InitDone) => is_listed = true,
                    None => bail!("the watch of {kind} objects ended"),
                }
            }
            Ok(())
        };
        match timeout(LIMIT, waiting).await {
            Ok(done) => done.map(|()| gone),
            Err(_) => bail!(
                "{} {kind} objects are not deleted, for example {:#?}",
                left.len(),
                left.first_key_value()
            ),
        }
    }

    /// Deletes an object of one of our kinds.
    pub(super) async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        let deleted = self.kind(kind).delete(name, &DeleteParams::default()).await;
        deleted.map(drop).with_context(|| format!("delete {kind} {name}"))
    }
}

/// Objects, and when each of them was first as wanted.
#[derive(Debug, Default)]
pub(super) struct Progress {
    arrived: BTreeMap<String, Timestamp>,
    /// The last status of an object that is not as wanted yet.
    example: Option<(String, Value)>,
}

impl Progress {
    /// Notes a version of an object.
    pub(super) fn note(&mut self, name: &str, status: &Value, is_as_wanted: bool) {
        if is_as_wanted {
            self.arrived.entry(name.to_owned()).or_insert_with(Timestamp::now);
        } else if !self.arrived.contains_key(name) {
            self.example = Some((name.to_owned(), status.clone()));
        }
    }

    /// Returns how many objects have been as wanted.
    pub(super) fn done(&self) -> usize {
        self.arrived.len()
    }

    /// Returns when each object was first as wanted, or how far a wait came that did not end.
    pub(super) fn ended(
        self,
        waited: Result<Result<()>, tokio::time::error::Elapsed>,
        what: &str,
        count: usize,
    ) -> Result<BTreeMap<String, Timestamp>> {
        match waited {
            Ok(done) => done.map(|()| self.arrived),
            Err(_) => bail!(
                "{} of {count}: {what} after {} min, and for example {:#?} is not",
                self.arrived.len(),
                LIMIT.as_secs() / 60,
                self.example
            ),
        }
    }
}

/// Returns what happens to objects. Watches that fail are opened again.
pub(super) fn events(objects: Api<DynamicObject>) -> impl Stream<Item = Event<DynamicObject>> {
    let config = watcher::Config::default();
    watcher::watcher(objects, config).default_backoff().filter_map(|event| ready(event.ok()))
}

/// Applies a manifest.
pub(super) async fn apply(client: &Client, manifest: &Value) -> Result<()> {
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&manifest["kind"]), text(&manifest["metadata"]["name"]));
    let resource = resource(&text(&manifest["apiVersion"]), &kind);
    let objects: Api<DynamicObject> = match manifest["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply("bench").force();
    let applied = objects.patch(&name, &params, &Patch::Apply(manifest)).await;
    applied.map(drop).with_context(|| format!("apply {kind} {name}"))
}

/// Installs our CustomResourceDefinitions.
pub(super) async fn install(client: &Client) -> Result<()> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for definition in api::crds() {
        let name = definition.name_any();
        let params = PatchParams::apply("bench").force();
        definitions
            .patch(&name, &params, &Patch::Apply(&definition))
            .await
            .with_context(|| format!("apply the definition {name}"))?;
        timeout(LIMIT, await_condition(definitions.clone(), &name, is_crd_established()))
            .await
            .with_context(|| format!("the definition {name} is not established"))?
            .with_context(|| format!("wait for the definition {name}"))?;
    }
    Ok(())
}

/// Whether the status describes this generation.
pub(super) fn is_current(object: &DynamicObject) -> bool {
    let generation = object.metadata.generation;
    generation.is_some() && object.data["status"]["observedGeneration"].as_i64() == generation
}

/// Returns the status of a condition. `None` where the object has no such condition.
pub(super) fn condition<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a str> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    conditions.iter().find(|it| it["type"] == kind)?["status"].as_str()
}

/// Whether an object is Ready at this generation.
pub(super) fn is_ready(object: &DynamicObject) -> bool {
    is_current(object) && condition(object, api::condition::READY) == Some("True")
}

fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
