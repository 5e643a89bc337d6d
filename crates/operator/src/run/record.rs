//! What a pass leaves behind in the cluster: events, finalizers, and marks in a status that must not be lost.

use api::Reason;
use engine::{Action, objects::FIELD_MANAGER};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    runtime::events::EventType,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Shared, events::Words, pass::About};

pub(super) fn patches() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

pub(super) fn writes() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

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

/// Names what could not be taken away: in a log line, in a metric, and in an Event. A deletion that is tried again repeats
/// none of them; the Event is sent again, should it have been refused, and is a series otherwise.
pub(super) async fn leave_behind(
    object: &impl Resource<DynamicType = ()>,
    reason: Reason,
    note: &str,
    shared: &Shared,
) {
    leave_behind_at(&object.object_ref(&()), reason, note, shared).await;
}

/// The same for an object of which only the reference is known.
pub(super) async fn leave_behind_at(object: &ObjectReference, reason: Reason, note: &str, shared: &Shared) {
    let about = About::at(object);
    if shared.memory.is_newly_left(&about, note) {
        tracing::warn!(%reason, "{note}");
        shared.metrics.left_behind(about.kind);
    }
    let words = Words { type_: EventType::Warning, reason: Reason::LeftBehind, action: "Delete", note };
    shared.events.publish_surely(object, words, shared.own_pod.as_ref()).await;
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
    let objects = Api::<K>::namespaced(shared.client.clone(), &object.namespace().unwrap_or_default());
    let written = objects.patch(&object.name_any(), &patches(), &Patch::Merge(patch)).await?;
    note_written(&written, shared);
    Ok(written)
}

/// Remembers the version of an object that we wrote: the next reconcile waits until the watch has shown it.
pub(super) fn note_written(object: &impl Resource<DynamicType = ()>, shared: &Shared) {
    shared.memory.wrote(&About::of(object), object.meta().resource_version.as_deref());
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
    may: impl Fn(&K) -> bool,
) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let fields = fields.as_object().cloned().unwrap_or_default();
    mark_with(object, &shared.client, |now| may(now).then(|| fields.clone())).await
}

/// The same with fields that depend on the version that is written. `None` refuses the write as a conflict.
pub(super) async fn mark_with<K>(
    object: &K,
    client: &Client,
    fields: impl Fn(&K) -> Option<Map<String, Value>>,
) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let objects = Api::<K>::namespaced(client.clone(), &object.namespace().unwrap_or_default());
    let name = object.name_any();
    let mut now = object.clone();
    loop {
        let fields = fields(&now).ok_or_else(|| conflict("its status is newer than what is written"))?;
        if fields.is_empty() {
            return Ok(now);
        }
        let patch = json!({"metadata": {"resourceVersion": now.resource_version()}, "status": fields});
        match objects.patch_status(&name, &patches(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            done => return done,
        }
        now = objects.get(&name).await?;
        // A patch knows no uid: another object of the same name must not get what is not its own.
        if now.uid() != object.uid() {
            return Err(conflict("another object has taken its name"));
        }
    }
}

fn conflict(message: &str) -> kube::Error {
    kube::Error::Api(kube::core::Status::failure(message, "Conflict").with_code(409).boxed())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use api::CoderProvisionerKey;
    use axum::{
        Router,
        http::{Method, StatusCode, header::CONTENT_TYPE},
    };
    use engine::provisioner_keys::{Record, mirror::advanced};

    use super::*;

    fn key(version: &str, epoch: u64) -> Value {
        json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisionerKey",
            "metadata": {"name": "alpha", "namespace": "n", "uid": "u", "resourceVersion": version},
            "spec": {"controlPlaneRef": {"name": "main"}}, "status": {"keyEpoch": epoch}})
    }

    /// A cluster with that object, and the patches that it was sent.
    async fn cluster(stored: Value) -> (Client, Arc<Mutex<Vec<Value>>>) {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let patches = Arc::clone(&sent);
        let answer = move |method: Method, body: String| {
            let patch: Option<Value> = serde_json::from_str(&body).ok().filter(|_| method == Method::PATCH);
            let is_old = patch
                .as_ref()
                .is_some_and(|it| it["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]);
            patches.lock().unwrap().extend(patch);
            let refusal = json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict"});
            let (code, answer) =
                if is_old { (StatusCode::CONFLICT, refusal) } else { (StatusCode::OK, stored.clone()) };
            async move { (code, [(CONTENT_TYPE, "application/json")], answer.to_string()) }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
        (Client::try_from(kube::Config::new(url)).unwrap(), sent)
    }

    /// The epochs that are written over a status, and whether the write was refused.
    async fn written(stored: u64, epoch: u64) -> (Vec<Value>, bool) {
        let (client, sent) = cluster(key("2", stored)).await;
        let read: CoderProvisionerKey = serde_json::from_value(key("1", 1)).unwrap();
        let record = Record { epoch: Some(epoch), ..Record::default() };
        let fields =
            |now: &CoderProvisionerKey| advanced(&now.status.clone().unwrap_or_default().key, &record);
        let refused = match mark_with(&read, &client, fields).await {
            Ok(_) => false,
            Err(kube::Error::Api(status)) => status.is_conflict(),
            Err(error) => panic!("{error}"),
        };
        let sent = sent.lock().unwrap();
        let on_stored = sent.iter().filter(|it| it["metadata"]["resourceVersion"] == "2");
        (on_stored.map(|it| it["status"]["keyEpoch"].clone()).collect(), refused)
    }

    #[tokio::test]
    async fn status_with_a_higher_epoch_is_not_overwritten() {
        assert_eq!(written(2, 3).await, (vec![json!(3)], false));
        assert_eq!(written(4, 3).await, (Vec::new(), true));
        assert_eq!(written(3, 3).await, (Vec::new(), false), "it is there already");
    }
}
