//! Carries out steps of a provisioner: what is due about its keys, and then the plan for its objects.

use std::sync::PoisonError;

use api::{
    CoderProvisioner, Reason,
    condition::{DEPLOYMENT, PROVISIONER_KEY},
};
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Resource as _, ResourceExt as _};

use super::{
    compared::{Unplanned, compare, reads_names},
    holder,
    keys::Keys,
    names::target,
    plan::{LICENCE_LOST, of_objects},
    work::{Effect, What, Work},
};
use crate::{
    coder::{Beside, Coder},
    keys::Driven,
    kind::Carried,
    objects::{self, ChildEffect, News},
    pipeline::{
        given::Given,
        outcome::{Outcome, Trouble},
        plan::{Impact, Plan, Step},
    },
    ports::{Cluster, Event, object::Live},
    secrets::{Around, Held, KeySecrets, Names, Retiring, Revoked},
};

/// Carries out steps of one plan.
pub(super) async fn carry_out(steps: &[&Step<Effect>], coder: &Coder) -> Carried {
    let Some(first) = steps.first() else { return Carried::default() };
    let beside = match coder.needed_cluster() {
        Ok(beside) => beside,
        Err(blocked) => return failed(blocked.into(), DEPLOYMENT),
    };
    let work = match &first.effect.what {
        What::ScaleToZero(deployment) => {
            let (manifest, cluster) = (&*first.effect.manifest, &*beside.cluster);
            return scale_to_zero(manifest, deployment, cluster).await;
        }
        What::Key { work, .. } | What::Object { work } => work,
    };
    // What is not among the steps is held back.
    let is_held_back =
        !steps.iter().any(|it| matches!(it.effect.what, What::Key { needs_approval: true, .. }));
    let is_due = |it: &&&Step<Effect>| matches!(it.effect.what, What::Key { is_independent, .. } if is_independent || !is_held_back);
    let keys = steps.iter().filter(is_due).count();
    let (news, mut held, mut carried) = (News::default(), None, Carried::default());
    let mut undone = 0;
    if keys > 0 {
        let (driven, minted) = Box::pin(work.drive(is_held_back, coder, beside)).await;
        news.extend(minted);
        match driven {
            Err(trouble) => carried = failed(trouble, PROVISIONER_KEY),
            Ok(Driven { rest, trouble }) => {
                // Which of them was not done is not known.
                let is_upkeep = |it: &&&Step<Effect>| it.impact == Impact::Upkeep;
                let upkeep = steps.iter().filter(is_due).filter(is_upkeep).count();
                undone = if trouble.is_some() { upkeep } else { 0 };
                carried.done = keys - undone;
                carried.retry = trouble;
                match rest.key {
                    Ok(key) => held = Some(key),
                    Err(blocked) if !is_held_back => {
                        (carried.failed, carried.condition) =
                            (Some(Outcome::Blocked(blocked)), Some(PROVISIONER_KEY));
                    }
                    Err(_) => {}
                }
            }
        }
    }
    if carried.failed.is_none() && (keys == 0 || held.is_some()) {
        match Box::pin(work.keep_objects(steps, (held.as_ref(), &news), beside)).await {
            Ok(true) => {
                let objects = steps.iter().filter(|it| matches!(it.effect.what, What::Object { .. })).count();
                carried.done = objects + keys - undone;
            }
            Ok(false) => {}
            Err(trouble) => (carried.failed, carried.condition) = (Some(trouble.into()), Some(DEPLOYMENT)),
        }
    }
    report_minted(&work.manifest, news.take(), &*beside.cluster).await;
    carried
}

fn failed(trouble: Trouble, condition: &'static str) -> Carried {
    Carried { failed: Some(trouble.into()), condition: Some(condition), ..Carried::default() }
}

impl Work {
    /// Does what is due about the keys. Returns the names of those that were minted with it.
    async fn drive(
        &self,
        is_held_back: bool,
        coder: &Coder,
        beside: &Beside,
    ) -> (Result<Driven, Trouble>, Vec<String>) {
        let (store, holder) = (beside.key_store(), holder(&self.manifest));
        let names = Names::new(self.manifest.key_name(), &holder.uid);
        let namespace = self.manifest.namespace().unwrap_or_default();
        let elsewhere = |retiring: Retiring| -> BoxFuture<'_, Result<Revoked, Trouble>> {
            let (names, namespace) = (&names, &namespace);
            Box::pin(async move {
                match coder.elsewhere() {
                    Some(elsewhere) => elsewhere.revoke(&retiring, namespace, names).await,
                    None => Ok(Revoked::OutOfReach),
                }
            })
        };
        let mut around = Around::new(store, &holder, Live::typed(&*self.manifest));
        around.elsewhere = Some(&elsewhere);
        let secrets = KeySecrets::new(store, &holder);
        let (recorded, pods) = (self.recorded.clone(), self.pods.clone());
        let keys = Keys { coder, secrets: &secrets, around: &around, recorded, pods };
        let wanted = if is_held_back { self.wanted.without_mint() } else { self.wanted.clone() };
        let begun = self.begins.as_ref().filter(|_| !is_held_back);
        let looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner).take();
        let driven = match looked {
            Some(looked) => keys.drive(&wanted).run_after(looked, begun).await,
            None => keys.drive(&wanted).run().await,
        };
        let minted = around.take_minted();
        (driven, minted.iter().map(|name| format!("provisioner key {name} was made")).collect())
    }

    /// Carries out the plan for the objects, as far as it is part of these steps, and returns whether nothing of the steps is left. Objects
    /// that were compared for pods which get another key are compared again.
    async fn keep_objects(
        &self,
        steps: &[&Step<Effect>],
        (held, news): (Option<&Held>, &News),
        beside: &Beside,
    ) -> Result<bool, Trouble> {
        let compared = self.objects.lock().unwrap_or_else(PoisonError::into_inner).take();
        let objects = match (held, compared) {
            (None, compared) => compared,
            (Some(held), _) => {
                let given = (held.place.url.as_str(), held.checksum.as_str());
                let names = reads_names(&self.manifest);
                match compare(&self.manifest, given, names, &self.declared, beside).await {
                    Ok(objects) => Some(objects),
                    Err(Unplanned::Cluster(error)) => return Err(error.into()),
                    // The next look reports it.
                    Err(Unplanned::Image(_) | Unplanned::Authority(_) | Unplanned::Invalid(_)) => None,
                }
            }
        };
        let given = steps.iter().filter(|it| matches!(it.effect.what, What::Object { .. })).count();
        let Some(objects) = objects else { return Ok(given == 0) };
        let mut plan = objects.compared.planned.plan;
        let may_be = Given::new(&*self.manifest, target(&self.manifest), steps);
        let may = |plan: &Plan<ChildEffect>| may_be.may(&of_objects(plan).view(may_be.target()));
        if !may(&plan) {
            // Pods get their key all the same.
            let impacts: Vec<Impact> = of_objects(&plan).steps.iter().map(|it| it.impact).collect();
            let mut impacts = impacts.into_iter();
            plan.steps.retain(|_| impacts.next() == Some(Impact::Upkeep));
        }
        if plan.is_empty() {
            return Ok(given == 0);
        }
        let cluster = &*beside.cluster;
        let carried = objects::carry_out(&*self.manifest, &plan.steps, (&may, Some(news)), cluster).await?;
        let refused = carried.refused.into_iter().min_by_key(|it| it.reason != Reason::NotOurs);
        refused.map_or(Ok(plan.steps.len() >= given), |it| Err(it.into()))
    }
}

async fn scale_to_zero(
    provisioner: &CoderProvisioner,
    deployment: &Deployment,
    cluster: &dyn Cluster,
) -> Carried {
    match objects::scale_to_zero(provisioner, deployment, LICENCE_LOST, cluster).await {
        Ok(()) => Carried { done: 1, ..Carried::default() },
        Err(error) => failed(error.into(), DEPLOYMENT),
    }
}

/// Reports keys that were minted, where no Event about objects has reported them.
async fn report_minted(provisioner: &CoderProvisioner, notes: Vec<String>, cluster: &dyn Cluster) {
    for note in notes {
        let event = Event {
            is_warning: false,
            reason: Reason::KeyMinted,
            action: "Create",
            note: &note,
            must_be_written: false,
        };
        cluster.event(&provisioner.object_ref(&()), event).await;
    }
}
