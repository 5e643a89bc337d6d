//! The objects of one resource, kept up to date by one watch for all controllers and by the answers to our own writes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    runtime::watcher::{self, Event},
};
use tokio::sync::watch;

/// The namespace and the name of an object.
type Name = (String, String);

/// The objects of one resource.
#[derive(Debug)]
pub(super) struct Cache<T> {
    state: Mutex<State<T>>,
    is_listed: watch::Sender<bool>,
}

#[derive(Debug)]
struct State<T> {
    objects: BTreeMap<Name, Entry<T>>,
    /// The objects of a list that is being read.
    listed: Option<BTreeMap<Name, Entry<T>>>,
}

#[derive(Debug)]
struct Entry<T> {
    /// Resource versions of one resource count up, whichever object they belong to.
    version: u64,
    object: Arc<T>,
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        Self { version: self.version, object: Arc::clone(&self.object) }
    }
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        let state = State { objects: BTreeMap::new(), listed: None };
        Self { state: Mutex::new(state), is_listed: watch::Sender::new(false) }
    }
}

impl<T> Cache<T> {
    /// Returns once the first list is complete.
    pub(super) async fn listed(&self) {
        // The sender lives as long as the cache.
        self.is_listed.subscribe().wait_for(|it| *it).await.ok();
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.lock().objects.get(&key).map(|it| Arc::clone(&it.object))
    }

    pub(super) fn all(&self) -> Vec<Arc<T>> {
        self.lock().objects.values().map(|it| Arc::clone(&it.object)).collect()
    }

    /// The objects of a namespace for which that is true.
    pub(super) fn find(&self, namespace: &str, is: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let from = (namespace.to_owned(), String::new());
        let state = self.lock();
        let of_namespace = state.objects.range(from..).take_while(|(name, _)| name.0 == namespace);
        of_namespace.filter(|(_, it)| is(&it.object)).map(|(_, it)| Arc::clone(&it.object)).collect()
    }

    /// A list begins: objects that it does not show are gone.
    fn begin_list(&self) {
        self.lock().listed = Some(BTreeMap::new());
    }

    pub(super) fn end_list(&self) {
        let mut state = self.lock();
        if let Some(listed) = state.listed.take() {
            state.objects = listed;
        }
        drop(state);
        self.is_listed.send_replace(true);
    }

    /// Enters an object of a list, of a watch, or of the answer to a write. Returns whether it is newer than the known one.
    pub(super) fn enter(&self, metadata: &ObjectMeta, object: T) -> bool {
        let entry = Entry { version: version(metadata), object: Arc::new(object) };
        let mut state = self.lock();
        if let Some(listed) = &mut state.listed {
            put(listed, name(metadata), entry.clone());
        }
        put(&mut state.objects, name(metadata), entry)
    }

    /// Removes an object that was deleted. Returns whether it was known.
    pub(super) fn remove(&self, metadata: &ObjectMeta) -> bool {
        let mut state = self.lock();
        if let Some(listed) = &mut state.listed {
            take(listed, metadata);
        }
        take(&mut state.objects, metadata)
    }

    /// Follows a watch for as long as it is polled. `changed` is told of every object that somebody else has created, changed or
    /// deleted, `failed` of every error from which the watch recovers by itself.
    pub(super) async fn follow<K>(
        &self,
        events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
        read: impl Fn(K) -> Option<T> + Send,
        changed: impl Fn(&ObjectMeta) + Send,
        mut failed: impl FnMut(&watcher::Error) + Send,
    ) where
        K: Resource + Send,
        T: Send + Sync,
    {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => self.begin_list(),
                Ok(Event::InitDone) => self.end_list(),
                Ok(Event::InitApply(object) | Event::Apply(object)) => {
                    let metadata = object.meta().clone();
                    if read(object).is_some_and(|it| self.enter(&metadata, it)) {
                        changed(&metadata);
                    }
                }
                Ok(Event::Delete(object)) => {
                    self.remove(object.meta());
                    changed(object.meta());
                }
                Err(error) => failed(&error),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn put<T>(objects: &mut BTreeMap<Name, Entry<T>>, name: Name, entry: Entry<T>) -> bool {
    let is_newer = objects.get(&name).is_none_or(|it| it.version < entry.version);
    if is_newer {
        objects.insert(name, entry);
    }
    is_newer
}

fn take<T>(objects: &mut BTreeMap<Name, Entry<T>>, metadata: &ObjectMeta) -> bool {
    let name = name(metadata);
    // The version of a deleted object is that of its deletion: another one of its name may be there by now.
    let is_it = objects.get(&name).is_some_and(|it| it.version <= version(metadata));
    is_it && objects.remove(&name).is_some()
}

fn name(metadata: &ObjectMeta) -> Name {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_ref().and_then(|it| it.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(name: &str, version: u64) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("platform".to_owned()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        }
    }

    fn all(cache: &Cache<u64>) -> Vec<u64> {
        cache.find("platform", |_| true).iter().map(|it| **it).collect()
    }

    #[test]
    fn watch_does_not_take_back_what_a_write_answered() {
        let cache = Cache::default();
        assert!(cache.enter(&metadata("a", 5), 5));
        assert!(!cache.enter(&metadata("a", 4), 4), "the watch is behind");
        assert!(!cache.enter(&metadata("a", 5), 5), "the echo of the write");
        assert!(!cache.remove(&metadata("a", 3)), "an earlier object of the name");
        assert_eq!(all(&cache), [5]);
        assert!(cache.enter(&metadata("a", 6), 6));
        assert!(cache.remove(&metadata("a", 7)));
        assert_eq!(all(&cache), [0_u64; 0]);
    }

    #[test]
    fn list_replaces_everything_but_what_was_written_meanwhile() {
        let cache = Cache::default();
        cache.enter(&metadata("gone", 1), 1);
        cache.begin_list();
        cache.enter(&metadata("listed", 2), 2);
        cache.enter(&metadata("written", 9), 9);
        assert_eq!(all(&cache), [1, 2, 9], "a list that is under way hides nothing");
        cache.end_list();
        assert_eq!(all(&cache), [2, 9]);
    }

    #[test]
    fn objects_are_found_in_their_namespace() {
        let cache = Cache::default();
        for namespace in ["a", "platform", "z"] {
            let metadata = ObjectMeta { namespace: Some(namespace.to_owned()), ..metadata("one", 1) };
            cache.enter(&metadata, 1);
        }
        assert_eq!(all(&cache), [1]);
        assert!(cache.get("a", "one").is_some() && cache.get("b", "one").is_none());
    }

    #[tokio::test]
    async fn nobody_reads_before_the_first_list_is_complete() {
        let cache = Cache::<u64>::default();
        cache.begin_list();
        assert!(futures::poll!(std::pin::pin!(cache.listed())).is_pending());
        cache.end_list();
        cache.listed().await;
    }
}
