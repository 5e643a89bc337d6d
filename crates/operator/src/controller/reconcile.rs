//! One reconcile over one object, whatever its kind: who it is about, how long it may take, what happens when it fails, and
//! which of its endings are worth a line.
//!
//! The controllers of `kube` know no deadline, end for good when a reconcile panics, and have no memory of failures. All three
//! are here, around every reconcile, so that a reconcile itself is only about its object.

mod outcomes;
mod queue;
#[cfg(test)]
mod tests;

use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use api::Reason;
use engine::ports::ClusterError;
use futures::FutureExt as _;
use kube::runtime::{
    controller::Action,
    reflector::{ObjectRef, Store},
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

use self::{outcomes::News, queue::Turns};
use super::{Shared, about::About, memory::Memory, wake::Wake};
use crate::{
    controller::predicate, index::KindName, planes::PlaneName, sent::MAY_HAVE_CHANGED,
    telemetry::metrics::Metrics,
};

/// How long a reconcile may take that has not begun to change anything.
const DEADLINE: Duration = Duration::from_mins(1);

/// How soon it is looked again whether the watch has shown what we wrote.
const WATCH_DELAY: Duration = Duration::from_millis(50);

/// How a reconcile ended, for those who count and those who read.
#[derive(Debug, Clone)]
pub(super) struct Ending {
    /// The reason of the condition `Ready`.
    pub(super) reason: Reason,
    pub(super) message: String,
    /// Whether it is as it should be.
    pub(super) is_ready: bool,
    /// Whether something went wrong, or somebody has to do something.
    pub(super) is_trouble: bool,
}

/// All reconciles of a run.
#[derive(Debug)]
pub(super) struct Reconciles {
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    turns: Turns,
    under_way: TaskTracker,
    memory: Arc<Memory>,
    news: News,
}

impl Reconciles {
    pub(super) fn new(metrics: Arc<Metrics>, memory: Arc<Memory>, stop: CancellationToken) -> Self {
        let (turns, under_way, news) = (Turns::default(), TaskTracker::new(), News::default());
        Self { metrics, stop, turns, under_way, memory, news }
    }

    /// Waits in the line of a control plane; without one it is everybody's turn. Nothing when it is too late to begin.
    async fn turn(&self, kind: KindName, plane: Option<&PlaneName>) -> Option<Turn> {
        let Some(plane) = plane else { return Some(Turn { _permit: None }) };
        let waiting = self.metrics.waits(kind);
        tokio::select! {
            permit = self.turns.next(plane) => {
                waiting.ended();
                Some(Turn { _permit: permit })
            }
            () = self.stop.cancelled() => None,
        }
    }

    /// Does a reconcile, unless it is too late to begin one.
    pub(super) async fn over<W>(&self, about: &About, work: W) -> Action
    where
        W: Future<Output = Result<Action, ClusterError>> + Send,
    {
        // First counted, then asked: who waits for the last one to end sees this one, or this one sees the end.
        let _waited_for = self.under_way.token();
        if self.stop.is_cancelled() {
            return Action::await_change();
        }
        let _counted = self.metrics.begins(about.kind.clone());
        self.attempt(about, work).instrument(about.span()).await
    }

    async fn attempt<W>(&self, about: &About, work: W) -> Action
    where
        W: Future<Output = Result<Action, ClusterError>> + Send,
    {
        let started = Instant::now();
        let (reason, message) = match within(DEADLINE, work).await {
            Ok(Ok(action)) => {
                self.memory.ended(about);
                return action;
            }
            // Of two writers one is refused and looks again: that is how it should be.
            Ok(Err(error)) if error.is_conflict() => {
                tracing::debug!("the object changed meanwhile");
                self.metrics.reconciled(about.kind.clone(), Reason::ClusterError, started.elapsed());
                return Action::requeue(self.memory.after_cut(about));
            }
            Ok(Err(error)) => (Reason::ClusterError, error.to_string()),
            Err(Cut::Late) => {
                (Reason::Deadline, format!("cut off after {DEADLINE:?}, before anything was changed"))
            }
            Err(Cut::Panicked) => (Reason::Panic, "a mistake in the operator: please report it".to_owned()),
        };
        let ending = Ending { reason, message, is_ready: false, is_trouble: true };
        self.ended(about, &ending, started.elapsed());
        Action::requeue(self.memory.after_cut(about))
    }

    /// Counts a reconcile, and tells of it if it ended in another way than the one before.
    pub(super) fn ended(&self, about: &About, ending: &Ending, took: Duration) {
        let Ending { reason, message, is_ready, is_trouble } = ending;
        let (reason, is_ready) = (*reason, *is_ready);
        self.metrics.reconciled(about.kind.clone(), reason, took);
        if !self.news.is_new(&about.uid, is_ready, &[reason.as_str(), message]) {
            return;
        }
        if *is_trouble {
            tracing::warn!(%reason, "{message}");
        } else {
            tracing::info!(%reason, "{message}");
        }
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&self, about: &About) {
        self.memory.forget(about.kind.clone(), &about.namespace, &about.name);
        self.news.forget(&about.uid);
    }

    /// Returns when no reconcile is under way; to be asked when none begins any more.
    pub(super) async fn all_ended(&self) {
        self.under_way.close();
        self.under_way.wait().await;
    }

    /// How many are under way.
    pub(super) fn count(&self) -> usize {
        self.under_way.len()
    }
}

/// A turn, for as long as it is kept.
struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
}

/// The object that a reconcile is asked for, and where it stands.
pub(super) struct Target<K: kube::Resource<DynamicType = ()> + 'static> {
    pub(super) object: Arc<K>,
    pub(super) objects: Store<K>,
    /// The control plane in whose line it waits.
    pub(super) plane: Option<PlaneName>,
}

/// A reconcile over an object, as a controller runs it: in its turn, over the object as it is by then, and told what woke it.
pub(super) async fn over<K, F, W>(
    shared: Arc<Shared>,
    target: Target<K>,
    work: F,
) -> Result<Action, Infallible>
where
    K: kube::Resource<DynamicType = ()> + Clone,
    F: FnOnce(Arc<K>, Wake) -> W,
    W: Future<Output = Result<Action, ClusterError>> + Send,
{
    let Target { object, objects, plane } = target;
    // The change or request that this version of the object carries happened before now.
    let mut noticed = Instant::now();
    let Some(_turn) = shared.reconciles.turn(K::kind(&()), plane.as_ref()).await else {
        return Ok(Action::await_change());
    };
    // Somebody may have thought better of it meanwhile.
    let Some(current) = objects.get(&ObjectRef::from_obj(&*object)) else {
        let About { kind, namespace, name, .. } = About::of(&*object);
        shared.forget(kind, &namespace, &name);
        return Ok(Action::await_change());
    };
    if shared.own_writes.are_later_than(current.meta()) {
        return Ok(Action::requeue(WATCH_DELAY));
    }
    let version = predicate::version(&*current);
    if version != predicate::version(&*object) {
        noticed = Instant::now();
    }
    let about = About::of(&*current);
    let wake = shared.memory.wake(&about, version, noticed);
    Ok(shared.reconciles.over(&about, work(current, wake)).await)
}

/// Why a reconcile has no end of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Late,
    Panicked,
}

/// Does the work, at most that long.
///
/// What was begun is not cut: between the answer that creates an object and the status that records its id there must be
/// no way out, or nobody would hold it. So the deadline counts only until the first request that may change a deployment;
/// from there on each request ends by its own time-out, and there are as many as the plan has steps. What was cut has
/// changed nothing, or nothing but Kubernetes, and the next reconcile observes.
async fn within<W: Future + Send>(limit: Duration, work: W) -> Result<W::Output, Cut> {
    let may_have_changed = Arc::new(AtomicBool::new(false));
    let work = MAY_HAVE_CHANGED.scope(Arc::clone(&may_have_changed), work);
    let mut work = Box::pin(AssertUnwindSafe(work).catch_unwind());
    let ended = tokio::select! {
        biased;
        ended = &mut work => ended,
        () = tokio::time::sleep(limit) => {
            if !may_have_changed.load(Ordering::Relaxed) {
                return Err(Cut::Late);
            }
            tracing::warn!("takes longer than {limit:?}; what was begun is brought to its end");
            work.await
        }
    };
    ended.map_err(|_| Cut::Panicked)
}
