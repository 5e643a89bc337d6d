//! The metadata of Secrets, from one watch for all controllers.

use std::{fmt::Debug, sync::Arc};

use engine::{Cluster, objects::Live, ports::Watch};
use futures::{Stream, StreamExt as _};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Resource, ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};
use tokio::sync::broadcast;

use super::{cache::Cache, complaints::Complaints};
use crate::{stream::received, telemetry::metrics::Metrics};

/// How many changes a slow controller may be behind before it reconciles everything.
const CAPACITY: usize = 4096;

/// A Secret that was created, changed or deleted.
#[derive(Debug, Clone)]
pub(crate) struct Changed {
    namespace: String,
    name: String,
    /// The uid of the object for which we changed it ourselves.
    by: Option<String>,
}

/// What is known of Secrets.
#[derive(Debug)]
pub(crate) struct SecretCache {
    metadata: Cache<ObjectMeta>,
    changes: broadcast::Sender<Changed>,
}

impl Default for SecretCache {
    fn default() -> Self {
        let changes = broadcast::Sender::new(CAPACITY);
        Self { metadata: Cache::default(), changes }
    }
}

impl SecretCache {
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
        let mut changes = std::pin::pin!(received(self.changes.subscribe()));
        self.metadata.is_reliable().await;
        self.metadata.all().iter().for_each(|it| see(it));
        while let Some(changed) = changes.next().await {
            match changed {
                Some(Changed { namespace, name, .. }) => {
                    self.metadata.get(&namespace, &name).iter().for_each(|it| see(it));
                }
                None => self.metadata.all().iter().for_each(|it| see(it)),
            }
        }
    }

    /// Enters a Secret that was read or written for the object with that uid. Every other object that refers to the Secret is
    /// woken, if the watch has not shown this version yet.
    pub(crate) fn note(&self, metadata: &ObjectMeta, by: &str) {
        if self.metadata.note(metadata, pruned(metadata.clone())) {
            let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
            let by = Some(by.to_owned()).filter(|it| !it.is_empty());
            self.announce(Changed {
                namespace: namespace.unwrap_or_default(),
                name: name.unwrap_or_default(),
                by,
            });
        }
    }

    /// Another client has created, changed or deleted a Secret.
    fn changed(&self, metadata: &ObjectMeta) {
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let name = metadata.name.clone().unwrap_or_default();
        self.announce(Changed { namespace, name, by: None });
    }

    fn announce(&self, changed: Changed) {
        // No receiver: no controller runs.
        self.changes.send(changed).ok();
    }
}

/// The manifests that refer to a Secret that was created, changed or deleted; all of them where the receiver missed some. An
/// object for which we changed the Secret ourselves is not among them.
pub(crate) fn changed<K, R>(
    secrets: &SecretCache,
    manifests: Store<K>,
    refers: R,
) -> impl Stream<Item = ObjectRef<K>> + Send + use<K, R>
where
    R: Fn(&K, &str) -> bool + Send + Sync + 'static,
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    received(secrets.changes.subscribe()).flat_map(move |changed| {
        let is_concerned = |it: &K| match &changed {
            Some(changed) => {
                it.namespace().as_ref() == Some(&changed.namespace)
                    && (changed.by.is_none() || changed.by != it.uid())
                    && refers(it, &changed.name)
            }
            None => true,
        };
        let manifests = manifests.state().into_iter().filter(|it| is_concerned(it));
        let refs: Vec<ObjectRef<K>> = manifests.map(|it| ObjectRef::from_obj(&*it)).collect();
        futures::stream::iter(refs)
    })
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

    #[tokio::test]
    async fn own_write_is_announced_with_the_object_it_was_for() {
        let cache = SecretCache::default();
        let mut changes = cache.changes.subscribe();
        cache.note(&metadata("2"), "a");
        assert_eq!(changes.recv().await.unwrap().by.as_deref(), Some("a"));
        cache.note(&metadata("2"), "a");
        assert!(changes.try_recv().is_err(), "a read of what is known changes nothing");
    }
}
