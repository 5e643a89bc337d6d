//! Deletes a control plane: after everything that needs it, and with everything that the operator made in its deployment.
//!
//! The deletion is retried until its deadline. Whatever is left then is named once, in the reconcile that removes the
//! finalizer.

use std::{sync::Arc, time::Duration};

use api::{CoderControlPlane, Mode, Reason, annotation, finalizer};
use engine::{
    Blocked, Outcome,
    kinds::control_plane::{
        access::{admin_job, revoke_all},
        leaves, ledger,
        license::{self, LicenseRecord},
        token_secret::{Contents, TokenSecret, release_all},
        workspace_roles,
    },
    pipeline::{
        cleanup::{Cleanup, CleanupFailure, DEADLINE, LAST_TRIES, Remainder},
        ledger::Entry,
        status::message as outcome_message,
    },
    ports::{ClusterError, Reading},
};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::dependents::{self, Departure};
use crate::{
    controller::{
        Shared,
        about::About,
        driver::deletion::{Deletion, Taken, Waiting},
        reach::{Obstacle, for_deletion},
        record::has_finalizer,
    },
    planes::{Plane, name_of},
};

/// Takes back what the operator made in the deployment and in other namespaces, after everything that needs the control plane.
pub(super) async fn take_back(
    plane: &mut CoderControlPlane,
    deletion: &Deletion<'_>,
    cleanup: &mut Cleanup,
    shared: &Shared,
) -> Result<Taken, ClusterError> {
    let (name, about) = (name_of(plane), About::of(plane));
    let cluster: Arc<dyn engine::Cluster> = Arc::clone(&shared.cluster) as _;
    // What we know may be old: one that has gone already needs nothing, and must not be given a token again.
    let now: Option<CoderControlPlane> = cluster.read(&name.0, &name.1, Reading::Now).await?;
    match now.filter(|it| it.uid() == plane.uid() && has_finalizer(it, finalizer::CONTROL_PLANE)) {
        Some(now) => *plane = now,
        None => return Ok(Taken::Gone),
    }
    let plane = &*plane;
    shared.planes.block(&name, Reason::Deleting, true);
    let Deletion { age, is_forced, .. } = *deletion;
    let waits = |message, again| {
        let why = Blocked { reason: Reason::Deleting, message };
        Ok(Taken::Waits(Waiting { is_trouble: false, again, ..Waiting::failed(why) }))
    };
    let dependents = match dependents::dependents(&cluster, &name).await {
        Ok(dependents) => dependents,
        // A forced deletion, and one past its deadline, does not wait for the list.
        Err(error) if is_forced || age >= DEADLINE => {
            cleanup.stays(format!(
                "the dependents of the control plane cannot be listed, and may be left behind: {error}"
            ));
            Vec::new()
        }
        Err(error) => {
            let message = format!(
                "its dependents cannot be listed: {error}; correct the cause, the deletion is retried"
            );
            return waits(message, None);
        }
    };
    match dependents::decide(&dependents, age, is_forced) {
        // Each of them wakes the control plane when it is gone; a retry is for those that do not, and counts as no failure.
        Departure::Wait(awaited) => {
            let message = format!("waits until these are deleted: {}", shortened(&awaited));
            return waits(message, Some(dependents::again(age)));
        }
        Departure::Go(left) if left.is_empty() => {}
        Departure::Go(left) => {
            cleanup.stays(format!(
                "control plane deleted before its dependents: {}; their remote objects were left in Coder",
                shortened(&left)
            ));
        }
    }
    let is_last = is_forced || is_over(&about, age, shared) || deletion.is_terminating().await;
    clean_up(plane, cleanup, is_last, shared).await;
    match cleanup.pending().filter(|_| !is_last) {
        Some(pending) => Ok(Taken::Waits(not_yet(plane, pending, shared))),
        None => Ok(Taken::Back),
    }
}

/// Whether the cleanup has had its time. One that began late, after its dependents, is retried for a while all the same.
fn is_over(about: &About, age: Duration, shared: &Shared) -> bool {
    let now = Instant::now();
    let since = shared.memory.with(about, |it| *it.cleanup_since.get_or_insert(now));
    age >= DEADLINE && now.duration_since(since) >= LAST_TRIES
}

/// Takes back the entries of the ledger: Roles in other namespaces, the licences, then the tokens that are needed for that, then
/// the Secrets with the tokens. Something that may be taken back later keeps what it needs, except in the last reconcile.
async fn clean_up(plane: &CoderControlPlane, cleanup: &mut Cleanup, is_last: bool, shared: &Shared) {
    let owed = ledger(plane).owed(leaves(plane));
    let contents = match TokenSecret::open(plane, &*shared.cluster).await {
        Ok((_, contents)) => contents,
        // There is nothing of ours in it.
        Err(waiting) if waiting.reason == Reason::NotOurs => Contents::default(),
        Err(waiting) => {
            cleanup.fail("the operator's token", waiting);
            Contents::default()
        }
    };
    let is_observed = plane.spec.changes.policy().mode() == Mode::Observe;
    let mut licenses = None;
    for entry in owed.entries() {
        match entry {
            Entry::Roles(_) => workspace_roles::withdraw(plane, cleanup, &*shared.cluster).await,
            Entry::JobAccount => {
                let account = contents.record.account.as_ref().map(|it| it.username.as_str());
                match admin_job::left(plane, account, &*shared.cluster).await {
                    Ok(note) => note.into_iter().for_each(|it| cleanup.stays(it)),
                    Err(waiting) => cleanup.fail(entry.name(), waiting),
                }
            }
            Entry::Licenses(_) if is_observed => {
                let message = "mode is Observe, which changes nothing in Coder: delete it there".to_owned();
                let blocked = Blocked { reason: Reason::Deleting, message };
                cleanup.fail(entry.name(), CleanupFailure { blocked, is_final: true });
            }
            // With the tokens, through which they are deleted.
            Entry::Licenses(_) => licenses = Some(license::recorded(plane)),
            Entry::Token { .. } => {
                take_back_access(plane, (licenses.take(), &contents), cleanup, is_last, shared).await;
            }
            Entry::SecretFinalizer { .. } if is_last || cleanup.pending().is_none() => {
                // The finalizers of the Secrets go last: with the token in them a retry gets in.
                if let Err(error) = release_all(plane, &*shared.cluster).await {
                    let message = format!("its finalizer cannot be removed: {error}");
                    cleanup.fail(entry.name(), Blocked { reason: Reason::SecretNotWritten, message });
                }
            }
            // A later try needs the token, dependents were waited for before, and the others are no entries of a control plane.
            Entry::SecretFinalizer { .. }
            | Entry::Dependents
            | Entry::Declared(_)
            | Entry::Key { .. }
            | Entry::UnnamedKeys
            | Entry::KeySecret(_)
            | Entry::TestWorkspace { .. }
            | Entry::Remote { .. }
            | Entry::Creating(_) => {}
        }
    }
}

/// Takes back what is in the deployment: the licences, and the tokens through which that is done.
async fn take_back_access(
    plane: &CoderControlPlane,
    (licenses, contents): (Option<LicenseRecord>, &Contents),
    cleanup: &mut Cleanup,
    is_last: bool,
    shared: &Shared,
) {
    let about = About::of(plane);
    let left_in_coder = shared.memory.with(&about, |it| it.left_in_coder.clone());
    if let Some(notes) = left_in_coder {
        // A retry for another remainder has no token any more and needs none.
        for (reason, note) in notes {
            cleanup.stays_because(reason, note);
        }
    } else if licenses.is_some() || contents.token.is_some() {
        // The tokens are kept for as long as something else is retried.
        let ends = is_last || cleanup.pending().is_none();
        let in_coder = take_back_in_coder(plane, (licenses, contents), (ends, is_last), shared).await;
        if ends && in_coder.pending().is_none() {
            shared.memory.with(&about, |it| it.left_in_coder = Some(in_coder.notes()));
        }
        cleanup.add(in_coder);
    }
}

/// Takes back the licences and, where the cleanup `ends` with that, the tokens.
async fn take_back_in_coder(
    plane: &CoderControlPlane,
    (licenses, contents): (Option<LicenseRecord>, &Contents),
    (ends, is_last): (bool, bool),
    shared: &Shared,
) -> Cleanup {
    let mut cleanup = Cleanup::default();
    let (reached, may_answer) = (deployment(plane, shared).await, has_pods(plane, shared).await);
    if let Some(record) = licenses {
        let reached = reached.as_deref().map(Plane::reached);
        license::delete(record, reached, &mut cleanup, Timestamp::now()).await;
        cleanup.settle(may_answer);
    }
    if ends && (is_last || cleanup.pending().is_none()) {
        let reached = reached.as_deref().map(Plane::reached);
        revoke_all(plane, contents, reached, &mut cleanup, Timestamp::now()).await;
        cleanup.settle(may_answer);
    }
    cleanup
}

/// The deployment, with credentials that it takes.
async fn deployment(plane: &CoderControlPlane, shared: &Shared) -> Result<Arc<Plane>, CleanupFailure> {
    match for_deletion(&name_of(plane), shared).await {
        Ok(reached) => Ok(reached),
        Err(Obstacle::Gone(waiting)) => Err(CleanupFailure { blocked: waiting, is_final: true }),
        Err(Obstacle::NotNow(outcome)) => {
            let message = outcome_message(&outcome, &engine::PlanView::empty());
            let waiting = match outcome {
                Outcome::Blocked(waiting) => waiting,
                outcome => Blocked { reason: outcome.reason(), message },
            };
            Err(waiting.into())
        }
    }
}

/// Whether pods of the control plane may still answer, or answer again. `true` for one that runs elsewhere.
async fn has_pods(plane: &CoderControlPlane, shared: &Shared) -> bool {
    if plane.spec.external.is_some() {
        return true;
    }
    let cluster: &dyn engine::Cluster = &*shared.cluster;
    let (namespace, name) = (plane.namespace().unwrap_or_default(), plane.name_any());
    match cluster.read::<Deployment>(&namespace, &name, Reading::Now).await {
        Ok(Some(found)) => {
            let replicas = found.spec.and_then(|it| it.replicas);
            found.metadata.deletion_timestamp.is_none() && replicas != Some(0)
        }
        Ok(None) => false,
        Err(error) => {
            tracing::warn!("cannot determine whether the Deployment has pods: {error}");
            true
        }
    }
}

/// Why the deletion waits for something that is not taken back yet.
fn not_yet(plane: &CoderControlPlane, pending: &Remainder, shared: &Shared) -> Waiting {
    let Blocked { reason, message } = &pending.failure.blocked;
    if *reason == Reason::Unauthorized {
        // What is declared may have other credentials by now.
        shared.planes.drop_client(&name_of(plane));
    }
    let message = format!(
        "{} is not deleted yet: {message}. The deletion is retried for {} minutes; set the annotation {} to \"true\" to give \
         up at once and leave that behind",
        pending.name,
        DEADLINE.as_secs() / 60,
        annotation::FORCE_FINALIZE
    );
    Waiting::failed(Blocked { reason: *reason, message })
}

/// A list as far as a person reads it.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}
