//! A Kubernetes cluster in memory, behind the engine's port.
//!
//! Objects have uids and resourceVersions, writes are refused with 409 where their preconditions do not hold, objects with
//! finalizers stay until the last finalizer is removed, and dependents go with their last owner. There are no schemas, no
//! defaults and no admission: these are checked against a real API server.

mod clock;
mod follow;
mod intercept;
mod merge;
mod port;
mod record;
mod state;
mod watch;
mod workloads;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use engine::ports::{ClusterError, object::Key};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

pub use self::{
    clock::ManualClock,
    intercept::{ClusterCall, Interceptor},
    record::{PodLog, RecordedEvent},
};
use self::{intercept::Intercepted, state::State};
use crate::Clock;

/// A cluster. Clones are other clients of the same cluster.
#[derive(Clone)]
pub struct MemoryCluster {
    clock: Clock,
    state: Arc<Mutex<State>>,
    interceptor: Option<Arc<dyn Interceptor>>,
    /// The objects as a watch that is behind shows them. `None` where the watch is up to date.
    lagging: Option<Arc<Mutex<BTreeMap<Key, Value>>>>,
}

impl MemoryCluster {
    /// An empty cluster. Uids follow from the seed and the order of writes.
    pub fn new(clock: Clock, seed: u64) -> Self {
        Self { clock, state: Arc::new(Mutex::new(State::new(seed))), interceptor: None, lagging: None }
    }

    /// Another cluster with the same objects, and without interceptor.
    #[must_use]
    pub fn copy(&self, clock: Clock) -> Self {
        let state = Arc::new(Mutex::new(self.lock().clone()));
        Self { clock, state, interceptor: None, lagging: None }
    }

    /// Another client of this cluster, each of whose calls goes through the interceptor.
    #[must_use]
    pub fn intercepted_by(&self, interceptor: Arc<dyn Interceptor>) -> Self {
        Self { interceptor: Some(interceptor), ..self.clone() }
    }

    /// Another client of this cluster, whose watch shows an object as this client has last read or written it.
    #[must_use]
    pub fn lagging(&self) -> Self {
        Self { lagging: Some(Arc::default()), ..self.clone() }
    }

    /// The number of writes and deletions that were accepted, also of those that changed nothing.
    pub fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// The kinds that are watched now, one for each watch.
    pub fn watched_kinds(&self) -> Vec<String> {
        self.lock().watchers.kinds()
    }

    /// Refuses to create, replace or apply the objects for which the predicate is true. `None` refuses none.
    pub fn refuse_writes(&self, is_refused: Option<fn(&Value) -> bool>) {
        self.lock().is_refused = is_refused;
    }

    /// Refuses lists of a kind in one namespace, or in all of them, with that status code.
    pub fn refuse_lists(&self, kind: &'static str, namespace: Option<&'static str>, code: u16) {
        self.lock().unlisted.push((kind, namespace, code));
    }

    /// Stores an object as it is, status and metadata included, whatever is stored under its name.
    pub fn set(&self, object: &Value) {
        let key = Key::of(object).expect("an object has a kind, a namespace and a name");
        self.lock().store(&key, object.clone(), (self.clock)());
    }

    /// Removes all objects of that kind and name at once, and their dependents.
    pub fn remove(&self, kind: &str, name: &str) {
        self.lock().remove_named(kind, name, (self.clock)());
    }

    /// The first object of that kind and name.
    pub fn find(&self, kind: &str, name: &str) -> Option<Value> {
        let state = self.lock();
        let found = state.objects.iter().find(|(key, _)| key.kind == kind && key.name == name);
        found.map(|(_, object)| object.clone())
    }

    /// All objects of that kind.
    pub fn all(&self, kind: &str) -> Vec<Value> {
        let state = self.lock();
        let found = state.objects.iter().filter(|(key, _)| key.kind == kind);
        found.map(|(_, object)| object.clone()).collect()
    }

    /// Changes the first object of that kind and name as another client would.
    pub fn edit(&self, kind: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut object = self.find(kind, name).expect("the object that is changed exists");
        edit(&mut object);
        self.set(&object);
    }

    /// Brings Deployments, their `ReplicaSet`s and their pods as far as they are by now, with pods that are ready that long after
    /// they were created. Returns when the next pod becomes ready. `None` where none will.
    pub fn settle_workloads(&self, ready_after: SignedDuration) -> Option<Timestamp> {
        self.lock().settle_workloads(ready_after, (self.clock)())
    }

    /// Loses every watch. What changes until a watch is asked for its next event is only in its new list.
    pub fn lose_watches(&self) {
        self.lock().watchers.lose();
    }

    /// The Events that were written, oldest first.
    pub fn events(&self) -> Vec<RecordedEvent> {
        self.lock().events.clone()
    }

    /// Sets the log of a container.
    pub fn set_log(&self, of: PodLog, text: &str) {
        self.lock().logs.insert(of, text.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The watch of this client, if it is behind.
    fn watched<T>(&self, look: impl FnOnce(&mut BTreeMap<Key, Value>) -> T) -> Option<T> {
        let lagging = self.lagging.as_ref()?;
        Some(look(&mut lagging.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Enters what this client has read into its watch.
    fn show(&self, key: &Key, object: Option<&Value>) {
        self.watched(|shown| match object {
            Some(object) => drop(shown.insert(key.clone(), object.clone())),
            None => drop(shown.remove(key)),
        });
    }

    /// One call: what the interceptor does before, the call itself, and what the interceptor does after it took effect.
    async fn call<T>(
        &self,
        call: ClusterCall<'_>,
        run: impl FnOnce(&mut State) -> Result<T, ClusterError> + Send,
    ) -> Result<T, ClusterError>
    where
        T: Send,
    {
        let intercepted = Intercepted { interceptor: self.interceptor.as_deref(), call };
        intercepted.before().await?;
        let done = run(&mut self.lock());
        intercepted.after().await?;
        done
    }
}

impl fmt::Debug for MemoryCluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MemoryCluster").field("objects", &self.lock().objects).finish_non_exhaustive()
    }
}
