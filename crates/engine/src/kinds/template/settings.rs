//! The settings of a template: metadata and schedule, declared and found. Absent ones are left as they are found.

use api::{CoderTemplateSpec, TemplateSchedule, Weekday, parse_duration};
use client::templates::{
    AutostartRequirement, AutostopRequirement, CreateTemplate, Template, UpdateTemplate,
};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::pipeline::{diff::Diff, outcome::Invalid, plan::Impact};

/// The longest description that Coder takes when a template is created.
pub(super) const DESCRIPTION: usize = 127;
/// The shortest duration that is not zero, where Coder has one.
pub(super) const MINUTE: i64 = 60_000;

/// A duration in milliseconds, which plans show as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span(i64);

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&span_words(self.0))
    }
}

/// Milliseconds as people write a duration.
pub(super) fn span_words(milliseconds: i64) -> String {
    let seconds = milliseconds / 1000;
    let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let parts = parts.iter().filter(|(count, _)| *count != 0);
    let parts: Vec<String> = parts.map(|(count, unit)| format!("{count}{unit}")).collect();
    if parts.is_empty() { "0s".to_owned() } else { parts.concat() }
}

/// What a manifest says of the settings, as a change of everything that it declares.
pub(crate) fn declared(spec: &CoderTemplateSpec, name: &str) -> Result<UpdateTemplate, Invalid> {
    if spec.description.as_ref().is_some_and(|it| it.chars().count() > DESCRIPTION) {
        let message = format!("must be at most {DESCRIPTION} characters");
        return Err(Invalid::new("spec.description", message));
    }
    let schedule = spec.schedule.clone().unwrap_or_default();
    let TemplateSchedule { autostop, autostart, .. } = &schedule;
    let shortest = |field: &str, text: &Option<String>, shortest: i64| span(field, text.as_deref(), shortest);
    let word = |it: Value| it.as_str().map(str::to_owned);
    Ok(UpdateTemplate {
        name: Some(name.to_owned()),
        display_name: spec.display_name.clone(),
        description: spec.description.clone(),
        icon: spec.icon.clone(),
        default_ttl_ms: shortest("defaultTTL", &schedule.default_ttl, 0)?,
        activity_bump_ms: shortest("activityBump", &schedule.activity_bump, 0)?,
        time_til_autostop_notify_ms: shortest(
            "notifyBeforeAutostop",
            &schedule.notify_before_autostop,
            MINUTE,
        )?,
        failure_ttl_ms: shortest("failureTTL", &schedule.failure_ttl, MINUTE)?,
        time_til_dormant_ms: shortest("dormantAfter", &schedule.dormant_after, MINUTE)?,
        time_til_dormant_autodelete_ms: shortest(
            "deleteDormantAfter",
            &schedule.delete_dormant_after,
            MINUTE,
        )?,
        autostop_requirement: autostop.as_ref().map(|it| AutostopRequirement {
            days_of_week: days(&it.days),
            weeks: it.weeks.map_or(1, i64::from),
        }),
        autostart_requirement: autostart
            .as_ref()
            .map(|it| AutostartRequirement { days_of_week: days(&it.days) }),
        allow_user_autostart: schedule.allow_user_autostart,
        allow_user_autostop: schedule.allow_user_autostop,
        allow_user_cancel_workspace_jobs: spec.allow_user_cancel_workspace_jobs,
        require_active_version: spec.require_active_version,
        deprecation_message: spec.deprecated.clone(),
        max_port_share_level: spec.max_port_share_level.map(|it| serde_json::json!(it)).and_then(word),
        cors_behavior: spec.cors_behavior.map(|it| serde_json::json!(it)).and_then(word),
        use_classic_parameter_flow: spec.classic_parameter_flow,
    })
}

fn span(field: &str, text: Option<&str>, shortest: i64) -> Result<Option<i64>, Invalid> {
    let Some(text) = text else { return Ok(None) };
    let field = format!("spec.schedule.{field}");
    let parsed = parse_duration(text).and_then(|it| i64::try_from(it.as_millis()).ok());
    let parsed = parsed.ok_or_else(|| Invalid::new(&field, "must be a duration, as 8h, 90m or 0s"))?;
    if parsed != 0 && parsed < shortest {
        return Err(Invalid::new(&field, "must be 0s or at least 1m"));
    }
    Ok(Some(parsed))
}

/// Days in the order of the week, each once, as Coder returns them.
fn days(days: &[Weekday]) -> Vec<String> {
    let mut days = days.to_vec();
    days.sort_unstable();
    days.dedup();
    days.iter().map(|it| format!("{it:?}").to_lowercase()).collect()
}

/// The declared settings that differ from what was found.
pub(crate) fn difference(wanted: &UpdateTemplate, found: &Template, diff: &mut Diff) -> UpdateTemplate {
    let mut span = |field: &str, wanted: Option<i64>, found: i64| {
        diff.pick(field, wanted.map(Span).as_ref(), &Span(found)).map(|Span(it)| it)
    };
    let default_ttl_ms = span("schedule.defaultTTL", wanted.default_ttl_ms, found.default_ttl_ms);
    let activity_bump_ms = span("schedule.activityBump", wanted.activity_bump_ms, found.activity_bump_ms);
    let time_til_autostop_notify_ms = span(
        "schedule.notifyBeforeAutostop",
        wanted.time_til_autostop_notify_ms,
        found.time_til_autostop_notify_ms,
    );
    let failure_ttl_ms = span("schedule.failureTTL", wanted.failure_ttl_ms, found.failure_ttl_ms);
    let time_til_dormant_ms =
        span("schedule.dormantAfter", wanted.time_til_dormant_ms, found.time_til_dormant_ms);
    let time_til_dormant_autodelete_ms = span(
        "schedule.deleteDormantAfter",
        wanted.time_til_dormant_autodelete_ms,
        found.time_til_dormant_autodelete_ms,
    );
    let autostop = sorted_autostop(&found.autostop_requirement);
    let autostart =
        AutostartRequirement { days_of_week: in_week_order(&found.autostart_requirement.days_of_week) };
    UpdateTemplate {
        name: diff.pick("name", wanted.name.as_ref(), &found.name),
        display_name: diff.pick("displayName", wanted.display_name.as_ref(), &found.display_name),
        description: diff.pick("description", wanted.description.as_ref(), &found.description),
        icon: diff.pick("icon", wanted.icon.as_ref(), &found.icon),
        default_ttl_ms,
        activity_bump_ms,
        time_til_autostop_notify_ms,
        failure_ttl_ms,
        time_til_dormant_ms,
        time_til_dormant_autodelete_ms,
        autostop_requirement: diff.pick("schedule.autostop", wanted.autostop_requirement.as_ref(), &autostop),
        autostart_requirement: diff.pick(
            "schedule.autostart",
            wanted.autostart_requirement.as_ref(),
            &autostart,
        ),
        allow_user_autostart: diff.pick(
            "schedule.allowUserAutostart",
            wanted.allow_user_autostart.as_ref(),
            &found.allow_user_autostart,
        ),
        allow_user_autostop: diff.pick(
            "schedule.allowUserAutostop",
            wanted.allow_user_autostop.as_ref(),
            &found.allow_user_autostop,
        ),
        allow_user_cancel_workspace_jobs: diff.pick(
            "allowUserCancelWorkspaceJobs",
            wanted.allow_user_cancel_workspace_jobs.as_ref(),
            &found.allow_user_cancel_workspace_jobs,
        ),
        require_active_version: diff.pick(
            "requireActiveVersion",
            wanted.require_active_version.as_ref(),
            &found.require_active_version,
        ),
        deprecation_message: diff.pick(
            "deprecated",
            wanted.deprecation_message.as_ref(),
            &found.deprecation_message,
        ),
        max_port_share_level: diff.pick(
            "maxPortShareLevel",
            wanted.max_port_share_level.as_ref(),
            &found.max_port_share_level,
        ),
        cors_behavior: diff.pick("corsBehavior", wanted.cors_behavior.as_ref(), &found.cors_behavior),
        use_classic_parameter_flow: diff.pick(
            "classicParameterFlow",
            wanted.use_classic_parameter_flow.as_ref(),
            &found.use_classic_parameter_flow,
        ),
    }
}

fn sorted_autostop(found: &AutostopRequirement) -> AutostopRequirement {
    // Zero weeks are one.
    AutostopRequirement { days_of_week: in_week_order(&found.days_of_week), weeks: found.weeks.max(1) }
}

fn in_week_order(days: &[String]) -> Vec<String> {
    const WEEK: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    WEEK.iter().filter(|day| days.iter().any(|it| it == *day)).map(|it| (*it).to_owned()).collect()
}

/// What a change means for people. Coder applies a shorter time to workspaces that exist: it stops them sooner, makes them dormant sooner,
/// and deletes those that have been dormant for longer. Zero means never.
pub(crate) fn impact(change: &UpdateTemplate, found: &Template) -> Impact {
    let is_sooner =
        |wanted: Option<i64>, found: i64| wanted.is_some_and(|it| it > 0 && (found <= 0 || it < found));
    let deletes = change.time_til_dormant_autodelete_ms.unwrap_or(found.time_til_dormant_autodelete_ms) > 0;
    let is_dormant_sooner = is_sooner(change.time_til_dormant_ms, found.time_til_dormant_ms);
    if is_sooner(change.time_til_dormant_autodelete_ms, found.time_til_dormant_autodelete_ms)
        || (is_dormant_sooner && deletes)
    {
        return Impact::Destructive;
    }
    let interrupts = change.name.is_some()
        || change.max_port_share_level.is_some()
        || is_dormant_sooner
        || is_sooner(change.default_ttl_ms, found.default_ttl_ms)
        || is_sooner(change.failure_ttl_ms, found.failure_ttl_ms)
        || change.autostop_requirement.is_some()
        || change.allow_user_autostop == Some(false)
        || change.allow_user_autostart == Some(false)
        || change.require_active_version == Some(true)
        || change.deprecation_message.as_ref().is_some_and(|it| !it.is_empty());
    if interrupts { Impact::Disruptive } else { Impact::Safe }
}

/// The request that creates a template with these settings, and what only an update can set afterwards.
pub(crate) fn creation(
    wanted: &UpdateTemplate,
    hides_from_everyone: bool,
) -> (CreateTemplate, UpdateTemplate) {
    let wanted = wanted.clone();
    let create = CreateTemplate {
        name: wanted.name.unwrap_or_default(),
        template_version_id: uuid::Uuid::nil(),
        display_name: wanted.display_name,
        description: wanted.description,
        icon: wanted.icon,
        default_ttl_ms: wanted.default_ttl_ms,
        activity_bump_ms: wanted.activity_bump_ms,
        time_til_autostop_notify_ms: wanted.time_til_autostop_notify_ms,
        autostop_requirement: wanted.autostop_requirement,
        autostart_requirement: wanted.autostart_requirement,
        allow_user_autostart: wanted.allow_user_autostart,
        allow_user_autostop: wanted.allow_user_autostop,
        allow_user_cancel_workspace_jobs: wanted.allow_user_cancel_workspace_jobs,
        failure_ttl_ms: wanted.failure_ttl_ms,
        dormant_ttl_ms: wanted.time_til_dormant_ms,
        delete_ttl_ms: wanted.time_til_dormant_autodelete_ms,
        disable_everyone_group_access: hides_from_everyone,
        require_active_version: wanted.require_active_version,
        max_port_share_level: wanted.max_port_share_level,
        cors_behavior: wanted.cors_behavior,
        template_use_classic_parameter_flow: wanted.use_classic_parameter_flow,
    };
    let later = wanted.deprecation_message.filter(|it| !it.is_empty());
    (create, UpdateTemplate { deprecation_message: later, ..UpdateTemplate::default() })
}

/// Notes every declared setting of a template that does not exist yet.
pub(crate) fn announce(wanted: &UpdateTemplate, diff: &mut Diff) {
    let nothing = Template {
        id: uuid::Uuid::nil(),
        organization_id: uuid::Uuid::nil(),
        name: String::new(),
        display_name: String::new(),
        description: String::new(),
        icon: String::new(),
        active_version_id: uuid::Uuid::nil(),
        updated_at: String::new(),
        deprecated: false,
        deprecation_message: String::new(),
        default_ttl_ms: -1,
        activity_bump_ms: -1,
        time_til_autostop_notify_ms: -1,
        autostop_requirement: AutostopRequirement { days_of_week: Vec::new(), weeks: i64::MAX },
        autostart_requirement: AutostartRequirement { days_of_week: vec!["-".to_owned()] },
        allow_user_autostart: !wanted.allow_user_autostart.unwrap_or_default(),
        allow_user_autostop: !wanted.allow_user_autostop.unwrap_or_default(),
        allow_user_cancel_workspace_jobs: !wanted.allow_user_cancel_workspace_jobs.unwrap_or_default(),
        failure_ttl_ms: -1,
        time_til_dormant_ms: -1,
        time_til_dormant_autodelete_ms: -1,
        require_active_version: !wanted.require_active_version.unwrap_or_default(),
        max_port_share_level: String::new(),
        cors_behavior: String::new(),
        use_classic_parameter_flow: !wanted.use_classic_parameter_flow.unwrap_or_default(),
    };
    let mut all = Diff::default();
    difference(&UpdateTemplate { deprecation_message: None, ..wanted.clone() }, &nothing, &mut all);
    diff.changes.extend(
        all.changes.into_iter().map(|it| crate::pipeline::plan::Change { before: Value::Null, ..it }),
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schedule_that_deletes_or_stops_sooner_is_no_safe_change() {
        let impact = |found: Value, change: UpdateTemplate| {
            let mut template = json!({"id": uuid::Uuid::nil(), "organization_id": uuid::Uuid::nil(), "name": "a",
                "active_version_id": uuid::Uuid::nil()});
            template.as_object_mut().unwrap().extend(found.as_object().unwrap().clone());
            impact(&change, &serde_json::from_value(template).unwrap())
        };
        let delete =
            |it| UpdateTemplate { time_til_dormant_autodelete_ms: Some(it), ..UpdateTemplate::default() };
        let dormant = |it| UpdateTemplate { time_til_dormant_ms: Some(it), ..UpdateTemplate::default() };
        assert_eq!(impact(json!({}), delete(5)), Impact::Destructive);
        assert_eq!(impact(json!({"time_til_dormant_autodelete_ms": 9}), delete(5)), Impact::Destructive);
        assert_eq!(impact(json!({"time_til_dormant_autodelete_ms": 5}), delete(9)), Impact::Safe);
        assert_eq!(impact(json!({"time_til_dormant_autodelete_ms": 5}), delete(0)), Impact::Safe);
        assert_eq!(impact(json!({}), dormant(5)), Impact::Disruptive);
        assert_eq!(impact(json!({"time_til_dormant_autodelete_ms": 5}), dormant(5)), Impact::Destructive);
        let ttl = UpdateTemplate { default_ttl_ms: Some(5), ..UpdateTemplate::default() };
        assert_eq!(impact(json!({"default_ttl_ms": 9}), ttl), Impact::Disruptive);
        let icon = UpdateTemplate { icon: Some("a".to_owned()), ..UpdateTemplate::default() };
        assert_eq!(impact(json!({}), icon), Impact::Safe);
    }
}
