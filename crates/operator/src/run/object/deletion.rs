//! Lets an object go, and takes the remote one away where that is the policy.

use std::{sync::Arc, time::Instant};

use api::{AppState as _, DeletionPolicy, Mode, finalizer, reason};
use engine::{Kind, Lookup as _, Object, Outcome, Report, Waiting, ownership::keeper_by_id, status};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Resource as _, ResourceExt as _, runtime::controller::Action};

use super::{Context, claims, ended, next_status, plane_of, tell, write_status};
use crate::{
    cluster::Cluster,
    run::{
        Shared,
        control_plane::{
            departure::{DEADLINE, leaving},
            is_at, prove,
        },
        pass::About,
        planes::{Plane, PlaneName},
        record::{has_finalizer, leave_behind, set_finalizer},
    },
};

/// Why nothing can be taken away.
enum Obstacle {
    /// What it would take is gone, and will not come back.
    Gone(Waiting),
    /// It may work later.
    NotNow(Outcome),
}

pub(super) async fn delete<K: Kind>(
    manifest: K::Manifest,
    context: &Context<K>,
) -> Result<Action, kube::Error> {
    let (shared, started, about) = (&context.shared, Instant::now(), About::of(&manifest));
    if !has_finalizer(&manifest, finalizer::FINALIZER) {
        shared.passes.forget(&about);
        return Ok(Action::await_change());
    }
    let (age, is_forced) = leaving(&manifest);
    let mut object = Object::<K>::new(manifest);
    let taken = take_away(&mut object, context).await;
    let target = K::target(&object.manifest);
    let left = match taken {
        Ok(outcome) => {
            shared.metrics.reconciled(about.kind.clone(), outcome.reason(), started.elapsed());
            None
        }
        Err(Obstacle::Gone(why)) => Some(why),
        Err(Obstacle::NotNow(outcome)) => {
            let words = status::message(&outcome, &engine::Plan::<()>::empty().view(""));
            // What does not answer is waited for, for a while, unless there is nowhere to come back to.
            if !(is_forced || age > DEADLINE || is_terminating(&about.namespace, shared).await) {
                let message = format!("{target} is not taken away yet: {words}");
                let report = Report { outcome: outcome.clone(), id: None, done: 0 };
                write_status(&object.manifest, next_status(&object, None, &report), shared).await?;
                ended(&about, &outcome, &message, started.elapsed(), shared);
                return Ok(Action::requeue(shared.memory.after_failure(&about, None)));
            }
            Some(Waiting { reason: outcome.reason(), message: words })
        }
    };
    if let Some(Waiting { reason, message }) = left {
        shared.metrics.reconciled(about.kind.clone(), reason, started.elapsed());
        leave_behind(&object.manifest, reason, &format!("{target} is left behind: {message}"), shared).await;
    }
    set_finalizer(&object.manifest, finalizer::FINALIZER, false, shared).await?;
    shared.passes.forget(&about);
    // The control plane may be waiting for just this.
    shared.planes.release(&plane_of::<K>(&object.manifest));
    Ok(Action::await_change())
}

/// Takes the remote object away, where there is one of ours and the policy says so.
async fn take_away<K: Kind>(object: &mut Object<K>, context: &Context<K>) -> Result<Outcome, Obstacle> {
    let (manifest, shared) = (&object.manifest, &context.shared);
    let (policy, status) = (manifest.policy(), manifest.status().cloned().unwrap_or_default());
    if policy.deletion_policy() != DeletionPolicy::Delete || policy.mode() != Mode::Enforce {
        return Ok(Outcome::Equal);
    }
    let Some(id) = status.id else {
        if status.creating.is_none() {
            // There is nothing to take away, so there is nobody to wait for.
            return Ok(Outcome::Equal);
        }
        let message = "it was being made, and nobody knows what came of that: look for it".to_owned();
        return Err(Obstacle::Gone(Waiting { reason: reason::DELETING, message }));
    };
    if is_kept_by_another::<K>(&id, manifest, context) {
        return Ok(Outcome::Equal);
    }
    let name = plane_of::<K>(manifest);
    let plane = plane(&name, shared).await?;
    let world = plane.world_now().await;
    let assessment = object.assess_deletion(world).await;
    let report = object.carry_out(&assessment, world).await;
    shared.metrics.steps(&K::Manifest::kind(&()), &assessment.plan, report.done);
    tell(object, Some(&assessment), &report, shared).await;
    if report.outcome.is_ready() {
        return Ok(report.outcome);
    }
    if report.outcome.reason() == reason::UNAUTHORIZED {
        // What is declared may have other credentials by now.
        shared.planes.drop_client(&name);
    }
    Err(Obstacle::NotNow(report.outcome))
}

/// Whether another manifest holds the same object: one that stays, or of those that go too the one that takes it away.
fn is_kept_by_another<K: Kind>(id: &str, manifest: &K::Manifest, context: &Context<K>) -> bool {
    let holds = |it: &Arc<K::Manifest>| it.status().and_then(|it| it.id.as_deref()) == Some(id);
    let stays = |it: &Arc<K::Manifest>| it.meta().deletion_timestamp.is_none();
    let is_other =
        |it: &Arc<K::Manifest>| it.uid() != manifest.uid() && plane_of::<K>(it) == plane_of::<K>(manifest);
    if context.manifests.state().iter().any(|it| is_other(it) && stays(it) && holds(it)) {
        return true;
    }
    let (mine, _, others) = claims::<K>(manifest, &context.manifests);
    keeper_by_id(id, &mine, &others).is_some()
}

/// The control plane as it was last known, or as it can be reached now: one that is suspended, or being deleted itself,
/// is good enough for a deletion.
async fn plane(name: &PlaneName, shared: &Shared) -> Result<Arc<Plane>, Obstacle> {
    let known = shared.planes.last_known(name);
    let not_now = |waiting| Obstacle::NotNow(Outcome::Waiting(waiting));
    let declared = match Cluster(shared.client.clone()).control_plane(&name.0, &name.1).await {
        Ok(Some(declared)) => declared,
        Ok(None) => {
            let message = format!("its control plane {} is gone", name.1);
            return Err(Obstacle::Gone(Waiting { reason: reason::CONTROL_PLANE_NOT_FOUND, message }));
        }
        Err(unreadable) => {
            let message = format!("control plane {} cannot be read: {}", name.1, unreadable.0);
            return Err(not_now(Waiting { reason: reason::CONTROL_PLANE_NOT_READY, message }));
        }
    };
    if let Some(known) = known.filter(|it| is_at(&declared, it)) {
        return Ok(known);
    }
    match prove(&declared, shared).await {
        Ok(proved) => Ok(shared.planes.remember(name, proved.into_plane())),
        Err(missing) if missing.reason == reason::SECRET_NOT_FOUND => Err(Obstacle::Gone(missing)),
        // Nobody mends the credentials of a control plane that is going.
        Err(refused)
            if refused.reason == reason::UNAUTHORIZED && declared.meta().deletion_timestamp.is_some() =>
        {
            Err(Obstacle::Gone(refused))
        }
        Err(waiting) => Err(not_now(waiting)),
    }
}

/// Whether the namespace itself is going: nothing may hold it up.
async fn is_terminating(namespace: &str, shared: &Shared) -> bool {
    let namespaces = Api::<Namespace>::all(shared.client.clone());
    let found = namespaces.get_metadata_opt(namespace).await;
    found.is_ok_and(|it| it.is_none_or(|it| it.metadata.deletion_timestamp.is_some()))
}
