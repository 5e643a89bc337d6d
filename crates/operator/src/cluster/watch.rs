//! Watches of Kubernetes, each with a backoff of its own.

use engine::ports::{ClusterError, Watch, WatchEvent, WatchEvents, object::Live};
use futures::{Stream, StreamExt as _, future::ready};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, PartialObjectMeta},
    core::DynamicResourceScope,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use serde_json::json;

use super::{failure, resource};

/// The events of a watch. Without a namespace in the watch it is that of the operator, if it serves only one.
pub(super) fn events(client: Client, watch: &Watch, served: Option<&str>) -> WatchEvents {
    let resource = resource(&watch.api_version, &watch.kind);
    let namespace = watch.namespace.as_deref().or(served);
    let config = watcher::Config::default().labels(&watch.labels.to_string());
    if watch.only_metadata {
        // Of these the API server sends nothing but the metadata.
        let objects = api::<PartialObjectMeta<DynamicObject>>(client, namespace, &resource);
        return shown(watcher(objects, config).default_backoff(), resource, without_data).boxed();
    }
    let objects = api::<DynamicObject>(client, namespace, &resource);
    shown(watcher(objects, config).default_backoff(), resource, |object| object).boxed()
}

fn api<K>(client: Client, namespace: Option<&str>, resource: &ApiResource) -> Api<K>
where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    }
}

/// An object of which only the metadata was read.
fn without_data(object: PartialObjectMeta<DynamicObject>) -> DynamicObject {
    DynamicObject { types: None, metadata: object.metadata, data: json!({}) }
}

fn shown<K: Send + 'static>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    resource: ApiResource,
    read: fn(K) -> DynamicObject,
) -> impl Stream<Item = Result<WatchEvent, ClusterError>> + Send {
    let live = move |object| Live::of(read(object), &resource);
    events.filter_map(move |event| {
        ready(match event {
            Ok(Event::Init) => Some(Ok(WatchEvent::Init)),
            Ok(Event::InitApply(object)) => live(object).map(|it| Ok(WatchEvent::InitApply(it))),
            Ok(Event::InitDone) => Some(Ok(WatchEvent::InitDone)),
            Ok(Event::Apply(object)) => live(object).map(|it| Ok(WatchEvent::Apply(it))),
            Ok(Event::Delete(object)) => live(object).map(|it| Ok(WatchEvent::Delete(it))),
            Err(error) => Some(Err(failed(error))),
        })
    })
}

fn failed(error: watcher::Error) -> ClusterError {
    match error {
        watcher::Error::WatchError(status) => ClusterError::Refused(status),
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => failure(error),
        watcher::Error::NoResourceVersion => ClusterError::NoAnswer(error.to_string()),
    }
}
