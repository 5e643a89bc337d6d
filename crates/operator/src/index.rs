//! Who refers to what: the one way in which a change of something wakes the manifests that refer to it, or wait for it.
//!
//! A manifest that is woken waits here until its controller takes it, once, however often it is woken meanwhile.

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    mem::{Discriminant, discriminant},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use engine::{Ref, RemoteName};
use futures::Stream;
use kube::{Resource, runtime::watcher::Event};
use tokio::{sync::Notify, time::Instant};

/// A manifest that begins to wait for another one has been compared for no longer than this.
const COMPARED_WITHIN: Duration = Duration::from_mins(2);

/// The name of a kind of Kubernetes, as `CoderGroup`.
pub(crate) type KindName = Cow<'static, str>;

/// A namespace, and a name in it.
pub(crate) type Name = (String, String);

/// Something that manifests refer to, or wait for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// A control plane: whether it can be used, and as what.
    ControlPlane(Name),
    /// What a control plane reports in its status.
    ControlPlaneStatus(Name),
    Secret(Name),
    ConfigMap(Name),
    /// Another manifest of a kind, which has what this one wants.
    Rival(KindName),
    /// What belongs to control planes of a namespace, and is being deleted like one of them.
    Dependents(String),
    /// The objects of one sort in the deployment of a control plane. Names of them that differ may be the same object.
    Remote(Name, Discriminant<RemoteName>),
}

impl Target {
    pub(crate) fn remote(plane: &Name, name: &RemoteName) -> Self {
        Self::Remote(plane.clone(), discriminant(name))
    }

    /// Whether a change of it shows in nothing that every reconcile reads by itself, so that lists have to be read again for it.
    fn needs_fresh_reads(&self) -> bool {
        match self {
            Self::ControlPlane(_) | Self::ControlPlaneStatus(_) | Self::Rival(_) | Self::Remote(..) => true,
            Self::Secret(_) | Self::ConfigMap(_) | Self::Dependents(_) => false,
        }
    }
}

/// What a manifest refers to, or waits for.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Targets {
    all: HashSet<Target>,
    remote: Vec<RemoteName>,
}

impl Targets {
    /// `plane` is the control plane that the manifest refers to. `None` for a control plane itself.
    pub(crate) fn new(namespace: &str, plane: Option<&Name>, refs: Vec<Ref>) -> Self {
        let named = |name: String| (namespace.to_owned(), name);
        let mut targets = Self::default();
        targets.all.extend(plane.cloned().map(Target::ControlPlane));
        for reference in refs {
            match reference {
                Ref::ControlPlaneStatus(name) => targets.add(Target::ControlPlaneStatus(named(name))),
                Ref::Secret(name) => targets.add(Target::Secret(named(name))),
                Ref::ConfigMap(name) => targets.add(Target::ConfigMap(named(name))),
                Ref::Remote(name) => {
                    targets.all.extend(plane.map(|it| Target::remote(it, &name)));
                    targets.remote.push(name);
                }
            }
        }
        targets
    }

    pub(crate) fn add(&mut self, target: Target) {
        self.all.insert(target);
    }
}

/// A manifest that is to be reconciled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Woken {
    pub(crate) name: Name,
    /// The uid of the manifest, and when the last change was noticed that lists have to be read again for.
    pub(crate) event: Option<(String, Instant)>,
}

/// The manifests of a kind that are to be reconciled.
#[derive(Debug, Default)]
struct Pending {
    woken: BTreeMap<Name, Option<(String, Instant)>>,
    added: Arc<Notify>,
}

/// A manifest with its targets.
#[derive(Debug, PartialEq, Eq)]
struct Referrer {
    kind: KindName,
    name: Name,
    uid: String,
    /// Tells two versions apart that are to be reconciled.
    version: u64,
    /// The object of which deployment it has, by its status.
    holding: Holding,
    targets: Targets,
}

/// What a manifest has by its status: the id of an object and that of the deployment.
pub(crate) type Holding = Option<(String, Option<String>)>;

/// What is known of a version of a manifest.
pub(crate) struct Shown {
    pub(crate) version: u64,
    pub(crate) holding: Holding,
    pub(crate) targets: Targets,
}

type Key = (KindName, Name);
type Manifests = HashMap<Key, Arc<Referrer>>;

#[derive(Debug, Default)]
struct State {
    manifests: Manifests,
    referrers: HashMap<Target, Vec<Arc<Referrer>>>,
    /// By kind. A kind without a controller is not there.
    pending: HashMap<KindName, Pending>,
    /// The lists of manifests that are being read, by kind.
    listings: HashMap<KindName, Manifests>,
    /// The kinds of which a list was read to its end.
    listed: HashSet<KindName>,
    /// When a manifest of a kind was last changed or deleted.
    rivals: HashMap<KindName, Instant>,
}

/// The manifests of all kinds by what they refer to.
#[derive(Debug, Default)]
pub(crate) struct Index(Mutex<State>);

impl Index {
    /// The manifests of a kind that are to be reconciled, from now on. One controller of a kind listens.
    pub(crate) fn listen(self: &Arc<Self>, kind: KindName) -> impl Stream<Item = Woken> + Send + use<> {
        let added = Arc::clone(&self.lock().pending.entry(kind.clone()).or_default().added);
        let index = Arc::clone(self);
        futures::stream::unfold((), move |()| {
            let (index, kind, added) = (Arc::clone(&index), kind.clone(), Arc::clone(&added));
            async move {
                loop {
                    if let Some(woken) = index.lock().take(&kind) {
                        return Some((woken, ()));
                    }
                    added.notified().await;
                }
            }
        })
    }

    /// Follows a watch of manifests, once its store has what it shows.
    pub(crate) fn follow<M>(&self, event: &Event<M>, of: impl Fn(&M) -> Shown)
    where
        M: Resource<DynamicType = ()>,
    {
        let referrer = |it: &M| Arc::new(Referrer::new(it, of(it)));
        let kind = M::kind(&());
        let mut state = self.lock();
        match event {
            Event::Init => drop(state.listings.insert(kind, Manifests::default())),
            Event::InitApply(it) => {
                let referrer = referrer(it);
                state.listings.entry(kind).or_default().insert(referrer.key(), referrer);
            }
            Event::InitDone => {
                let listed = state.listings.remove(&kind).unwrap_or_default();
                state.replace(&kind, listed);
            }
            Event::Apply(it) => state.enter(referrer(it)),
            Event::Delete(it) => {
                state.remove(&(kind.clone(), name_of(it)));
                state.rival_changed(&kind, it.meta().uid.as_deref());
                // Its controller drops what it remembers of the manifest.
                state.wake(&kind, name_of(it), None);
            }
        }
    }

    /// Something has changed that manifests refer to, or wait for.
    pub(crate) fn changed(&self, target: &Target) {
        self.wake(target, |_| true);
    }

    /// The same, where we changed it for the object with that uid.
    pub(crate) fn changed_for(&self, target: &Target, uid: &str) {
        self.wake(target, |it| it.uid != uid);
    }

    /// A manifest has changed, or what it has: others of its kind may have it now.
    pub(crate) fn rival_changed(&self, kind: &KindName, uid: Option<&str>) {
        self.lock().rival_changed(kind, uid);
    }

    /// An object in the deployment of a control plane was created, changed or deleted.
    pub(crate) fn remote_changed(&self, plane: &Name, name: &RemoteName) {
        self.wake(&Target::remote(plane, name), |it| it.targets.remote.iter().any(|it| it.may_be(name)));
    }

    /// Something has changed that belongs to a manifest.
    pub(crate) fn owned_changed(&self, kind: &KindName, namespace: &str, name: &str) {
        self.lock().wake(kind, (namespace.to_owned(), name.to_owned()), None);
    }

    fn wake(&self, target: &Target, is_concerned: impl Fn(&Referrer) -> bool) {
        self.lock().wake_those_of(target, is_concerned);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn enter(&mut self, referrer: Arc<Referrer>) {
        let key = referrer.key();
        if self.manifests.get(&key) == Some(&referrer) {
            return;
        }
        let rival = Target::Rival(referrer.kind.clone());
        let waits = |it: &Referrer| it.targets.all.contains(&rival);
        let before = self.manifests.get(&key);
        let has_waited = before.is_none_or(|it| waits(it));
        let has_released = before.is_some_and(|it| it.holding.is_some() && it.holding != referrer.holding);
        self.remove(&key);
        for target in &referrer.targets.all {
            self.referrers.entry(target.clone()).or_default().push(Arc::clone(&referrer));
        }
        let changed = self.rivals.get(&referrer.kind).filter(|it| it.elapsed() < COMPARED_WITHIN).copied();
        if let Some(changed) = changed.filter(|_| !has_waited && waits(&referrer)) {
            // The one that it waits for may have changed while it was being compared.
            self.wake(&referrer.kind, referrer.name.clone(), Some((referrer.uid.clone(), changed)));
        }
        if has_released {
            self.rival_changed(&referrer.kind, Some(&referrer.uid));
        }
        self.manifests.insert(key, referrer);
    }

    fn remove(&mut self, key: &Key) {
        let Some(known) = self.manifests.remove(key) else { return };
        for target in &known.targets.all {
            let Some(referrers) = self.referrers.get_mut(target) else { continue };
            referrers.retain(|it| !Arc::ptr_eq(it, &known));
            if referrers.is_empty() {
                self.referrers.remove(target);
            }
        }
    }

    /// A list is complete: what it did not show is gone. Where it is not the first one, everything that changed meanwhile is woken: the
    /// store has it only now, and it may have been looked for before.
    fn replace(&mut self, kind: &KindName, listed: Manifests) {
        let is_first = self.listed.insert(kind.clone());
        let gone = self.manifests.keys().filter(|it| it.0 == *kind && !listed.contains_key(it));
        let gone: Vec<Key> = gone.cloned().collect();
        for key in &gone {
            self.remove(key);
            self.wake(kind, key.1.clone(), None);
        }
        for (key, referrer) in listed {
            let is_known = self.manifests.get(&key).is_some_and(|it| it.version == referrer.version);
            self.enter(referrer);
            if !is_known && !is_first {
                self.wake(kind, key.1, None);
            }
        }
        if !gone.is_empty() {
            self.rival_changed(kind, None);
        }
    }

    fn rival_changed(&mut self, kind: &KindName, uid: Option<&str>) {
        self.rivals.insert(kind.clone(), Instant::now());
        self.wake_those_of(&Target::Rival(kind.clone()), |it| uid != Some(it.uid.as_str()));
    }

    fn wake_those_of(&mut self, target: &Target, is_concerned: impl Fn(&Referrer) -> bool) {
        let now = target.needs_fresh_reads().then(Instant::now);
        let referrers = self.referrers.get(target).cloned().unwrap_or_default();
        for referrer in referrers.iter().filter(|it| is_concerned(it)) {
            let event = now.map(|it| (referrer.uid.clone(), it));
            self.wake(&referrer.kind, referrer.name.clone(), event);
        }
    }

    fn wake(&mut self, kind: &KindName, name: Name, event: Option<(String, Instant)>) {
        // No controller of the kind runs: its first list is an event for all of them.
        let Some(pending) = self.pending.get_mut(kind) else { return };
        let known = pending.woken.entry(name).or_default();
        // The later of two changes counts, and one of the manifest that is there now.
        *known = match (event, known.take()) {
            (Some(new), Some(old)) if new.0 == old.0 => Some((new.0, new.1.max(old.1))),
            (new, old) => new.or(old),
        };
        pending.added.notify_one();
    }

    fn take(&mut self, kind: &KindName) -> Option<Woken> {
        let (name, event) = self.pending.get_mut(kind)?.woken.pop_first()?;
        // An event of a manifest that is gone says nothing of another one of its name.
        let now = self.manifests.get(&(kind.clone(), name.clone()));
        let event = event.filter(|(uid, _)| now.is_none_or(|it| it.uid == *uid));
        Some(Woken { name, event })
    }
}

impl Referrer {
    fn new<M: Resource<DynamicType = ()>>(manifest: &M, shown: Shown) -> Self {
        let uid = manifest.meta().uid.clone().unwrap_or_default();
        let Shown { version, holding, targets } = shown;
        Self { kind: M::kind(&()), name: name_of(manifest), uid, version, holding, targets }
    }

    fn key(&self) -> Key {
        (self.kind.clone(), self.name.clone())
    }
}

fn name_of<M: Resource>(manifest: &M) -> Name {
    let meta = manifest.meta();
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}
