//! What a pass leaves behind in the cluster: events, finalizers, and marks in a status that must not be lost.

use api::Reason;
use engine::{Action, Cluster as _, objects::Key, ports::Write};
use kube::{Resource, ResourceExt as _, runtime::events::EventType};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Shared;
use crate::{cluster::port::error_of, controller::about::About};

/// The reason and the action of the Event for a step that was carried out.
pub(super) fn words_of(action: Action) -> (Reason, &'static str) {
    match action {
        Action::Create => (Reason::Created, "Create"),
        Action::Update => (Reason::Updated, "Update"),
        Action::Delete => (Reason::Deleted, "Delete"),
    }
}

/// Writes an Event in the background; `words` are its reason and its action. An Event that cannot be written, as in a namespace
/// that is being deleted, is in the log all the same.
pub(super) fn publish(
    about: &impl Resource<DynamicType = ()>,
    type_: EventType,
    (reason, action): (Reason, &'static str),
    note: &str,
    shared: &Shared,
) {
    shared.events.send(about.object_ref(&()), type_, (reason, action), note.to_owned());
}

/// Reports something that could not be taken back: in a log line, in a metric, and in an Event.
pub(super) async fn leave_behind(
    object: &impl Resource<DynamicType = ()>,
    reason: Reason,
    note: &str,
    shared: &Shared,
) {
    shared.cluster.left_behind(&object.object_ref(&()), reason, note).await;
}

/// Adds or removes a finalizer on the version of the object that was read, and returns the object as it is then.
pub(super) async fn set_finalizer<K>(
    object: &K,
    finalizer: &str,
    on: bool,
    shared: &Shared,
) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let mut finalizers = object.finalizers().to_vec();
    finalizers.retain(|it| it != finalizer);
    if on {
        finalizers.push(finalizer.to_owned());
    }
    let patch = json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": finalizers}});
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let key = Key::new(&K::api_version(&()), &K::kind(&()), &namespace, &name);
    let written =
        shared.cluster.write(Write::Merge { key: &key, patch: &patch }, "").await.map_err(error_of)?;
    serde_json::from_value(written.object).map_err(kube::Error::SerdeError)
}

/// Removes the finalizer of an object whose deletion is done, so that the object goes. One that is gone already is no error.
pub(super) async fn release<K>(object: &K, finalizer: &str, shared: &Shared) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let about = About::of(object);
    match set_finalizer(object, finalizer, false, shared).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        done => drop(done?),
    }
    shared.memory.released(&about);
    shared.passes.forget(&about);
    Ok(())
}

/// Whether an object that is being deleted still has something to be taken back.
pub(super) fn is_held(object: &impl Resource<DynamicType = ()>, finalizer: &str, shared: &Shared) -> bool {
    has_finalizer(object, finalizer) && !shared.memory.is_released(&About::of(object))
}

pub(super) fn has_finalizer(object: &impl kube::ResourceExt, finalizer: &str) -> bool {
    object.finalizers().iter().any(|it| it == finalizer)
}

/// Puts a few fields into the status of this very object, on whichever version of it that `may` accepts: they must stand there
/// whatever else happens to the manifest meanwhile, its deletion included. Returns the version that has them. Fails with a
/// conflict where `may` refuses.
pub(super) async fn mark_where<K>(
    object: &K,
    fields: &Value,
    shared: &Shared,
    may: impl Fn(&K) -> bool + Send + Sync,
) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Send
        + Sync,
{
    let fields = fields.as_object().cloned().unwrap_or_default();
    let cluster: &dyn engine::Cluster = &*shared.cluster;
    cluster.mark(object, |now| may(now).then(|| fields.clone())).await.map_err(error_of)
}
