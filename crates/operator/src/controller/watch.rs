//! Watches of our own kinds in which an object that cannot be decoded concerns nobody but itself.
//!
//! A list is decoded as a whole: without this, one object that an older or newer build wrote, or that a looser definition let
//! through, would stop the controller of its kind for everybody.

use std::{collections::HashMap, fmt::Debug, sync::Arc};

use api::{Manifest, Reason};
use engine::{
    Cluster,
    objects::Live,
    ports::{self, ClusterError, Watch, WatchEvent},
};
use futures::{Stream, StreamExt as _, future::ready};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Resource,
    core::{DeserializeGuard, error_boundary::InvalidObject},
    runtime::{
        reflector::{ObjectRef, Store},
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Shared;

/// What became of an object that cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decoding {
    Failed,
    /// A later version can be decoded.
    Recovered,
    Deleted,
}

/// Watches a kind. `known` is the store that the events go to, if they go to one.
pub(super) fn decoded<K: Manifest>(
    shared: &Arc<Shared>,
    known: Option<Store<K>>,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K> {
    decoded_noting(shared, known, |_, _| {})
}

/// Watches a kind, and calls `note` before an object that cannot be decoded leaves the store, and after it is back.
pub(super) fn decoded_noting<K: Manifest, N: FnMut(&ObjectMeta, Decoding) + Send>(
    shared: &Arc<Shared>,
    known: Option<Store<K>>,
    note: N,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K, N> {
    let events = events::<DeserializeGuard<K>>(shared, Watch::all::<K>());
    let shared = Arc::clone(shared);
    decode(events, known, move |invalid| report::<K>(invalid, &shared), note)
}

/// The events of a watch of the port as the controllers of `kube` take them. Objects that are not of that type are left out.
pub(super) fn events<T: DeserializeOwned + Send + 'static>(
    shared: &Arc<Shared>,
    watch: Watch,
) -> impl Stream<Item = watcher::Result<Event<T>>> + Send + use<T> {
    let cluster: Arc<dyn Cluster> = Arc::clone(&shared.cluster) as _;
    let typed = |object: Live| serde_json::from_value::<T>(without_managers(object.object)).ok();
    cluster.watch(watch).filter_map(move |event| {
        ready(match event {
            Ok(WatchEvent::Init) => Some(Ok(Event::Init)),
            Ok(WatchEvent::InitApply(object)) => typed(object).map(|it| Ok(Event::InitApply(it))),
            Ok(WatchEvent::InitDone) => Some(Ok(Event::InitDone)),
            Ok(WatchEvent::Apply(object)) => typed(object).map(|it| Ok(Event::Apply(it))),
            Ok(WatchEvent::Delete(object)) => typed(object).map(|it| Ok(Event::Delete(it))),
            Err(ClusterError::Refused(status)) => Some(Err(watcher::Error::WatchError(status))),
            Err(ClusterError::NoAnswer(words) | ClusterError::NoCluster(words)) => {
                Some(Err(watcher::Error::WatchFailed(kube::Error::Service(words.into()))))
            }
        })
    })
}

/// An object without what the API server notes of the managers of its fields: most of the memory of a small one.
fn without_managers(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

/// Passes on what can be decoded and reports each version of an object that cannot. An object that could be decoded before is
/// deleted from the store: its old version is not what is declared any more.
fn decode<K>(
    events: impl Stream<Item = watcher::Result<Event<DeserializeGuard<K>>>> + Send,
    known: Option<Store<K>>,
    mut report: impl FnMut(&InvalidObject) + Send,
    mut note: impl FnMut(&ObjectMeta, Decoding) + Send,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource<DynamicType = ()> + Clone + Send + Sync + 'static,
{
    let mut reported = HashMap::<Option<String>, Option<String>>::new();
    let mut follow = move |metadata: &ObjectMeta, now: Result<(), &InvalidObject>, is_deleted: bool| {
        let (uid, version) = (metadata.uid.clone(), metadata.resource_version.clone());
        match now {
            _ if is_deleted => {
                reported.remove(&uid).into_iter().for_each(|_| note(metadata, Decoding::Deleted));
            }
            Ok(()) => {
                reported.remove(&uid).into_iter().for_each(|_| note(metadata, Decoding::Recovered));
            }
            Err(invalid) => {
                note(metadata, Decoding::Failed);
                // A watch that begins anew shows the same version again.
                if reported.insert(uid, version.clone()) != Some(version) {
                    report(invalid);
                }
            }
        }
    };
    let before = move |invalid: &InvalidObject| {
        let name = ObjectRef::<K>::new(invalid.metadata.name.as_deref()?);
        let namespace = invalid.metadata.namespace.as_deref().unwrap_or_default();
        let object = known.as_ref()?.get(&name.within(namespace))?;
        Some(Ok(Event::Delete((*object).clone())))
    };
    events.filter_map(move |event| {
        if let Ok(Event::InitApply(object) | Event::Apply(object) | Event::Delete(object)) = &event {
            follow(object.meta(), object.0.as_ref().map(drop), matches!(event, Ok(Event::Delete(_))));
        }
        ready(match event {
            Err(error) => Some(Err(error)),
            Ok(Event::Init) => Some(Ok(Event::Init)),
            Ok(Event::InitDone) => Some(Ok(Event::InitDone)),
            Ok(Event::InitApply(DeserializeGuard(Ok(object)))) => Some(Ok(Event::InitApply(object))),
            Ok(Event::Apply(DeserializeGuard(Ok(object)))) => Some(Ok(Event::Apply(object))),
            Ok(Event::Delete(DeserializeGuard(Ok(object)))) => Some(Ok(Event::Delete(object))),
            // The list that is being read takes the place of the whole store.
            Ok(Event::InitApply(DeserializeGuard(Err(_)))) => None,
            Ok(
                Event::Apply(DeserializeGuard(Err(invalid))) | Event::Delete(DeserializeGuard(Err(invalid))),
            ) => before(&invalid),
        })
    })
}

/// Reports an object that cannot be decoded: in a line, in a count, and in an Event on the object.
fn report<K: Resource<DynamicType = ()>>(invalid: &InvalidObject, shared: &Arc<Shared>) {
    let InvalidObject { error, metadata } = invalid;
    let (kind, why) = (K::kind(&()), client::scrub::clean(error, &[]));
    let object = ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(kind.clone().into_owned()),
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        uid: metadata.uid.clone(),
        ..ObjectReference::default()
    };
    let note = format!(
        "this operator cannot read the object and skips it: {why}; correct it, or install matching CRDs"
    );
    let (namespace, name) = (object.namespace.as_deref(), object.name.as_deref());
    tracing::warn!(%kind, namespace, object = name, reason = %Reason::Undecodable, "{note}");
    shared.metrics.undecodable(kind);
    let shared = Arc::clone(shared);
    // The watch does not wait for the Event.
    tokio::spawn(async move {
        let (reason, action) = (Reason::Undecodable, "Read");
        let event = ports::Event { is_warning: true, reason, action, note: &note, must_be_written: false };
        shared.cluster.event(&object, event).await;
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use api::CoderGroup;
    use futures::stream;
    use kube::runtime::{WatchStreamExt as _, reflector};
    use serde_json::json;

    use super::*;

    fn group(name: &str, version: &str, quota: &Value) -> DeserializeGuard<CoderGroup> {
        serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup",
            "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": version},
            "spec": {"controlPlaneRef": {"name": "main"}, "quotaAllowance": quota}}))
        .unwrap()
    }

    #[tokio::test]
    async fn an_object_that_cannot_be_decoded_is_reported_once_and_the_others_go_on() {
        let broken = |version| group("broken", version, &json!("many"));
        let good = |name| group(name, "1", &json!(1));
        let events = [
            Event::Init,
            Event::InitApply(good("a")),
            Event::InitApply(broken("1")),
            Event::InitApply(good("b")),
            Event::InitDone,
            Event::Apply(broken("1")),
            Event::Apply(broken("2")),
            // One that was good before.
            Event::Apply(group("a", "2", &json!("many"))),
            Event::Delete(broken("2")),
            Event::Apply(good("broken")),
            Event::Apply(good("a")),
        ];
        let (known, writer) = reflector::store();
        let reported = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&reported);
        let report = move |it: &InvalidObject| heard.lock().unwrap().push(it.metadata.name.clone().unwrap());
        let events = stream::iter(events.into_iter().map(Ok));
        let noted = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&noted);
        let note = move |it: &ObjectMeta, decoding| {
            notes.lock().unwrap().push((it.name.clone().unwrap(), decoding));
        };
        let passed: Vec<_> = decode(events, Some(known.clone()), report, note)
            .reflect(writer)
            .map(|it| match it.unwrap() {
                Event::Init | Event::InitDone => String::new(),
                Event::InitApply(it) | Event::Apply(it) => it.metadata.name.unwrap(),
                Event::Delete(it) => format!("-{}", it.metadata.name.unwrap()),
            })
            .collect()
            .await;
        assert_eq!(passed, ["", "a", "b", "", "-a", "broken", "a"]);
        let noted: Vec<_> = noted.lock().unwrap().iter().map(|(name, it)| format!("{name} {it:?}")).collect();
        let failed = "broken Failed";
        assert_eq!(noted, [failed, failed, failed, "a Failed", "broken Deleted", "a Recovered"]);
        assert_eq!(*reported.lock().unwrap(), ["broken", "broken", "a"]);
        let left: Vec<_> = known.state().iter().filter_map(|it| it.metadata.name.clone()).collect();
        assert_eq!(left.len(), 3, "{left:?}");
    }
}
