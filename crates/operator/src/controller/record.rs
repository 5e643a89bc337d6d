//! What a reconcile leaves behind in the cluster: Events, finalizers, and marks in a status that must not be lost.

use api::{Manifest, Reason};
use engine::{
    Action, Cluster as _,
    ports::{ClusterError, Event, finalizers},
};
use kube::Resource;
use serde_json::Value;

use super::{Shared, about::About};

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
pub(super) async fn publish(
    about: &(impl Resource<DynamicType = ()> + Sync),
    is_warning: bool,
    (reason, action): (Reason, &'static str),
    note: &str,
    shared: &Shared,
) {
    let event = Event { is_warning, reason, action, note, must_be_written: false };
    shared.cluster.event(&about.object_ref(&()), event).await;
}

/// Adds or removes a finalizer on the version of the object that was read, and returns the object as it is then.
pub(super) async fn set_finalizer<M: Manifest>(
    object: &M,
    finalizer: &str,
    on: bool,
    shared: &Shared,
) -> Result<M, ClusterError> {
    let cluster: &dyn engine::Cluster = &*shared.cluster;
    let written = if on {
        finalizers::add::<M>(object.meta(), finalizer, cluster).await?
    } else {
        finalizers::remove::<M>(object.meta(), finalizer, cluster).await?
    };
    serde_json::from_value(written.object).map_err(|error| ClusterError::NoAnswer(error.to_string()))
}

/// Removes the finalizer of an object whose deletion is done, so that the object goes. One that is gone already is no error.
pub(super) async fn release<M: Manifest>(
    object: &M,
    finalizer: &str,
    shared: &Shared,
) -> Result<(), ClusterError> {
    let about = About::of(object);
    match set_finalizer(object, finalizer, false, shared).await {
        Err(error) if error.is_missing() => {}
        done => drop(done?),
    }
    shared.memory.released(&about);
    shared.reconciles.forget(&about);
    Ok(())
}

/// Whether an object that is being deleted still has something to be taken back.
pub(super) fn is_held(object: &impl Resource<DynamicType = ()>, finalizer: &str, shared: &Shared) -> bool {
    has_finalizer(object, finalizer) && !shared.memory.is_released(&About::of(object))
}

pub(super) fn has_finalizer(object: &impl kube::ResourceExt, finalizer: &str) -> bool {
    finalizers::has(object.meta(), finalizer)
}

/// Puts a few fields into the status of this very object, on whichever version of it that `may` accepts: they must stand there
/// whatever else happens to the manifest meanwhile, its deletion included. Returns the version that has them. Fails with a
/// conflict where `may` refuses.
pub(super) async fn mark_where<M: Manifest>(
    object: &M,
    fields: &Value,
    shared: &Shared,
    may: impl Fn(&M) -> bool + Send + Sync,
) -> Result<M, ClusterError> {
    let fields = fields.as_object().cloned().unwrap_or_default();
    let cluster: &dyn engine::Cluster = &*shared.cluster;
    cluster.mark(object, |now| may(now).then(|| fields.clone())).await
}
