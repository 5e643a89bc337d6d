//! The metadata of Secrets, from one watch for all controllers.

use std::sync::Arc;

use engine::{Cluster, objects::Live, ports::Watch};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource as _;
use tokio::sync::broadcast::{self, error::RecvError};

use super::{cache::Cache, complaints::Complaints};
use crate::{
    index::{Index, Name, Target},
    telemetry::metrics::Metrics,
};

/// How many changes [`SecretCache::each`] may be behind before it begins anew.
const CAPACITY: usize = 4096;

/// What is known of Secrets.
#[derive(Debug)]
pub(crate) struct SecretCache {
    metadata: Cache<ObjectMeta>,
    changes: broadcast::Sender<Name>,
    index: Arc<Index>,
}

impl SecretCache {
    pub(crate) fn new(index: Arc<Index>) -> Self {
        Self { metadata: Cache::default(), changes: broadcast::Sender::new(CAPACITY), index }
    }

    /// The metadata of a Secret, or that there is no such Secret. `None` where the watch cannot be relied on.
    pub(crate) async fn known(&self, namespace: &str, name: &str) -> Option<Option<Arc<ObjectMeta>>> {
        self.metadata.is_reliable().await.then(|| self.metadata.get(namespace, name))
    }

    /// The metadata of a Secret, as the watch has shown it. `None` where the watch has not, and where it cannot be relied on.
    pub(crate) fn watched(&self, namespace: &str, name: &str) -> Option<Arc<ObjectMeta>> {
        if self.metadata.is_reliable_now() { self.metadata.get(namespace, name) } else { None }
    }

    /// Calls `see` for every Secret, and again for each that is created or changed, for as long as it is polled.
    pub(crate) async fn each(&self, see: impl Fn(&ObjectMeta) + Send) {
        let mut changes = self.changes.subscribe();
        self.metadata.is_reliable().await;
        self.metadata.all().iter().for_each(|it| see(it));
        loop {
            match changes.recv().await {
                Ok((namespace, name)) => self.metadata.get(&namespace, &name).iter().for_each(|it| see(it)),
                Err(RecvError::Lagged(_)) => self.metadata.all().iter().for_each(|it| see(it)),
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Enters a Secret that was read or written for the object with that uid. Every other object that refers to the Secret is
    /// woken, if the watch has not shown this version yet.
    pub(crate) fn note(&self, metadata: &ObjectMeta, by: &str) {
        if self.metadata.note(metadata, pruned(metadata.clone())) {
            self.index.changed_for(&self.announce(metadata), by);
        }
    }

    /// Another client has created, changed or deleted a Secret.
    fn changed(&self, metadata: &ObjectMeta) {
        self.index.changed(&self.announce(metadata));
    }

    fn announce(&self, metadata: &ObjectMeta) -> Target {
        let name =
            (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default());
        // No receiver: the controller of control planes does not run.
        self.changes.send(name.clone()).ok();
        Target::Secret(name)
    }
}

/// Keeps the metadata up to date for as long as it is polled.
pub(crate) async fn watch(secrets: Arc<SecretCache>, cluster: Arc<dyn Cluster>, metrics: Arc<Metrics>) {
    let events = cluster.watch(Watch::all::<Secret>().only_metadata());
    let read = |secret: Live| Some(pruned(secret.metadata().clone()));
    let failed = Complaints::reported(Secret::kind(&()), &metrics);
    secrets.metadata.follow(events, read, |it| secrets.changed(it), failed).await;
}

/// What is asked of the metadata of Secrets: a cluster may have thousands of them.
fn pruned(metadata: ObjectMeta) -> ObjectMeta {
    let ours = |it: &String| it.starts_with(api::GROUP);
    let annotations = metadata.annotations.map(|it| it.into_iter().filter(|(key, _)| ours(key)).collect());
    ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        deletion_timestamp: metadata.deletion_timestamp,
        finalizers: metadata.finalizers,
        owner_references: metadata.owner_references,
        annotations,
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(version: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some("key".to_owned()),
            namespace: Some("platform".to_owned()),
            uid: Some("u".to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn own_write_is_announced_once() {
        let cache = SecretCache::new(Arc::default());
        let mut changes = cache.changes.subscribe();
        cache.note(&metadata("2"), "a");
        assert_eq!(changes.try_recv().unwrap(), ("platform".to_owned(), "key".to_owned()));
        cache.note(&metadata("2"), "a");
        assert!(changes.try_recv().is_err(), "a read of what is known changes nothing");
    }
}
