//! The engine's ports over the cluster.

use std::{sync::Arc, time::Duration};

use api::Reason;
use engine::{
    Cluster,
    ports::{
        Answer, ClusterError, Event, List, Log, Only, RandomBytes, Reading, Watch, WatchEvents, Write,
        object::{Key, Live},
    },
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{ObjectReference, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::SelectorExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    MemoryCluster,
    intercept::ClusterCall,
    record::{PodLog, RecordedEvent},
    state::State,
};

impl MemoryCluster {
    async fn read<T: DeserializeOwned>(
        &self,
        call: ClusterCall<'_>,
        key: &Key,
    ) -> Result<Option<T>, ClusterError> {
        let found = self.call(call, |state| Ok(state.objects.get(key).cloned())).await?;
        self.show(key, found.as_ref());
        found.map(|it| decode(key, it)).transpose()
    }
}

impl State {
    fn list(&self, list: &List<'_>) -> Result<Vec<Live>, ClusterError> {
        let refused = self.unlisted.iter().find(|it| it.0 == list.kind && it.1 == list.namespace);
        if let Some((kind, _, code)) = refused {
            return Err(ClusterError::refusal(*code, "", &format!("{kind} cannot be listed")));
        }
        let is_listed = |(key, object): &(&Key, &Value)| {
            let labels = serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default();
            key.api_version == list.api_version
                && key.kind == list.kind
                && list.namespace.is_none_or(|it| it == key.namespace)
                && list.labels.matches(&labels)
        };
        let found = self.objects.iter().filter(is_listed);
        Ok(found.filter_map(|(_, it)| Live::new(it.clone())).collect())
    }

    fn log(&self, log: &Log<'_>) -> Result<String, ClusterError> {
        let Log { namespace, pod, container, previous, lines, bytes } = *log;
        let [namespace, pod, container] = [namespace, pod, container].map(str::to_owned);
        let missing = || ClusterError::refusal(404, "NotFound", &format!("Pod {pod} has no such log"));
        let of = PodLog { namespace, pod: pod.clone(), container, previous };
        let text = self.logs.get(&of).ok_or_else(missing)?;
        let count = |it: i64| usize::try_from(it).unwrap_or_default();
        let all: Vec<&str> = text.split_inclusive('\n').collect();
        let last = all[all.len().saturating_sub(count(lines))..].concat();
        let from = last.len().saturating_sub(count(bytes));
        Ok(String::from_utf8_lossy(&last.as_bytes()[from..]).into_owned())
    }
}

impl Cluster for MemoryCluster {
    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Waits for nothing: the clock is the caller's.
    fn pause(&self, _: Duration) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn random(&self) -> RandomBytes {
        RandomBytes::new(self.lock().random())
    }

    fn get<'a>(&'a self, key: &'a Key, reading: Reading) -> Answer<'a, Option<Live>> {
        Box::pin(async move {
            if reading == Reading::Known
                && let Some(Some(shown)) = self.watched(|it| it.get(key).cloned())
            {
                return Ok(Live::new(shown));
            }
            let found: Option<Value> = self.read(ClusterCall::Get(key), key).await?;
            Ok(found.and_then(Live::new))
        })
    }

    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str, _: &'a str) -> Answer<'a, Option<Secret>> {
        Box::pin(async move {
            let key = Key::new("v1", "Secret", namespace, name);
            self.read(ClusterCall::Secret { namespace, name }, &key).await
        })
    }

    fn secret_metadata<'a>(&'a self, namespace: &'a str, name: &'a str) -> Answer<'a, Option<ObjectMeta>> {
        let key = Key::new("v1", "Secret", namespace, name);
        let shown = self.watched(|it| it.get(&key).cloned()).flatten();
        let found = shown.or_else(|| self.lock().objects.get(&key).cloned());
        let metadata = found.map(|it| decode(&key, it["metadata"].clone())).transpose();
        Box::pin(async { metadata })
    }

    fn secrets<'a>(&'a self, namespace: &'a str) -> Answer<'a, Vec<ObjectMeta>> {
        Box::pin(self.call(ClusterCall::Secrets { namespace }, move |state| {
            let is_listed = |key: &Key| key.kind == "Secret" && key.namespace == namespace;
            let found = state.objects.iter().filter(|(key, _)| is_listed(key));
            found.map(|(key, it)| decode(key, it["metadata"].clone())).collect()
        }))
    }

    fn namespace<'a>(&'a self, name: &'a str) -> Answer<'a, Option<ObjectMeta>> {
        Box::pin(self.call(ClusterCall::Namespace(name), move |state| {
            let key = Key::new("v1", "Namespace", "", name);
            state.namespace(name).map(|it| decode(&key, it["metadata"].clone())).transpose()
        }))
    }

    fn list<'a>(&'a self, list: &'a List<'a>, _: Reading) -> Answer<'a, Vec<Live>> {
        Box::pin(self.call(ClusterCall::List { kind: list.kind }, |state| state.list(list)))
    }

    fn watch(self: Arc<Self>, watch: Watch) -> WatchEvents {
        self.follow(watch)
    }

    fn log<'a>(&'a self, log: &'a Log<'a>) -> Answer<'a, String> {
        Box::pin(self.call(ClusterCall::Log { pod: log.pod }, |state| state.log(log)))
    }

    fn write<'a>(&'a self, write: Write<'a>, _: &'a str) -> Answer<'a, Live> {
        Box::pin(async move {
            let now = self.now();
            let written = self.call(ClusterCall::Write(write), move |state| state.write(write, now)).await?;
            let no_object = || ClusterError::NoAnswer("what was written is no object".to_owned());
            let live = Live::new(written).ok_or_else(no_object)?;
            self.show(&live.key, Some(&live.object));
            Ok(live)
        })
    }

    fn delete<'a>(&'a self, key: &'a Key, only: Only<'a>) -> Answer<'a, ()> {
        let now = self.now();
        Box::pin(self.call(ClusterCall::Delete(key), move |state| state.delete(key, only, now)))
    }

    fn event<'a>(&'a self, about: &'a ObjectReference, event: Event<'a>) -> BoxFuture<'a, ()> {
        let Event { is_warning, reason, action, note, must_be_written: _ } = event;
        let event = RecordedEvent {
            about: about.clone(),
            is_warning,
            reason,
            action: Some(action),
            note: note.to_owned(),
        };
        Box::pin(self.record(event))
    }

    fn left_behind<'a>(
        &'a self,
        about: &'a ObjectReference,
        reason: Reason,
        note: &'a str,
    ) -> BoxFuture<'a, ()> {
        let event = RecordedEvent {
            about: about.clone(),
            is_warning: true,
            reason,
            action: None,
            note: note.to_owned(),
        };
        Box::pin(self.record(event))
    }
}

impl MemoryCluster {
    /// Records an Event. One that an interceptor refuses is lost, as the port has it.
    async fn record(&self, event: RecordedEvent) {
        let note = event.note.clone();
        let kept = |state: &mut State| {
            state.events.push(event);
            Ok(())
        };
        self.call(ClusterCall::Event { note: &note }, kept).await.ok();
    }
}

fn decode<T: DeserializeOwned>(key: &Key, value: Value) -> Result<T, ClusterError> {
    serde_json::from_value(value)
        .map_err(|error| ClusterError::NoAnswer(format!("{key} cannot be decoded: {error}")))
}
