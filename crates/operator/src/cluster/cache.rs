//! The objects of one resource, kept up to date by one watch for all controllers and by the answers to our own writes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use engine::{
    objects::Live,
    ports::{ClusterError, WatchEvent},
};
use futures::{Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

/// The namespace and the name of an object.
type Name = (String, String);

/// How long the first list is waited for.
const LISTED_WITHIN: Duration = Duration::from_secs(10);
/// How long a cache is not relied on after its watch failed: a watch that keeps failing does so more often.
const DOUBTFUL_FOR: Duration = Duration::from_mins(1);

/// The objects of one resource.
#[derive(Debug)]
pub(crate) struct Cache<T> {
    state: Mutex<State<T>>,
    is_listed: watch::Sender<bool>,
}

#[derive(Debug)]
struct State<T> {
    objects: BTreeMap<Name, Entry<T>>,
    /// The objects of a list that is being read.
    listed: Option<BTreeMap<Name, Entry<T>>>,
    /// The highest version that list and watch have shown. Resource versions of one resource count up, whichever object they
    /// belong to.
    shown: u64,
    /// When the watch last failed.
    failed: Option<Instant>,
}

#[derive(Debug)]
struct Entry<T> {
    version: u64,
    /// The name and the owners.
    metadata: ObjectMeta,
    object: Arc<T>,
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        let object = Arc::clone(&self.object);
        Self { version: self.version, metadata: self.metadata.clone(), object }
    }
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        let state = State { objects: BTreeMap::new(), listed: None, shown: 0, failed: None };
        Self { state: Mutex::new(state), is_listed: watch::Sender::new(false) }
    }
}

impl<T> Cache<T> {
    /// Whether the cache can be relied on: its first list is complete, and its watch has not failed lately. Waits a while for
    /// the list. What cannot be relied on is read from the API server, whose answer says what is wrong.
    pub(crate) async fn is_reliable(&self) -> bool {
        let mut is_listed = self.is_listed.subscribe();
        // The sender lives as long as the cache.
        timeout(LISTED_WITHIN, is_listed.wait_for(|it| *it)).await.ok();
        self.is_reliable_now()
    }

    /// The same without waiting.
    pub(crate) fn is_reliable_now(&self) -> bool {
        let failed = self.lock().failed;
        *self.is_listed.borrow() && failed.is_none_or(|it| it.elapsed() >= DOUBTFUL_FOR)
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.lock().objects.get(&key).map(|it| Arc::clone(&it.object))
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.lock().objects.values().map(|it| Arc::clone(&it.object)).collect()
    }

    /// The objects of a namespace for which that is true.
    pub(crate) fn find(&self, namespace: &str, is: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let from = (namespace.to_owned(), String::new());
        let state = self.lock();
        let of_namespace = state.objects.range(from..).take_while(|(name, _)| name.0 == namespace);
        of_namespace.filter(|(_, it)| is(&it.object)).map(|(_, it)| Arc::clone(&it.object)).collect()
    }

    /// A list begins: objects that it does not show are gone.
    pub(crate) fn begin_list(&self) {
        self.lock().listed = Some(BTreeMap::new());
    }

    /// A list is complete. Returns the objects that it did not show. Answers to writes that came meanwhile are among them: the
    /// watch shows these objects again, unless they are gone.
    pub(crate) fn end_list(&self) -> Vec<ObjectMeta> {
        let mut state = self.lock();
        let Some(listed) = state.listed.take() else { return Vec::new() };
        let before = std::mem::replace(&mut state.objects, listed);
        let gone = before.into_iter().filter(|(name, _)| !state.objects.contains_key(name));
        let gone = gone.map(|(_, it)| it.metadata).collect();
        drop(state);
        self.is_listed.send_replace(true);
        gone
    }

    /// Enters an object of a list or of a watch. Returns whether it is newer than the known one.
    pub(crate) fn enter(&self, metadata: &ObjectMeta, object: T) -> bool {
        let entry = Entry::new(metadata, object);
        let mut state = self.lock();
        state.shown = state.shown.max(entry.version);
        let is_newer = state.objects.get(&name(metadata)).is_none_or(|it| it.version < entry.version);
        if let Some(listed) = &mut state.listed {
            put(listed, name(metadata), entry.clone());
        }
        // Also while a list is being read: the reconcile that the object wakes must find it.
        put(&mut state.objects, name(metadata), entry);
        is_newer
    }

    /// Enters the answer to a request of ours. Returns whether it is newer than the known object. An answer that the watch has
    /// overtaken without showing the object is about one that is gone.
    pub(crate) fn note(&self, metadata: &ObjectMeta, object: T) -> bool {
        let entry = Entry::new(metadata, object);
        let mut state = self.lock();
        let is_newer = match state.objects.get(&name(metadata)) {
            Some(known) => known.version < entry.version,
            None => entry.version > state.shown,
        };
        if is_newer {
            put(&mut state.objects, name(metadata), entry);
        }
        is_newer
    }

    /// Removes an object that was deleted. Returns whether it was known.
    pub(crate) fn remove(&self, metadata: &ObjectMeta) -> bool {
        let mut state = self.lock();
        state.shown = state.shown.max(version(metadata));
        if let Some(listed) = &mut state.listed {
            take(listed, metadata);
        }
        take(&mut state.objects, metadata)
    }

    /// Follows a watch for as long as it is polled. `changed` is called for every object that another client has created,
    /// changed or deleted, `failed` for every error; the watch recovers from these by itself.
    pub(crate) async fn follow(
        &self,
        events: impl Stream<Item = Result<WatchEvent, ClusterError>> + Send,
        read: impl Fn(Live) -> Option<T> + Send,
        changed: impl Fn(&ObjectMeta) + Send,
        mut failed: impl FnMut(&ClusterError) + Send,
    ) where
        T: Send + Sync,
    {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::Init) => self.begin_list(),
                Ok(WatchEvent::InitDone) => self.end_list().iter().for_each(&changed),
                Ok(WatchEvent::InitApply(object) | WatchEvent::Apply(object)) => {
                    let metadata = object.metadata().clone();
                    if read(object).is_some_and(|it| self.enter(&metadata, it)) {
                        changed(&metadata);
                    }
                }
                Ok(WatchEvent::Delete(object)) => {
                    self.remove(object.metadata());
                    changed(object.metadata());
                }
                Err(error) => {
                    self.lock().failed = Some(Instant::now());
                    failed(&error);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Entry<T> {
    fn new(metadata: &ObjectMeta, object: T) -> Self {
        let kept = ObjectMeta {
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            owner_references: metadata.owner_references.clone(),
            ..ObjectMeta::default()
        };
        Self { version: version(metadata), metadata: kept, object: Arc::new(object) }
    }
}

fn put<T>(objects: &mut BTreeMap<Name, Entry<T>>, name: Name, entry: Entry<T>) {
    if objects.get(&name).is_none_or(|it| it.version < entry.version) {
        objects.insert(name, entry);
    }
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
    use futures::stream;

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
    fn list_replaces_everything_and_reports_what_is_gone() {
        let cache = Cache::default();
        cache.enter(&metadata("gone", 1), 1);
        cache.begin_list();
        cache.enter(&metadata("listed", 2), 2);
        cache.note(&metadata("written", 9), 9);
        assert_eq!(all(&cache), [1, 2, 9], "a list that is under way hides nothing");
        let gone: Vec<_> = cache.end_list().into_iter().filter_map(|it| it.name).collect();
        assert_eq!(gone, ["gone", "written"]);
        assert_eq!(all(&cache), [2]);
        assert!(cache.enter(&metadata("written", 9), 9), "the watch shows it after the list");
    }

    #[test]
    fn late_answer_does_not_bring_back_what_was_deleted() {
        let cache = Cache::default();
        cache.enter(&metadata("a", 9), 9);
        cache.remove(&metadata("a", 11));
        assert!(!cache.note(&metadata("a", 10), 10));
        assert_eq!(all(&cache), [0_u64; 0]);
        assert!(cache.note(&metadata("a", 12), 12), "it was created again");
        assert!(!cache.enter(&metadata("a", 12), 12), "the echo of the write");
    }

    #[tokio::test(start_paused = true)]
    async fn cache_whose_watch_fails_is_not_relied_on() {
        let cache = Cache::<u64>::default();
        let error = ClusterError::NoAnswer("the watch was lost".to_owned());
        let events = [Ok(WatchEvent::Init), Ok(WatchEvent::InitDone), Err(error)];
        cache.follow(stream::iter(events), |_| None, |_| {}, |_| {}).await;
        assert!(!cache.is_reliable().await);
        tokio::time::advance(DOUBTFUL_FOR).await;
        assert!(cache.is_reliable().await);
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

    #[tokio::test(start_paused = true)]
    async fn cache_without_its_first_list_is_not_relied_on() {
        let cache = Cache::<u64>::default();
        cache.begin_list();
        assert!(!cache.is_reliable().await);
        cache.end_list();
        assert!(cache.is_reliable().await);
    }
}
