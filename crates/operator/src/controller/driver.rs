//! One driver for every kind: what wakes its manifests, what is around each reconcile, and when the next one comes.

pub(super) mod deletion;

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use api::{Manifest, Reason};
use engine::{
    Coder, Freshness, Ref,
    pipeline::{
        cleanup::Cleanup,
        ledger::{Leaves, Ledger},
    },
    ports::ClusterError,
};
use futures::{Stream, StreamExt as _, future::BoxFuture, stream::BoxStream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::runtime::{
    PredicateConfig, WatchStreamExt as _,
    controller::{self, Action, Controller},
    reflector::{self, ObjectRef, Store},
    watcher::{self, Event},
};

use self::deletion::{Deletion, Taken, Waiting};
use super::{
    Shared,
    about::About,
    backoff::{spread, turn, until},
    no_error, predicate,
    reconcile::{self, Ending},
    record::{has_finalizer, set_finalizer},
    wake::Wake,
    watch,
};
use crate::{
    cluster::complaints::Complaints,
    index::{Holding, Shown, Target, Targets},
    planes::{Plane, PlaneName},
};

/// How soon something that waits is reconciled again, should no watch have caused that.
pub(super) const SAFETY_NET: Duration = Duration::from_mins(2);

/// The events of a watch of manifests.
pub(super) type Events<M> = BoxStream<'static, watcher::Result<Event<M>>>;

/// A kind, as its controller drives it.
pub(super) trait Driven: Default + Send + Sync + Sized + 'static {
    type Manifest: Manifest;

    const FINALIZER: &'static str;
    /// Whether a new manifest needs one reconcile only: then the operator's own write of the finalizer causes no second one.
    const IS_DONE_AT_ONCE: bool = false;

    fn conditions(manifest: &Self::Manifest) -> &[Condition];

    /// The control plane that a manifest refers to. `None` for a control plane itself.
    fn plane(manifest: &Self::Manifest) -> Option<PlaneName>;

    /// The deployment behind a control plane, read as recently as `need`.
    fn coder(_driver: &Driver<Self>, plane: &Plane, need: Freshness) -> Coder {
        plane.coder(need)
    }

    /// Everything that a manifest refers to, but its control plane.
    fn refs(manifest: &Self::Manifest) -> Vec<Ref>;

    fn is_suspended(manifest: &Self::Manifest) -> bool;

    fn interval(manifest: &Self::Manifest) -> Duration;

    /// What the deletion of a manifest has to take back.
    fn ledger(manifest: &Self::Manifest) -> Ledger;

    /// What the deletion of a manifest leaves on purpose.
    fn leaves(manifest: &Self::Manifest) -> Leaves;

    /// Writes the status of a suspended manifest.
    fn suspend(
        driver: &Driver<Self>,
        manifest: &Self::Manifest,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;

    /// Reconciles a manifest. `None` where that has to wait for something that wakes the manifest.
    fn reconcile(
        driver: &Driver<Self>,
        manifest: Self::Manifest,
        wake: &Wake,
    ) -> impl Future<Output = Result<Option<Done<Self::Manifest>>, ClusterError>> + Send;

    /// Takes back what a manifest made. Whatever stays behind is entered into `cleanup`. A kind that reads the manifest again
    /// replaces it, so that the rest of the deletion is about that version.
    fn take_back(
        driver: &Driver<Self>,
        manifest: &mut Self::Manifest,
        deletion: &Deletion<'_>,
        cleanup: &mut Cleanup,
    ) -> impl Future<Output = Result<Taken, ClusterError>> + Send;

    /// Writes the status of a manifest whose deletion waits.
    fn report_deletion(
        driver: &Driver<Self>,
        manifest: &Self::Manifest,
        waiting: &Waiting,
    ) -> impl Future<Output = Result<(), ClusterError>> + Send;

    /// Forgets a manifest that is gone.
    fn forget(_driver: &Driver<Self>, _namespace: &str, _name: &str) {}

    /// The watch of the manifests.
    fn events(driver: &Arc<Driver<Self>>) -> Events<Self::Manifest> {
        watch::decoded::<Self::Manifest>(&driver.shared, Some(driver.manifests.clone())).boxed()
    }

    /// The object that a manifest has, where another one of the kind may want it.
    fn holding(_manifest: &Self::Manifest) -> Holding {
        None
    }

    /// Hears what the watch of the manifests has shown, once it is in the store.
    fn shown(_driver: &Driver<Self>, _event: &Event<Self::Manifest>) {}

    /// Adds watches that only this kind needs.
    fn watch(
        _driver: &Arc<Driver<Self>>,
        controller: Controller<Self::Manifest>,
    ) -> Controller<Self::Manifest> {
        controller
    }

    /// Work beside the reconciles, for as long as the controller runs.
    fn beside(_driver: &Arc<Driver<Self>>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// The controller of a kind.
pub(super) struct Driver<D: Driven> {
    pub(super) shared: Arc<Shared>,
    /// Every manifest of the kind.
    pub(super) manifests: Store<D::Manifest>,
    pub(super) kind: D,
}

/// The end of a reconcile.
pub(super) struct Done<M> {
    /// The manifest as the cluster has it.
    pub(super) manifest: M,
    pub(super) ending: Ending,
    pub(super) next: Next,
    /// Whether the reconcile has read what its cause needs it to read.
    pub(super) is_answered: bool,
}

/// When a manifest is reconciled again, should nothing cause that before.
pub(super) enum Next {
    /// After a failure: with a backoff, and not before the time that coderd asks for.
    Retry { wanted: Option<Duration>, at_most: Option<Duration> },
    /// At a time of its own.
    At(Timestamp),
    /// After the interval, or sooner.
    Periodic { within: Option<Duration>, at: Option<Timestamp> },
}

/// Runs the controller of a kind until the operator ends.
pub(super) async fn run<D: Driven>(shared: Arc<Shared>) {
    let (manifests, writer) = reflector::store();
    let driver = Arc::new(Driver { shared, manifests, kind: D::default() });
    let shared = &driver.shared;
    shared.metrics.show(driver.manifests.clone(), D::conditions);
    let (of_shown, of_changed) = (Arc::clone(&driver), Arc::clone(&driver));
    let changes = D::events(&driver)
        .reflect(writer)
        .inspect(move |it| {
            if let Ok(event) = it {
                of_shown.shown(event);
            }
        })
        .applied_objects()
        .predicate_filter(predicate::of::<D::Manifest>(), PredicateConfig::default())
        .inspect(move |it| {
            if let Ok(manifest) = it {
                let uid = manifest.meta().uid.as_deref();
                of_changed.shared.index.rival_changed(&<D::Manifest as kube::Resource>::kind(&()), uid);
            }
        })
        .filter(driver.asks_for_more());
    let controller = Controller::for_stream(changes, driver.manifests.clone());
    let controller = D::watch(&driver, controller.reconcile_on(driver.woken()));
    let controller = controller.graceful_shutdown_on(shared.stop.clone().cancelled_owned()).run(
        |object, driver: Arc<Driver<D>>| {
            let (plane, objects) = (D::plane(&object), driver.manifests.clone());
            let target = reconcile::Target { object, objects, plane };
            reconcile::over(Arc::clone(&driver.shared), target, |it, wake| driver.reconcile(it, wake))
        },
        no_error,
        Arc::clone(&driver),
    );
    let reconciles = controller.inspect(|it| {
        if let Err(controller::Error::ObjectNotFound(gone)) = it {
            let namespace = gone.namespace.as_deref().unwrap_or_default();
            shared.forget(<D::Manifest as kube::Resource>::kind(&()), namespace, &gone.name);
            D::forget(&driver, namespace, &gone.name);
        }
    });
    tokio::select! {
        () = drive::<D::Manifest, _>(shared, reconciles) => {}
        () = D::beside(&driver) => {}
    }
}

impl<D: Driven> Driver<D> {
    /// Enters what the watch of the manifests has shown, once it is in the store.
    fn shown(&self, event: &Event<D::Manifest>) {
        self.shared.index.follow(event, |it| Shown {
            version: predicate::version(it),
            holding: D::holding(it),
            targets: Self::targets(it),
        });
        D::shown(self, event);
    }

    /// What a manifest refers to, or waits for.
    fn targets(manifest: &D::Manifest) -> Targets {
        let meta = manifest.meta();
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let plane = D::plane(manifest);
        let mut targets = Targets::new(namespace, plane.as_ref(), D::refs(manifest));
        let held_by_other = Reason::HeldByOther.as_str();
        if D::conditions(manifest).iter().any(|it| it.reason == held_by_other) {
            targets.add(Target::Rival(D::Manifest::kind(&())));
        }
        if plane.is_none() && meta.deletion_timestamp.is_some() {
            targets.add(Target::Dependents(namespace.to_owned()));
        }
        targets
    }

    /// The manifests for which something has changed that they refer to, wait for or own.
    fn woken(&self) -> impl Stream<Item = ObjectRef<D::Manifest>> + Send + use<D> {
        let memory = Arc::clone(&self.shared.memory);
        self.shared.index.listen(D::Manifest::kind(&())).map(move |woken| {
            let (namespace, name) = woken.name;
            if let Some((uid, noticed)) = woken.event {
                let (kind, namespace, name) = (D::Manifest::kind(&()), namespace.clone(), name.clone());
                let about = About { kind, namespace, name, uid, generation: None };
                memory.reference_changed(&about, noticed);
            }
            ObjectRef::new(&name).within(&namespace)
        })
    }

    /// Filters out versions of manifests that a reconcile has written or begun with.
    fn asks_for_more(
        self: &Arc<Self>,
    ) -> impl FnMut(&watcher::Result<D::Manifest>) -> std::future::Ready<bool> + Send + 'static {
        let memory = Arc::clone(&self.shared.memory);
        move |change| {
            let is_known = |it: &D::Manifest| memory.is_reconciled(&About::of(it), predicate::version(it));
            std::future::ready(!D::IS_DONE_AT_ONCE || change.as_ref().map_or(true, |it| !is_known(it)))
        }
    }

    async fn reconcile(
        self: Arc<Self>,
        manifest: Arc<D::Manifest>,
        mut wake: Wake,
    ) -> Result<Action, ClusterError> {
        let (shared, about, started) = (&self.shared, About::of(&*manifest), Instant::now());
        if manifest.meta().deletion_timestamp.is_some() {
            return Box::pin(deletion::delete(&self, &manifest)).await;
        }
        let mut manifest = (*manifest).clone();
        if D::is_suspended(&manifest) {
            D::suspend(&self, &manifest).await?;
            return Ok(Action::await_change());
        }
        let needs_finalizer = |it: &D::Manifest| D::ledger(it).needs_finalizer(D::leaves(it));
        if needs_finalizer(&manifest) && !has_finalizer(&manifest, D::FINALIZER) {
            let written = set_finalizer(&manifest, D::FINALIZER, true, shared).await?;
            manifest.meta_mut().finalizers.clone_from(&written.meta().finalizers);
            wake = wake.of_written(&manifest, &written);
            // The watch shows it, too: that is no change of anybody else.
            shared.memory.wrote(&about, predicate::version(&manifest));
            manifest = written;
        }
        let Some(done) = Box::pin(D::reconcile(&self, manifest, &wake)).await? else {
            return Ok(Action::requeue(SAFETY_NET));
        };
        let Done { manifest, ending, next, is_answered } = done;
        if is_answered {
            shared.memory.answered(&about, &wake);
        } else {
            shared.memory.unanswered(&about);
        }
        if has_finalizer(&manifest, D::FINALIZER) && !needs_finalizer(&manifest) {
            set_finalizer(&manifest, D::FINALIZER, false, shared).await?;
        }
        shared.reconciles.ended(&about, &ending, started.elapsed());
        Ok(Action::requeue(self.delay(&about, &manifest, &next)))
    }

    /// How long it is until the next reconcile.
    fn delay(&self, about: &About, manifest: &D::Manifest, next: &Next) -> Duration {
        let (memory, now) = (&self.shared.memory, Timestamp::now());
        match *next {
            Next::Retry { wanted, at_most } => {
                memory.after_failure(about, wanted).min(at_most.unwrap_or(Duration::MAX))
            }
            Next::At(then) => until(then, now),
            Next::Periodic { within, at } => {
                memory.succeeded(about);
                let interval = match D::plane(manifest) {
                    Some(plane) => turn(D::interval(manifest), &plane, now),
                    None => spread(D::interval(manifest), &about.uid),
                };
                let interval = interval.min(within.unwrap_or(Duration::MAX));
                at.map_or(interval, |it| interval.min(until(it, now)))
            }
        }
    }
}

/// Drives a controller to its end. What comes out of it are the watch's errors, from which it recovers by itself; reconciles have
/// told of their own.
async fn drive<K, T>(
    shared: &Shared,
    controller: impl Stream<Item = Result<T, controller::Error<Infallible, watcher::Error>>> + Send,
) where
    K: Resource<DynamicType = ()>,
{
    let mut complaints = Complaints::default();
    let mut controller = std::pin::pin!(controller);
    while let Some(reconcile) = controller.next().await {
        if let Err(controller::Error::QueueError(error)) = reconcile {
            complaints.report(&K::kind(&()), &error.to_string(), &shared.metrics);
        }
    }
}
