//! What is known of Secrets without their values: their metadata, from one watch for all controllers, and what the last reads
//! of key Secrets found.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use engine::provisioner_keys::{SecretPlace, SecretRead};
use futures::{Stream, StreamExt as _};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _,
        reflector::{ObjectRef, Store},
        watcher::{self, watcher},
    },
};
use tokio::sync::broadcast;

use super::{Shared, cache::Cache, controllers::Complaints, stream::received};

/// How many changes a slow controller may be behind before it reconciles everything.
const CAPACITY: usize = 4096;

/// A Secret that was created, changed or deleted.
#[derive(Debug, Clone)]
pub(super) struct Changed {
    namespace: String,
    name: String,
    /// The uid of the object for which we changed it ourselves.
    by: Option<String>,
}

/// An entry of a Secret, and the uid of the object that read it.
type Reader = (String, SecretPlace, String);

/// What is known of Secrets.
#[derive(Debug)]
pub(super) struct SecretCache {
    metadata: Cache<ObjectMeta>,
    /// What key Secrets held when they were last read. Never their values.
    reads: Mutex<BTreeMap<Reader, SecretRead>>,
    changes: broadcast::Sender<Changed>,
}

impl Default for SecretCache {
    fn default() -> Self {
        let changes = broadcast::Sender::new(CAPACITY);
        Self { metadata: Cache::default(), reads: Mutex::default(), changes }
    }
}

impl SecretCache {
    /// A cache of one Secret.
    #[cfg(test)]
    pub(super) fn with(metadata: &ObjectMeta) -> Self {
        let cache = Self::default();
        cache.metadata.begin_list();
        cache.metadata.enter(metadata, metadata.clone());
        cache.metadata.end_list();
        cache
    }

    /// The metadata of a Secret. `None` when there is no such Secret.
    pub(super) async fn metadata(
        &self,
        client: &Client,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<ObjectMeta>>, kube::Error> {
        if self.metadata.is_reliable().await {
            return Ok(self.metadata.get(namespace, name));
        }
        let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
        Ok(secrets.get_metadata_opt(name).await?.map(|it| Arc::new(it.metadata)))
    }

    /// Calls `see` for every Secret, and again for each that is created or changed, for as long as it is polled.
    pub(super) async fn each(&self, see: impl Fn(&ObjectMeta) + Send) {
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

    /// What the last read of a key Secret found, if the Secret has not changed since.
    pub(super) async fn last_read(
        &self,
        namespace: &str,
        place: &SecretPlace,
        uid: &str,
    ) -> Option<SecretRead> {
        if !self.metadata.is_reliable().await {
            return None;
        }
        let metadata = self.metadata.get(namespace, &place.name)?;
        let reader = (namespace.to_owned(), place.clone(), uid.to_owned());
        let reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.get(&reader).filter(|it| it.version == version(&metadata)).cloned()
    }

    /// Keeps what a read or a write of ours has found, without the value.
    pub(super) fn note(&self, metadata: &ObjectMeta, place: &SecretPlace, uid: &str, read: &SecretRead) {
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let is_newer = self.metadata.note(metadata, pruned(metadata.clone()));
        if self.metadata.get(&namespace, &place.name).is_some() {
            let found = SecretRead { value: None, ..read.clone() };
            let reader = (namespace.clone(), place.clone(), uid.to_owned());
            self.reads.lock().unwrap_or_else(PoisonError::into_inner).insert(reader, found);
        }
        if is_newer {
            self.announce(Changed { namespace, name: place.name.clone(), by: Some(uid.to_owned()) });
        }
    }

    /// Another client has created, changed or deleted a Secret.
    fn changed(&self, metadata: &ObjectMeta) {
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let name = metadata.name.clone().unwrap_or_default();
        if self.metadata.get(&namespace, &name).is_none() {
            let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
            reads.retain(|(of, place, _), _| *of != namespace || place.name != name);
        }
        self.announce(Changed { namespace, name, by: None });
    }

    fn announce(&self, changed: Changed) {
        // No receiver: no controller runs.
        self.changes.send(changed).ok();
    }
}

/// The manifests that refer to a Secret that was created, changed or deleted; all of them where the receiver missed some. An
/// object for which we changed the Secret ourselves is not among them.
pub(super) fn changed<K, R>(
    shared: &Shared,
    manifests: Store<K>,
    refers: R,
) -> impl Stream<Item = ObjectRef<K>> + Send + use<K, R>
where
    R: Fn(&K, &str) -> bool + Send + Sync + 'static,
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    received(shared.secrets.changes.subscribe()).flat_map(move |changed| {
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
pub(super) async fn watch(shared: Arc<Shared>) {
    let secrets = shared.api::<PartialObjectMeta<Secret>>();
    let events = watcher(secrets, watcher::Config::default()).default_backoff();
    let read = |secret: PartialObjectMeta<Secret>| Some(pruned(secret.metadata));
    let failed = Complaints::reported(Secret::kind(&()), &shared);
    shared.secrets.metadata.follow(events, read, |it| shared.secrets.changed(it), failed).await;
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

/// The version of a Secret. Another Secret of the same name is another version.
pub(super) fn version(metadata: &ObjectMeta) -> String {
    let text = |it: &Option<String>| it.clone().unwrap_or_default();
    format!("{}/{}", text(&metadata.uid), text(&metadata.resource_version))
}

#[cfg(test)]
mod tests {
    use engine::provisioner_keys::Owner;

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
    async fn last_read_is_good_until_the_secret_changes() {
        let cache = SecretCache::default();
        cache.metadata.begin_list();
        cache.metadata.end_list();
        let place = SecretPlace { name: "key".to_owned(), key: "key".to_owned() };
        let read = SecretRead {
            owner: Owner::Ours,
            value: Some("value".into()),
            checksum: Some("c".to_owned()),
            record: None,
            withheld: None,
            version: version(&metadata("2")),
            is_immutable: false,
        };
        cache.note(&metadata("2"), &place, "a", &read);
        let known = cache.last_read("platform", &place, "a").await.unwrap();
        assert!(known.value.is_none() && known.checksum.as_deref() == Some("c"));
        assert!(cache.last_read("platform", &place, "b").await.is_none(), "another object has not read it");
        cache.metadata.enter(&metadata("3"), metadata("3"));
        assert!(cache.last_read("platform", &place, "a").await.is_none());
        cache.metadata.remove(&metadata("4"));
        cache.changed(&metadata("4"));
        assert!(cache.reads.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn own_write_is_announced_with_the_object_it_was_for() {
        let cache = SecretCache::default();
        let mut changes = cache.changes.subscribe();
        let place = SecretPlace { name: "key".to_owned(), key: "key".to_owned() };
        let read = SecretRead {
            owner: Owner::Ours,
            value: None,
            checksum: None,
            record: None,
            withheld: None,
            version: String::new(),
            is_immutable: false,
        };
        cache.note(&metadata("2"), &place, "a", &read);
        assert_eq!(changes.recv().await.unwrap().by.as_deref(), Some("a"));
        cache.note(&metadata("2"), &place, "a", &read);
        assert!(changes.try_recv().is_err(), "a read of what is known changes nothing");
    }
}
