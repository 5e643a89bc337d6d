//! The control planes that can be talked to: a client and a snapshot each, shared by everything that belongs to one.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use client::Client;
use engine::{World, world::Promises};
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{Mutex, broadcast},
    time::Instant,
};
use uuid::Uuid;

/// How old a list may be that an object is compared with.
const FRESH: Duration = Duration::from_secs(10);

/// Which control plane: its namespace and its name.
pub(super) type PlaneName = (String, String);

/// What a client was made from. As long as it is the same, so is the client, with its budget and its connections.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Origin([u8; 32]);

impl Origin {
    pub(super) fn new(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

/// A control plane that answered with credentials that work.
pub(super) struct Plane {
    origin: Origin,
    deployment: Uuid,
    world: World,
    read: Mutex<Instant>,
}

impl Plane {
    fn new(origin: Origin, client: Client, deployment: Uuid) -> Self {
        // In a cluster nothing is promised: what is not there yet will be noticed when it comes.
        let world = World::new(client, Promises::default()).expecting(deployment);
        Self { origin, deployment, world, read: Mutex::new(Instant::now()) }
    }

    /// What the deployment has, read not long ago.
    pub(super) async fn world(&self) -> &World {
        let mut read = self.read.lock().await;
        if read.elapsed() > FRESH {
            self.world.forget().await;
            *read = Instant::now();
        }
        &self.world
    }

    /// The same, read from now on: before something is written.
    pub(super) async fn world_now(&self) -> &World {
        let mut read = self.read.lock().await;
        self.world.forget().await;
        *read = Instant::now();
        &self.world
    }
}

/// The control planes, by name.
pub(super) struct Planes {
    planes: RwLock<HashMap<PlaneName, Arc<Plane>>>,
    changed: broadcast::Sender<()>,
}

impl Default for Planes {
    fn default() -> Self {
        Self { planes: RwLock::default(), changed: broadcast::channel(16).0 }
    }
}

impl Planes {
    pub(super) fn get(&self, name: &PlaneName) -> Option<Arc<Plane>> {
        self.planes.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The client of a control plane, if it was made from the same.
    pub(super) fn client(&self, name: &PlaneName, origin: &Origin) -> Option<Client> {
        self.get(name).filter(|it| it.origin == *origin).map(|it| it.world.client().clone())
    }

    /// Makes a control plane known, unless it is already; an earlier one of that name with other credentials goes.
    pub(super) fn insert(&self, name: PlaneName, origin: Origin, client: Client, deployment: Uuid) {
        if self.get(&name).is_some_and(|it| it.origin == origin && it.deployment == deployment) {
            return;
        }
        let plane = Arc::new(Plane::new(origin, client, deployment));
        self.planes.write().unwrap_or_else(PoisonError::into_inner).insert(name, plane);
        // Nobody listening is nobody waiting.
        self.changed.send(()).ok();
    }

    /// Forgets a control plane. What belongs to it says so.
    pub(super) fn remove(&self, name: &PlaneName) {
        let known = self.planes.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        if known.is_some() {
            self.changed.send(()).ok();
        }
    }

    /// Speaks up whenever a control plane becomes known, or unknown: what waits for one goes on at once.
    pub(super) fn changes(&self) -> impl futures::Stream<Item = ()> + Send + 'static {
        futures::stream::unfold(self.changed.subscribe(), |mut changes| async {
            match changes.recv().await {
                Ok(()) | Err(broadcast::error::RecvError::Lagged(_)) => Some(((), changes)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        })
    }
}
