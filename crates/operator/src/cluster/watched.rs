//! The engine's port over a cluster, with what the watches of the controllers have shown in front of it.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use api::{CoderControlPlane, Reason};
use engine::{
    Cluster,
    objects::{Key, Live},
    ports::{Answer, Event, List, Log, Only, RandomBytes, Reading, Watch, WatchEvents, Write},
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ObjectReference, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Resource as _,
    runtime::reflector::{ObjectRef, Store},
};

use super::{left::Left, own_writes::OwnWrites, owned::Owned, secret_cache::SecretCache};
use crate::telemetry::metrics::Metrics;

/// A cluster as the controllers see it. Answers to their own writes are entered into what the watches have shown.
pub(crate) struct WatchedCluster {
    pub(crate) behind: Arc<dyn Cluster>,
    pub(crate) secrets: Arc<SecretCache>,
    pub(crate) owned: Arc<Owned>,
    /// The manifests of control planes, once their controller runs.
    pub(crate) control_planes: Arc<OnceLock<Store<CoderControlPlane>>>,
    pub(crate) own_writes: Arc<OwnWrites>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) left: Left,
}

impl WatchedCluster {
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
            self.owned.note(written);
        }
    }
}

impl fmt::Debug for WatchedCluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("WatchedCluster").field(&self.behind).finish()
    }
}

impl Cluster for WatchedCluster {
    fn now(&self) -> Timestamp {
        self.behind.now()
    }

    fn pause(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.behind.pause(time)
    }

    fn random(&self) -> RandomBytes {
        self.behind.random()
    }

    fn get<'a>(&'a self, key: &'a Key, reading: Reading) -> Answer<'a, Option<Live>> {
        Box::pin(async move {
            if reading == Reading::Known
                && let Some(known) = self.known(key).await
            {
                return Ok(Some(known));
            }
            self.behind.get(key, reading).await
        })
    }

    fn secret<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        reader: &'a str,
    ) -> Answer<'a, Option<Secret>> {
        Box::pin(async move {
            let found = self.behind.secret(namespace, name, reader).await?;
            if let Some(secret) = &found {
                self.secrets.note(&secret.metadata, reader);
            }
            Ok(found)
        })
    }

    fn secret_metadata<'a>(&'a self, namespace: &'a str, name: &'a str) -> Answer<'a, Option<ObjectMeta>> {
        Box::pin(async move {
            match self.secrets.known(namespace, name).await {
                Some(known) => Ok(known.map(|it| (*it).clone())),
                None => self.behind.secret_metadata(namespace, name).await,
            }
        })
    }

    fn secrets<'a>(&'a self, namespace: &'a str) -> Answer<'a, Vec<ObjectMeta>> {
        self.behind.secrets(namespace)
    }

    fn namespace<'a>(&'a self, name: &'a str) -> Answer<'a, Option<ObjectMeta>> {
        self.behind.namespace(name)
    }

    fn served_namespace(&self) -> Option<String> {
        self.behind.served_namespace()
    }

    fn list<'a>(&'a self, list: &'a List<'a>, reading: Reading) -> Answer<'a, Vec<Live>> {
        Box::pin(async move {
            if reading == Reading::Known
                && let Some(namespace) = list.namespace
                && let Some(known) = self.owned.list(list.kind, namespace, &list.labels).await
            {
                return Ok(known);
            }
            self.behind.list(list, reading).await
        })
    }

    fn watch(self: Arc<Self>, watch: Watch) -> WatchEvents {
        Arc::clone(&self.behind).watch(watch)
    }

    fn log<'a>(&'a self, log: &'a Log<'a>) -> Answer<'a, String> {
        self.behind.log(log)
    }

    fn write<'a>(&'a self, write: Write<'a>, writer: &'a str) -> Answer<'a, Live> {
        Box::pin(async move {
            let written = self.behind.write(write, writer).await?;
            self.note(&written, writer);
            Ok(written)
        })
    }

    fn delete<'a>(&'a self, key: &'a Key, only: Only<'a>) -> Answer<'a, ()> {
        self.behind.delete(key, only)
    }

    fn event<'a>(&'a self, about: &'a ObjectReference, event: Event<'a>) -> BoxFuture<'a, ()> {
        self.behind.event(about, event)
    }

    /// A deletion that is retried repeats neither the log line nor the metric; the Event is sent again, should it have been
    /// refused, and is a series otherwise.
    fn left_behind<'a>(
        &'a self,
        about: &'a ObjectReference,
        reason: Reason,
        note: &'a str,
    ) -> BoxFuture<'a, ()> {
        if self.left.is_new(about.uid.as_deref().unwrap_or_default(), note) {
            tracing::warn!(%reason, "{note}");
            self.metrics.left_behind(about.kind.clone().unwrap_or_default().into());
        }
        self.behind.left_behind(about, reason, note)
    }
}
