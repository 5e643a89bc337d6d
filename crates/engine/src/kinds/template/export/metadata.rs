//! The settings of a template and who may use it, as a manifest declares them. Pure.

use std::collections::BTreeMap;

use api::{
    CoderTemplateSpec, TemplateAcl, TemplateAutostart, TemplateAutostop, TemplateRole, TemplateSchedule,
    Weekday,
};
use client::{
    organizations::Organization,
    templates::{Template, TemplateAccess},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::{
    kinds::template::settings::{DESCRIPTION, MINUTE, span_words},
    pipeline::export::said,
};

/// Fills in the settings. Returns a note for each that a manifest cannot declare.
pub(super) fn settings(found: &Template, spec: &mut CoderTemplateSpec) -> Vec<String> {
    let mut notes = Vec::new();
    spec.display_name = said(&found.display_name);
    spec.description = said(&found.description);
    if found.description.chars().count() > DESCRIPTION {
        spec.description = None;
        notes.push(format!("description is left out: it is longer than {DESCRIPTION} characters"));
    }
    spec.icon = said(&found.icon);
    spec.schedule = Some(schedule(found, &mut notes));
    spec.require_active_version = Some(found.require_active_version);
    spec.allow_user_cancel_workspace_jobs = Some(found.allow_user_cancel_workspace_jobs);
    spec.max_port_share_level = word("maxPortShareLevel", &found.max_port_share_level, &mut notes);
    spec.cors_behavior = word("corsBehavior", &found.cors_behavior, &mut notes);
    spec.classic_parameter_flow = Some(found.use_classic_parameter_flow);
    spec.deprecated = said(&found.deprecation_message);
    notes
}

fn schedule(found: &Template, notes: &mut Vec<String>) -> TemplateSchedule {
    let mut span = |field: &str, milliseconds: i64, shortest: i64| {
        let is_declarable =
            milliseconds == 0 || (milliseconds > 0 && milliseconds % 1000 == 0 && milliseconds >= shortest);
        if !is_declarable {
            notes.push(format!(
                "schedule.{field} is left out: {milliseconds} ms is no duration of a manifest"
            ));
        }
        is_declarable.then(|| span_words(milliseconds))
    };
    TemplateSchedule {
        default_ttl: span("defaultTTL", found.default_ttl_ms, 0),
        activity_bump: span("activityBump", found.activity_bump_ms, 0),
        failure_ttl: span("failureTTL", found.failure_ttl_ms, MINUTE),
        dormant_after: span("dormantAfter", found.time_til_dormant_ms, MINUTE),
        delete_dormant_after: span("deleteDormantAfter", found.time_til_dormant_autodelete_ms, MINUTE),
        notify_before_autostop: span("notifyBeforeAutostop", found.time_til_autostop_notify_ms, MINUTE),
        autostop: Some(TemplateAutostop {
            days: days(&found.autostop_requirement.days_of_week),
            weeks: i32::try_from(found.autostop_requirement.weeks.max(1)).ok(),
        }),
        autostart: Some(TemplateAutostart { days: days(&found.autostart_requirement.days_of_week) }),
        allow_user_autostart: Some(found.allow_user_autostart),
        allow_user_autostop: Some(found.allow_user_autostop),
    }
}

/// Days in the order of the week.
fn days(found: &[String]) -> Vec<Weekday> {
    let mut days: Vec<Weekday> =
        found.iter().filter_map(|it| serde_json::from_value(json!(it)).ok()).collect();
    days.sort_unstable();
    days
}

/// A word of Coder that manifests have, too.
fn word<T: DeserializeOwned>(field: &str, text: &str, notes: &mut Vec<String>) -> Option<T> {
    let word = serde_json::from_value(json!(text)).ok();
    if word.is_none() && !text.is_empty() {
        notes.push(format!("{field} is left out: its value is not known"));
    }
    word
}

fn with(
    mut roles: BTreeMap<String, TemplateRole>,
    name: &str,
    role: TemplateRole,
) -> BTreeMap<String, TemplateRole> {
    roles.insert(name.to_owned(), role);
    roles
}

/// Who may use the template.
pub(super) fn access(found: &TemplateAccess, home: &Organization, notes: &mut Vec<String>) -> TemplateAcl {
    let role = |it: &str| match it {
        "use" => Some(TemplateRole::Use),
        "admin" => Some(TemplateRole::Admin),
        _ => None,
    };
    let mut groups = Some(BTreeMap::new());
    for it in &found.groups {
        match role(&it.role).filter(|_| it.organization_id == home.id) {
            Some(role) => groups = groups.map(|known| with(known, &it.name, role)),
            None => groups = None,
        }
    }
    if groups.is_none() {
        let note =
            "acl.groups is left out: it has a group of another organization, or a role that is not known";
        notes.push(note.to_owned());
    }
    let users = found.users.iter().map(|it| Some((it.username.clone(), role(&it.role)?)));
    let users: Option<BTreeMap<String, TemplateRole>> = users.collect();
    if users.is_none() {
        notes.push("acl.users is left out: it has a role that is not known".to_owned());
    }
    TemplateAcl { groups, users }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use uuid::Uuid;

    use super::*;
    use crate::{kinds::template::settings, pipeline::diff::Diff};

    fn template(more: &Value) -> Template {
        let mut template = json!({"id": Uuid::nil(), "organization_id": Uuid::nil(), "name": "a",
            "active_version_id": Uuid::nil(), "max_port_share_level": "owner", "cors_behavior": "simple"});
        template.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(template).unwrap()
    }

    #[test]
    fn exported_settings_are_equal_to_what_was_found() {
        let found = template(
            &json!({"display_name": "A", "default_ttl_ms": 5_400_000, "activity_bump_ms": 0,
            "failure_ttl_ms": 86_400_000, "autostop_requirement": {"days_of_week": ["sunday", "saturday"], "weeks": 2},
            "autostart_requirement": {"days_of_week": ["monday"]}, "require_active_version": true,
            "max_port_share_level": "organization", "cors_behavior": "passthru", "deprecation_message": "gone"}),
        );
        let mut spec = CoderTemplateSpec::default();
        assert_eq!(settings(&found, &mut spec), [""; 0]);
        assert_eq!(spec.schedule.as_ref().unwrap().default_ttl.as_deref(), Some("1h30m"));
        let mut diff = Diff::default();
        settings::difference(&settings::declared(&spec, "a").unwrap(), &found, &mut diff);
        assert!(diff.is_empty(), "{:?}", diff.changes);
    }

    #[test]
    fn settings_that_no_manifest_can_declare_are_left_out_with_a_note() {
        let found =
            template(&json!({"description": "x".repeat(128), "default_ttl_ms": 1, "failure_ttl_ms": 1000,
            "cors_behavior": "new"}));
        let mut spec = CoderTemplateSpec::default();
        let notes = settings(&found, &mut spec).join("\n");
        for field in ["description", "schedule.defaultTTL", "schedule.failureTTL", "corsBehavior"] {
            assert!(notes.contains(&format!("{field} is left out")), "{notes}");
        }
        assert!(settings::declared(&spec, "a").is_ok());
    }

    #[test]
    fn groups_of_other_organizations_leave_the_groups_out() {
        let home: Organization =
            serde_json::from_value(json!({"id": Uuid::from_u128(1), "name": "alpha"})).unwrap();
        let access = |organization: u128| -> TemplateAccess {
            serde_json::from_value(json!({"users": [{"id": Uuid::nil(), "username": "bob", "role": "admin"}],
                "group": [{"id": Uuid::nil(), "name": "devs", "role": "use",
                    "organization_id": Uuid::from_u128(organization)}]}))
            .unwrap()
        };
        let mut notes = Vec::new();
        let own = super::access(&access(1), &home, &mut notes);
        assert_eq!((own.groups.unwrap()["devs"], notes.len()), (TemplateRole::Use, 0));
        let other = super::access(&access(2), &home, &mut notes);
        assert_eq!((other.groups, other.users.unwrap()["bob"]), (None, TemplateRole::Admin));
        assert!(notes[0].starts_with("acl.groups is left out"));
    }
}
