//! What a pass leaves behind in the cluster: events, finalizers, and marks in a status that must not be lost.

use engine::objects::FIELD_MANAGER;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    runtime::events::EventType,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    Shared,
    events::{Limit, Words},
};

pub(super) fn patches() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

pub(super) fn writes() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// Writes an Event; `words` are its reason and its action. One that cannot be written, as in a namespace that is being
/// deleted, is in the log all the same.
pub(super) async fn publish(
    about: &impl Resource<DynamicType = ()>,
    type_: EventType,
    (reason, action): (&str, &str),
    note: &str,
    shared: &Shared,
) {
    let words = Words { type_, reason, action, note };
    shared.events.publish(&about.object_ref(&()), words, Limit::PerObject).await.ok();
}

/// Writes an Event that must not be skipped. In a namespace that is being deleted it is about the operator's own Pod.
pub(super) async fn publish_surely(
    about: &impl Resource<DynamicType = ()>,
    words: Words<'_>,
    shared: &Shared,
) {
    shared.events.publish_surely(&about.object_ref(&()), words, shared.own_pod.as_ref()).await;
}

/// Names what could not be taken away: in a log line, in a metric, and in an Event.
pub(super) async fn leave_behind(
    object: &impl Resource<DynamicType = ()>,
    reason: &'static str,
    note: &str,
    shared: &Shared,
) {
    tracing::warn!(reason, "{note}");
    shared.metrics.left_behind(object.object_ref(&()).kind.unwrap_or_default().into());
    let words = Words { type_: EventType::Warning, reason: "LeftBehind", action: "Delete", note };
    publish_surely(object, words, shared).await;
}

/// Adds or removes a finalizer, on the version of the object that was read.
pub(super) async fn set_finalizer<K>(
    object: &K,
    finalizer: &str,
    on: bool,
    shared: &Shared,
) -> Result<(), kube::Error>
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
    objects.patch(&object.name_any(), &patches(), &Patch::Merge(patch)).await?;
    Ok(())
}

pub(super) fn has_finalizer(object: &impl kube::ResourceExt, finalizer: &str) -> bool {
    object.finalizers().iter().any(|it| it == finalizer)
}

/// Puts a few fields into the status of this very object, on whichever version of it: they must stand there whatever else
/// happens to the manifest meanwhile, its deletion included. Gives back the version that has them.
pub(super) async fn mark<K>(object: &K, fields: &Value, shared: &Shared) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let objects = Api::<K>::namespaced(shared.client.clone(), &object.namespace().unwrap_or_default());
    let name = object.name_any();
    let mut version = object.resource_version();
    loop {
        let patch = json!({"metadata": {"resourceVersion": version}, "status": fields});
        match objects.patch_status(&name, &patches(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            done => return done,
        }
        // A patch knows no uid: another object of the same name must not get what is not its own.
        let now = objects.get(&name).await?;
        if now.uid() != object.uid() {
            let replaced = kube::core::Status::failure("another object has taken its name", "Conflict");
            return Err(kube::Error::Api(replaced.with_code(409).boxed()));
        }
        version = now.resource_version();
    }
}
