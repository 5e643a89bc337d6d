//! From what should be and what is to steps. A manifest whose objects are as declared has none.

use api::Reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::{Value, json};

use super::{
    Child, Keeper, Key,
    compare::differences,
    fields, migrate,
    ownership::{Ownership, holder},
    prune::{Going, going},
};
use crate::{
    pipeline::{
        outcome::Blocked,
        plan::{Action, Change, Impact, Plan, Step},
    },
    ports::object::Live,
};

/// The number of pods, which is an autoscaler's when it is not declared.
const REPLICAS: &[&str] = &["spec", "replicas"];

/// One write to the cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum ChildEffect {
    /// A merge patch of the metadata that says who manages which field.
    Migrate { key: Key, patch: Value },
    /// A server-side apply as [`FIELD_MANAGER`](super::FIELD_MANAGER), which is refused where an object of the name exists.
    Create(Child),
    /// The same with force, over an object that exists: with the uid and the version of that object.
    Apply { key: Key, object: Value },
    /// The same, of an object that stays and is nobody's from then on.
    Release { key: Key, object: Value },
    /// A deletion of this very object, in this version, and no later one of its name.
    Delete { key: Key, uid: String, version: Option<String> },
}

/// What a plan is made of.
#[derive(Debug)]
pub struct ObjectsSituation<'a, K> {
    pub keeper: &'a K,
    /// The objects that should be, in the order in which they are applied.
    pub children: &'a [Child],
    /// Every object that is declared, or has the labels of what is.
    pub live: &'a [Live],
    /// Whether the pods are those that are declared: see [`rollout`](super::rollout).
    pub rolled_out: bool,
}

/// What is to be done, and what is not because it is somebody else's.
#[derive(Debug)]
pub struct Planned {
    pub plan: Plan<ChildEffect>,
    pub refused: Vec<Blocked>,
}

impl ChildEffect {
    /// The object that is written.
    pub fn key(&self) -> &Key {
        match self {
            Self::Create(Child { key, .. })
            | Self::Migrate { key, .. }
            | Self::Apply { key, .. }
            | Self::Release { key, .. }
            | Self::Delete { key, .. } => key,
        }
    }
}

/// The steps from what is to what should be.
pub fn plan<K: Keeper>(situation: &ObjectsSituation<'_, K>) -> Planned {
    let ObjectsSituation { keeper, children, live, rolled_out } = situation;
    let mut planned = Planned { plan: Plan::empty(), refused: Vec::new() };
    let mut account_refused = false;
    for child in *children {
        if account_refused && needs_account(&child.key) {
            continue;
        }
        let found = live.iter().find(|it| it.key == child.key);
        match holder(*keeper, &child.key, found.map(Live::metadata)) {
            Ownership::Free => planned.plan.steps.push(creation(child)),
            Ownership::Ours | Ownership::Predecessors => {
                planned.plan.steps.extend(found.into_iter().flat_map(|it| update(*keeper, child, it)));
            }
            Ownership::Leaving => {
                account_refused |= child.key.kind == "ServiceAccount";
                planned.refused.push(Blocked {
                    reason: Reason::Deleting,
                    message: format!("{} is being deleted: it is created again once it is gone", child.key),
                });
            }
            Ownership::Foreign(message) => {
                account_refused |= child.key.kind == "ServiceAccount";
                planned.refused.push(Blocked { reason: Reason::NotOurs, message });
            }
        }
    }
    let declared: Vec<&Key> = children.iter().map(|it| &it.key).collect();
    for it in *live {
        let going = going(*keeper, &declared, &it.key, it.metadata(), *rolled_out);
        planned.plan.steps.extend(going.map(|going| removal(it, going)).unwrap_or_default());
    }
    planned
}

/// Whether an object is left out where the ServiceAccount is another's, or goes: pods would run as that account, or it would get rights.
pub(super) fn needs_account(key: &Key) -> bool {
    ["Deployment", "RoleBinding"].contains(&key.kind.as_str())
}

fn creation(child: &Child) -> Step<ChildEffect> {
    Step {
        action: Action::Create,
        impact: Impact::Safe,
        reason: format!("{} is declared and missing: {}", child.key, child.reason),
        changes: vec![
            Change::new(&child.key.to_string(), Value::Null, child.reason)
                .hiding(&declared_part(child.object.clone())),
        ],
        effect: ChildEffect::Create(child.clone()),
    }
}

/// The part of an object that the manifest declares: without its owner, and without annotations, which hold checksums of Secrets. Both
/// are known to the controllers alone.
fn declared_part(mut object: Value) -> Value {
    for metadata in ["/metadata", "/spec/template/metadata"] {
        if let Some(Value::Object(fields)) = object.pointer_mut(metadata) {
            fields.remove("annotations");
            fields.remove("ownerReferences");
        }
    }
    object
}

fn update(keeper: &impl Keeper, child: &Child, live: &Live) -> Vec<Step<ChildEffect>> {
    let key = &child.key;
    let entries = live.metadata().managed_fields.clone().unwrap_or_default();
    let leaves_replicas = key.kind == "Deployment" && keeper.leaves_replicas();
    let migrated = migrate::migrate(&entries, if leaves_replicas { &[REPLICAS] } else { &[] });
    let mut steps = Vec::new();
    steps.extend(migrated.as_deref().map(|it| migration(live, it)));
    let is_migrated = migrated.is_some();
    let entries = migrated.unwrap_or(entries);
    let mut changes = differences(&child.object, &live.object, fields::ours(&entries));
    if changes.is_empty() {
        return steps;
    }
    let impact = impact(key, &changes);
    for change in &mut changes {
        change.field = format!("{key}: {}", change.field);
    }
    steps.push(Step {
        action: Action::Update,
        impact,
        reason: format!("{key} differs from what is declared"),
        changes,
        effect: ChildEffect::Apply {
            key: key.clone(),
            object: over(&child.object, live.metadata(), is_migrated),
        },
    });
    steps
}

/// The object as it is applied over the one that was compared. The API server refuses it when that one has changed since. The
/// version after a migration, which is refused in the same way, is not known yet.
fn over(object: &Value, live: &ObjectMeta, is_migrated: bool) -> Value {
    let mut object = object.clone();
    object["metadata"]["uid"] = json!(live.uid);
    if !is_migrated {
        object["metadata"]["resourceVersion"] = json!(live.resource_version);
    }
    object
}

fn migration(live: &Live, migrated: &[ManagedFieldsEntry]) -> Step<ChildEffect> {
    let key = &live.key;
    let field = format!("{key}: metadata.managedFields");
    Step {
        action: Action::Update,
        impact: Impact::Safe,
        reason: format!("the fields of {key} get another manager and keep their values"),
        changes: vec![Change::new(&field, Value::Null, super::FIELD_MANAGER)],
        effect: ChildEffect::Migrate { key: key.clone(), patch: migrate::patch(live.metadata(), migrated) },
    }
}

/// What people notice of a change.
fn impact(key: &Key, changes: &[Change]) -> Impact {
    let is_noticed = |it: &Change| match key.kind.as_str() {
        // New pods take the place of the old ones, and connections break.
        "Deployment" => it.field.starts_with("spec.template") && it.has_other_value(),
        "Service" | "Ingress" | "HTTPRoute" => it.field.starts_with("spec") && it.has_other_value(),
        _ => false,
    };
    let stops = changes.iter().any(|it| it.field == "spec.replicas" && it.after == 0);
    if stops || changes.iter().any(is_noticed) { Impact::Disruptive } else { Impact::Safe }
}

/// Takes changes out of a step that updates an object: those that follow from another step. The impact is that of the others.
pub fn leave_out(step: &mut Step<ChildEffect>, is: impl Fn(&Change) -> bool) {
    step.changes.retain(|it| !is(it));
    let (key, object) = (step.effect.key(), format!("{}: ", step.effect.key()));
    let bare = |it: &Change| {
        let field = it.field.strip_prefix(&object).unwrap_or(&it.field);
        Change { field: field.to_owned(), ..it.clone() }
    };
    step.impact = impact(key, &step.changes.iter().map(bare).collect::<Vec<_>>());
}

fn removal(live: &Live, going: Going) -> Vec<Step<ChildEffect>> {
    match going {
        Going::Later => Vec::new(),
        Going::Delete => deletion(live).into_iter().collect(),
        Going::Release => {
            let entries = live.metadata().managed_fields.as_deref().unwrap_or_default();
            let migrated = migrate::migrate(entries, &[]);
            let first = migrated.map(|migrated| migration(live, &migrated));
            let is_migrated = first.is_some();
            let release = release(&live.key, |it| over(it, live.metadata(), is_migrated));
            first.into_iter().chain([release]).collect()
        }
    }
}

fn deletion(live: &Live) -> Option<Step<ChildEffect>> {
    let (key, uid) = (&live.key, live.metadata().uid.clone()?);
    Some(Step {
        action: Action::Delete,
        // Nobody reaches Coder by a way that is gone, and no workspace is made where nobody may.
        impact: Impact::Disruptive,
        reason: format!("{key} is owned and no longer declared"),
        changes: vec![Change::new(&key.to_string(), "ours", Value::Null)],
        effect: ChildEffect::Delete {
            key: key.clone(),
            uid,
            version: live.metadata().resource_version.clone(),
        },
    })
}

/// What we applied goes, and the object stays.
fn release(key: &Key, over: impl Fn(&Value) -> Value) -> Step<ChildEffect> {
    let metadata = json!({"name": key.name, "namespace": key.namespace});
    let object = json!({"apiVersion": key.api_version, "kind": key.kind, "metadata": metadata});
    Step {
        action: Action::Update,
        impact: Impact::Safe,
        reason: format!("{key} is no longer owned by this object and is kept"),
        changes: vec![Change::new(&key.to_string(), "ours", "nobody's")],
        effect: ChildEffect::Release { key: key.clone(), object: over(&object) },
    }
}

#[cfg(test)]
mod tests;
