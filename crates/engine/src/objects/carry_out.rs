//! Steps for the objects of a manifest, carried out and reported.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use api::Reason;
use futures::future::join_all;
use kube::Resource;

use super::{
    ChildEffect, Keeper, Key, ObjectsSituation,
    plan::{needs_account, plan},
};
use crate::{
    pipeline::{
        outcome::Blocked,
        plan::{Action, Plan, Step},
    },
    ports::{Cluster, ClusterError, Event, Only, Reading, Write},
};

/// What was made and is not reported yet. It is reported together with the objects that are created, in one Event.
#[derive(Debug, Default)]
pub struct News(Mutex<Vec<String>>);

impl News {
    pub fn new(notes: Vec<String>) -> Self {
        Self(Mutex::new(notes))
    }

    /// Adds notes.
    pub fn extend(&self, notes: Vec<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(notes);
    }

    /// The notes that are not reported yet.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether a plan may be carried out.
pub type May<'a> = &'a (dyn Fn(&Plan<ChildEffect>) -> bool + Send + Sync);

/// What became of steps.
#[derive(Default)]
pub(crate) struct CarriedObjects {
    /// What there is to say of the objects that were created.
    created: Vec<String>,
    pub(crate) refused: Vec<Blocked>,
    pub(crate) is_changed: bool,
    /// Creations that were refused, and by what: there may be an object of the name.
    taken: Vec<(Step<ChildEffect>, ClusterError)>,
    failed: Option<ClusterError>,
}

impl CarriedObjects {
    /// Enters the result of a step. Returns what there is to say of it now.
    fn enter(&mut self, step: &Step<ChildEffect>, result: Result<String, ClusterError>) -> Option<String> {
        match result {
            Ok(note) => {
                self.is_changed = true;
                if step.action != Action::Create {
                    return Some(note);
                }
                self.created.push(note);
            }
            Err(error @ ClusterError::Refused(_)) if step.action == Action::Create => {
                self.taken.push((step.clone(), error));
            }
            Err(error) => self.refuse(step, error),
        }
        None
    }

    /// Enters a step that was not done. The same request would be refused again, and nothing else may wait for it.
    fn refuse(&mut self, step: &Step<ChildEffect>, error: ClusterError) {
        match refusal(step, error) {
            Ok(refusal) => self.refused.push(refusal),
            Err(error) => self.failed = Some(error),
        }
    }
}

/// Carries out the steps and reports those that were done. Creations come together, and are one Event with the news.
pub(crate) async fn carry_out<K>(
    keeper: &K,
    steps: &[Step<ChildEffect>],
    (may, news): (May<'_>, Option<&News>),
    cluster: &dyn Cluster,
) -> Result<CarriedObjects, ClusterError>
where
    K: Keeper + Resource<DynamicType = ()>,
{
    let (mut carried, mut has_account) = (CarriedObjects::default(), true);
    let [first, mut second, last] = batches(steps);
    carry_out_batch(keeper, first, &mut carried, cluster).await;
    has_account &= resolve_taken(keeper, &mut carried, may, cluster).await;
    if carried.failed.is_none() {
        second.retain(|it| has_account || !it.iter().any(|it| needs_account(it.effect.key())));
        carry_out_batch(keeper, second, &mut carried, cluster).await;
        resolve_taken(keeper, &mut carried, may, cluster).await;
    }
    if carried.failed.is_none() {
        carry_out_batch(keeper, last, &mut carried, cluster).await;
    }
    if !carried.created.is_empty() {
        let mut notes = news.map(News::take).unwrap_or_default();
        notes.append(&mut carried.created);
        tell(keeper, false, words_of(Action::Create), &notes.join("; "), cluster).await;
    }
    match carried.failed.take() {
        Some(error) => Err(error),
        None => Ok(carried),
    }
}

/// Looks at the objects whose creation was refused. One of ours that has lost its labels is changed, and any other one is left
/// alone. Returns whether the ServiceAccount is not another's, as far as that is known.
async fn resolve_taken<K>(
    keeper: &K,
    carried: &mut CarriedObjects,
    may: May<'_>,
    cluster: &dyn Cluster,
) -> bool
where
    K: Keeper + Resource<DynamicType = ()>,
{
    let mut has_account = true;
    for (step, error) in std::mem::take(&mut carried.taken) {
        let ChildEffect::Create(child) = &step.effect else { continue };
        let is_account = child.key.kind == "ServiceAccount";
        let found = match cluster.get(&child.key, Reading::Now).await {
            Ok(Some(found)) => found,
            Ok(None) => {
                carried.refuse(&step, error);
                continue;
            }
            Err(_) => {
                has_account &= !is_account;
                carried.refuse(&step, error);
                continue;
            }
        };
        let (children, live) = (std::slice::from_ref(child), std::slice::from_ref(&found));
        let planned = plan(&ObjectsSituation { keeper, children, live, rolled_out: false });
        has_account &= !is_account || planned.refused.is_empty();
        carried.refused.extend(planned.refused);
        if !planned.plan.is_empty() && may(&planned.plan) {
            carry_out_batch(keeper, vec![planned.plan.steps.iter().collect()], carried, cluster).await;
        }
    }
    has_account
}

/// Carries out groups of steps side by side.
async fn carry_out_batch(
    keeper: &impl Resource<DynamicType = ()>,
    batch: Vec<Vec<&Step<ChildEffect>>>,
    carried: &mut CarriedObjects,
    cluster: &dyn Cluster,
) {
    let groups = batch.into_iter().map(|group| carry_out_group(group, cluster));
    for (step, result) in join_all(groups).await.into_iter().flatten() {
        if let Some(note) = carried.enter(step, result) {
            tell(keeper, false, words_of(step.action), &note, cluster).await;
        }
    }
}

/// Steps in the order in which they are carried out: accounts and Roles, then what refers to them, then what goes. Steps of a
/// batch are carried out side by side, those of one object one after the other.
fn batches(steps: &[Step<ChildEffect>]) -> [Vec<Vec<&Step<ChildEffect>>>; 3] {
    let mut batches = [Vec::new(), Vec::new(), Vec::new()];
    let mut groups: BTreeMap<&Key, Vec<&Step<ChildEffect>>> = BTreeMap::new();
    for step in steps {
        groups.entry(step.effect.key()).or_default().push(step);
    }
    for (key, group) in groups {
        let goes = |it: &&Step<ChildEffect>| {
            matches!(it.effect, ChildEffect::Delete { .. } | ChildEffect::Release { .. })
        };
        let is_referred_to = ["ServiceAccount", "Role"].contains(&key.kind.as_str());
        let batch = match (group.iter().any(goes), is_referred_to) {
            (true, _) => 2,
            (false, true) => 0,
            (false, false) => 1,
        };
        batches[batch].push(group);
    }
    batches
}

/// Carries out the steps of one object, up to the first that fails.
async fn carry_out_group<'a>(
    steps: Vec<&'a Step<ChildEffect>>,
    cluster: &dyn Cluster,
) -> Vec<(&'a Step<ChildEffect>, Result<String, ClusterError>)> {
    let mut results = Vec::new();
    for step in steps {
        let result = carry_out_one(step, cluster).await;
        let failed = result.is_err();
        results.push((step, result));
        if failed {
            break;
        }
    }
    results
}

/// Does one step and nothing else. Gives back what there is to say of it.
async fn carry_out_one(step: &Step<ChildEffect>, cluster: &dyn Cluster) -> Result<String, ClusterError> {
    let key = step.effect.key();
    match &step.effect {
        ChildEffect::Create(child) => {
            cluster.write(Write::ApplyNew(&child.object), "").await?;
        }
        ChildEffect::Migrate { key, patch } => {
            cluster.write(Write::Merge { key, patch }, "").await?;
        }
        ChildEffect::Apply { object, .. } | ChildEffect::Release { object, .. } => {
            cluster.write(Write::Apply(object), "").await?;
        }
        ChildEffect::Delete { key, uid, version } => {
            cluster.delete(key, Only { uid, version: version.as_deref() }).await?;
        }
    }
    let fields: Vec<&str> = step.changes.iter().map(|it| it.field.as_str()).collect();
    // A reason to make something names it already.
    Ok(match step.action {
        Action::Create => step.reason.clone(),
        Action::Update | Action::Delete => format!("{key}: {} ({})", step.reason, fields.join(", ")),
    })
}

/// The reason and the action of the Event for a step that was carried out.
fn words_of(action: Action) -> (Reason, &'static str) {
    match action {
        Action::Create => (Reason::Created, "Create"),
        Action::Update => (Reason::Updated, "Update"),
        Action::Delete => (Reason::Deleted, "Delete"),
    }
}

/// What the API server says against a step, in words. Everything that may pass by itself stays an error.
fn refusal(step: &Step<ChildEffect>, error: ClusterError) -> Result<Blocked, ClusterError> {
    match error {
        ClusterError::Refused(status) if [400, 403, 404, 405, 422].contains(&status.code) => {
            let message = format!("the API server refused the change: {}: {}", step.reason, status.message);
            Ok(Blocked { reason: Reason::NotApplied, message })
        }
        error => Err(error),
    }
}

/// Tells people of a step that was done.
pub(super) async fn tell(
    keeper: &impl Resource<DynamicType = ()>,
    is_warning: bool,
    (reason, action): (Reason, &'static str),
    note: &str,
    cluster: &dyn Cluster,
) {
    let event = Event { is_warning, reason, action, note, must_be_written: false };
    cluster.event(&keeper.object_ref(&()), event).await;
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::pipeline::plan::Impact;

    fn answered(code: u16) -> Result<Blocked, ClusterError> {
        let key = Key::new("apps/v1", "Deployment", "platform", "main");
        let step = Step {
            action: Action::Create,
            impact: Impact::Safe,
            reason: "Deployment platform/main is declared and missing".to_owned(),
            changes: Vec::new(),
            effect: ChildEffect::Apply { key, object: serde_json::Value::Null },
        };
        let status = Status::failure("denied by policy", "Forbidden").with_code(code);
        refusal(&step, ClusterError::Refused(status.boxed()))
    }

    #[test]
    fn what_the_api_server_refuses_is_told_and_what_may_pass_is_tried_again() {
        for code in [400, 403, 422] {
            let notice = answered(code).unwrap();
            assert_eq!(notice.reason, Reason::NotApplied);
            assert!(notice.message.contains("platform/main") && notice.message.contains("denied by policy"));
        }
        for code in [409, 429, 500, 503] {
            assert!(answered(code).is_err(), "{code}");
        }
    }
}
