//! Who made a remote object differ from its manifest, as far as Coder's audit log tells. Pure.
//!
//! It is no part of a [`Change`]: an approval names the changes, whoever made them necessary.

use client::audit::AuditEntry;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::pipeline::plan::{Action, Change, PlanView};

/// Who it was where the log does not tell.
pub const UNKNOWN: &str = "unknown";
/// How requests of this program name themselves.
const OWN_AGENT: &str = "coder-operator/";
/// How far the clocks of Coder and of the cluster may be apart.
const SKEW: SignedDuration = SignedDuration::from_mins(1);
/// The longest name of a user.
const LONGEST_NAME: usize = 64;

/// How the audit log names a remote object and its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audited {
    /// The type of the object.
    pub resource_type: &'static str,
    pub object: AuditedObject,
    /// Fields of the manifest, with the log's names.
    pub fields: &'static [(&'static str, &'static str)],
}

/// Which object of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditedObject {
    Id(Uuid),
    /// An object whose id only the log knows.
    Named {
        organization: Uuid,
        name: String,
    },
    /// The one document of an organization; nil for the one of the deployment.
    DocumentOf(Uuid),
}

/// Who changed a field, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attribution {
    /// The field's name in the manifest.
    pub field: String,
    /// A user name, or `unknown`.
    pub by: String,
    /// `None` where it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

impl Attribution {
    fn unknown(field: &str) -> Self {
        Self { field: field.to_owned(), by: UNKNOWN.to_owned(), at: None }
    }

    /// In words: `by alice at 2026-11-17T12:04:33Z`.
    pub fn words(&self) -> String {
        match self.at {
            Some(at) => format!("by {} at {}", self.by, at.strftime("%Y-%m-%dT%H:%M:%SZ")),
            None => format!("by {}", self.by),
        }
    }
}

impl Audited {
    fn is(&self, entry: &AuditEntry) -> bool {
        let is_object = match &self.object {
            AuditedObject::Id(id) => entry.resource_id == *id,
            AuditedObject::Named { organization, name } => {
                entry.organization_id == *organization && entry.resource_target == *name
            }
            AuditedObject::DocumentOf(organization) => entry.organization_id == *organization,
        };
        is_object && entry.resource_type == self.resource_type
    }

    fn name_of(&self, field: &str) -> Option<&'static str> {
        self.fields.iter().find(|(it, _)| *it == field).map(|(_, name)| *name)
    }
}

/// The changes of a plan that an object which exists makes necessary.
pub fn differences(plan: &PlanView) -> impl Iterator<Item = &Change> {
    plan.steps.iter().filter(|it| it.action == Action::Update).flat_map(|it| &it.changes)
}

/// Who made these differences, where nothing can be looked up.
pub fn unknown(plan: &PlanView) -> Vec<Attribution> {
    differences(plan).map(|it| Attribution::unknown(&it.field)).collect()
}

/// Who made these differences, by entries of the log, newest first. A field that this program wrote last is not among them: then
/// the manifest is what changed. `own` is the account that this program uses.
pub fn attribute(
    plan: &PlanView,
    audited: &Audited,
    entries: &[AuditEntry],
    own: Option<Uuid>,
) -> Vec<Attribution> {
    let by = |change: &Change| {
        let unknown = || Some(Attribution::unknown(&change.field));
        let Some(name) = audited.name_of(&change.field) else { return unknown() };
        let is_change =
            |it: &&AuditEntry| it.status_code < 400 && it.diff.contains_key(name) && audited.is(it);
        let Some(entry) = entries.iter().find(is_change) else { return unknown() };
        let Some(user) = entry.user.as_ref() else { return unknown() };
        if Some(user.id) == own && entry.user_agent.starts_with(OWN_AGENT) {
            return None;
        }
        let is_it = entry.diff.get(name).is_some_and(|it| may_be(&it.new, &change.before));
        if !is_it || !is_name(&user.username) {
            return unknown();
        }
        Some(Attribution { field: change.field.clone(), by: user.username.clone(), at: Some(entry.time) })
    };
    differences(plan).filter_map(by).collect()
}

/// The entries, newest first, that are not from before that time: what was equal by then was not made different before.
pub fn since(entries: &[AuditEntry], time: Option<Timestamp>) -> &[AuditEntry] {
    let first = time.and_then(|it| it.checked_sub(SKEW).ok());
    let count = entries.iter().take_while(|it| first.is_none_or(|first| it.time >= first)).count();
    entries.get(..count).unwrap_or_default()
}

/// Whether a value of the log may be the one that was found. Lists and maps have other forms there, and names are ids.
fn may_be(logged: &Value, found: &Value) -> bool {
    let is_id = |it: &Value| it.as_str().is_some_and(|it| it.parse::<Uuid>().is_ok());
    match (logged, found) {
        (Value::String(_), Value::String(_)) if is_id(logged) && !is_id(found) => true,
        (Value::Number(_), Value::Number(_)) | (Value::String(_), Value::String(_)) => logged == found,
        _ => true,
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_.@".contains(it);
    (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pipeline::plan::{Impact, Plan, Step};

    const ALICE: Uuid = Uuid::from_u128(1);
    const OPERATOR: Uuid = Uuid::from_u128(2);
    const GROUP: Uuid = Uuid::from_u128(3);

    fn plan(before: i32) -> PlanView {
        Plan::of(Step {
            action: Action::Update,
            impact: Impact::Safe,
            reason: String::new(),
            changes: vec![Change::new("quotaAllowance", before, 20)],
            effect: (),
        })
        .view("group a/b")
    }

    fn audited() -> Audited {
        let fields = &[("quotaAllowance", "quota_allowance")];
        Audited { resource_type: "group", object: AuditedObject::Id(GROUP), fields }
    }

    fn entry(user: Uuid, agent: &str, new: i32) -> AuditEntry {
        serde_json::from_value(
            json!({"time": "2026-11-17T12:04:33.5Z", "user_agent": agent, "resource_type": "group",
            "resource_id": GROUP, "resource_target": "b", "status_code": 200, "organization_id": Uuid::nil(),
            "diff": {"quota_allowance": {"old": 20, "new": new, "secret": false}},
            "user": {"id": user, "username": if user == ALICE { "alice" } else { "automation" }}}),
        )
        .unwrap()
    }

    #[test]
    fn entry_from_before_the_object_was_equal_is_not_the_cause() {
        let entries = [entry(ALICE, "curl", 3)];
        let count = |time: &str| since(&entries, Some(time.parse().unwrap())).len();
        assert_eq!((since(&entries, None).len(), count("2026-11-17T12:00:00Z")), (1, 1));
        assert_eq!(count("2026-11-17T12:05:00Z"), 1, "clocks differ");
        assert_eq!(count("2026-11-17T13:00:00Z"), 0);
    }

    fn who(entries: &[AuditEntry]) -> Vec<String> {
        attribute(&plan(3), &audited(), entries, Some(OPERATOR)).iter().map(Attribution::words).collect()
    }

    #[test]
    fn newest_change_of_the_field_is_named_with_its_time() {
        let entries = [entry(ALICE, "Firefox", 3), entry(OPERATOR, "coder-operator/1", 20)];
        assert_eq!(who(&entries), ["by alice at 2026-11-17T12:04:33Z"]);
    }

    #[test]
    fn own_writes_are_told_apart_by_account_and_agent() {
        assert_eq!(who(&[entry(OPERATOR, "coder-operator/1", 3)]), Vec::<String>::new());
        // The same account by hand, and the same program for another account.
        assert_eq!(who(&[entry(OPERATOR, "curl/8", 3)]), ["by automation at 2026-11-17T12:04:33Z"]);
        assert_eq!(who(&[entry(ALICE, "coder-operator/1", 3)]), ["by alice at 2026-11-17T12:04:33Z"]);
    }

    #[test]
    fn values_are_compared_where_the_log_has_them_in_the_same_form() {
        let id = json!("0190a8f0-0000-4000-8000-000000000001");
        assert!(may_be(&id, &json!("sha-0011")) && may_be(&id, &id) && may_be(&json!(28_800), &json!("8h")));
        assert!(!may_be(&json!("one"), &json!("two")) && !may_be(&json!("one"), &id));
    }

    #[test]
    fn entry_that_does_not_explain_the_value_is_not_taken() {
        assert_eq!(who(&[]), ["by unknown"]);
        assert_eq!(who(&[entry(ALICE, "Firefox", 4)]), ["by unknown"], "another value");
        let mut refused = entry(ALICE, "Firefox", 3);
        refused.status_code = 403;
        let mut other = entry(ALICE, "Firefox", 3);
        other.resource_id = ALICE;
        let mut field = entry(ALICE, "Firefox", 3);
        field.diff.clear();
        let mut named = entry(ALICE, "Firefox", 3);
        named.user.as_mut().unwrap().username = "x\u{1b}[2J".to_owned();
        for entry in [refused, other, field, named] {
            assert_eq!(who(&[entry]), ["by unknown"]);
        }
    }
}
