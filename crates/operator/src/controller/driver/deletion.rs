//! One deletion for every kind: retried until its deadline, forced by an annotation, and with a name for everything that stays.

use std::time::{Duration, Instant};

use api::{Reason, annotation};
use engine::{Blocked, Cluster, pipeline::cleanup::Cleanup, ports::ClusterError};
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt, runtime::controller::Action};
use tokio::sync::OnceCell;

use crate::{
    controller::{
        about::About,
        driver::{Driven, Driver},
        reconcile::Ending,
        record::{is_held, release},
    },
    index::Target,
};

/// A deletion that is under way.
pub(in crate::controller) struct Deletion<'a> {
    /// How long ago it was requested.
    pub(in crate::controller) age: Duration,
    /// Whether a person wants it to end now, whatever stays behind.
    pub(in crate::controller) is_forced: bool,
    namespace: String,
    is_terminating: OnceCell<bool>,
    cluster: &'a dyn Cluster,
}

/// How far a deletion is.
pub(in crate::controller) enum Taken {
    /// Everything is taken back, or named as left behind.
    Back,
    /// Something is not taken back yet.
    Waits(Waiting),
    /// The manifest is gone already.
    Gone,
}

/// Why a deletion waits.
pub(in crate::controller) struct Waiting {
    pub(in crate::controller) why: Blocked,
    /// Whether something went wrong, so that it is worth a log line.
    pub(in crate::controller) is_trouble: bool,
    /// How soon it is tried again. `None` for a backoff.
    pub(in crate::controller) again: Option<Duration>,
    /// The longest grace period of the pods of the manifest, in seconds.
    pub(in crate::controller) grace: Option<i64>,
}

impl Waiting {
    /// Something failed, and is retried with a backoff.
    pub(in crate::controller) fn failed(why: Blocked) -> Self {
        Self { why, is_trouble: true, again: None, grace: None }
    }
}

impl<'a> Deletion<'a> {
    fn of(object: &impl ResourceExt, cluster: &'a dyn Cluster) -> Self {
        let since = object.meta().deletion_timestamp.as_ref().map(|it| it.0);
        let age = since.and_then(|it| Duration::try_from(Timestamp::now().duration_since(it)).ok());
        Self {
            age: age.unwrap_or_default(),
            is_forced: object.annotations().get(annotation::FORCE_FINALIZE).is_some_and(|it| it == "true"),
            namespace: object.namespace().unwrap_or_default(),
            is_terminating: OnceCell::new(),
            cluster,
        }
    }

    /// Whether something that is not taken back yet is waited for, with this much patience from the beginning. Nothing holds up a
    /// namespace that is being deleted.
    pub(in crate::controller) async fn waits(&self, patience: Duration) -> bool {
        !self.is_forced && self.age <= patience && !self.is_terminating().await
    }

    /// Whether the namespace itself is being deleted.
    pub(in crate::controller) async fn is_terminating(&self) -> bool {
        let is_terminating = self.is_terminating.get_or_init(async || {
            self.cluster.is_terminating(&self.namespace).await.unwrap_or_else(|error| {
                let namespace = &self.namespace;
                tracing::warn!("cannot determine whether namespace {namespace} is being deleted: {error}");
                false
            })
        });
        *is_terminating.await
    }
}

/// Deletes a manifest: takes back what it made, and lets it go.
pub(in crate::controller) async fn delete<D: Driven>(
    driver: &Driver<D>,
    manifest: &D::Manifest,
) -> Result<Action, ClusterError> {
    let mut manifest = manifest.clone();
    let manifest = &mut manifest;
    let (shared, about, started) = (&driver.shared, About::of(manifest), Instant::now());
    if !is_held(manifest, D::FINALIZER, shared) {
        shared.reconciles.forget(&about);
        return Ok(Action::await_change());
    }
    let cluster: &dyn Cluster = &*shared.cluster;
    let mut cleanup = Cleanup::default();
    let deletion = Deletion::of(manifest, cluster);
    match D::take_back(driver, manifest, &deletion, &mut cleanup).await? {
        Taken::Gone => return Ok(Action::await_change()),
        Taken::Waits(waiting) => {
            if waiting.is_trouble {
                let Blocked { reason, message } = waiting.why.clone();
                let ending = Ending { reason, message, is_ready: false, is_trouble: true };
                shared.reconciles.ended(&about, &ending, started.elapsed());
            }
            D::report_deletion(driver, manifest, &waiting).await?;
            let again = waiting.again.unwrap_or_else(|| shared.memory.after_failure(&about, None));
            return Ok(Action::requeue(again));
        }
        Taken::Back => {}
    }
    let notes = cleanup.notes();
    for (reason, note) in &notes {
        cluster.left_behind(&manifest.object_ref(&()), *reason, note).await;
    }
    let reason = notes.first().map_or(Reason::Deleted, |(reason, _)| *reason);
    shared.metrics.reconciled(about.kind.clone(), reason, started.elapsed());
    release(manifest, D::FINALIZER, shared).await?;
    if D::plane(manifest).is_some() {
        // A control plane may wait for just this: its own, or one that the manifest belonged to before.
        shared.index.changed(&Target::Dependents(about.namespace.clone()));
    }
    // Dropped before a successor of the same name is reconciled. Dependents are woken again once the watch has shown the
    // deletion.
    D::forget(driver, &about.namespace, &about.name);
    Ok(Action::await_change())
}
