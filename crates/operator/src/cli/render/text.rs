//! The diff as text: by deployment, object, step and field.

use std::fmt::Write as _;

use engine::{Action, Change, Impact, pipeline::masked::MASKED};
use serde_json::Value;

use super::{Row, State, View};
use crate::cli::deployment::DeploymentRef;

/// What the line that names a deployment begins with.
pub(super) const DEPLOYMENT: &str = "Deployment";

/// How long a line may be before a list is shown item by item.
const WIDTH: usize = 100;

/// The placeholder for a secret value.
const SENSITIVE: &str = "(sensitive)";

pub(super) fn render(view: &View<'_>, verbose: bool) -> String {
    let mut text = String::new();
    for deployment in &view.deployments {
        write_deployment(&mut text, deployment);
        let rows = view.objects.iter().filter(|it| it.control_plane == **deployment);
        for row in rows.filter(|row| verbose || row.state != State::Equal) {
            write_row(&mut text, row);
        }
    }
    text + &counts(view) + "\n"
}

/// How many objects are in which state, in words.
pub(super) fn counts(view: &View<'_>) -> String {
    let count = |state: State| view.objects.iter().filter(|row| row.state == state).count();
    let counts = [
        (count(State::Differs), "to change"),
        (count(State::Observed), "observed"),
        (count(State::Refused), "refused"),
        (count(State::Blocked), "waiting"),
        (count(State::Invalid) + count(State::Failed), "failed"),
        (count(State::Equal), "equal"),
        (view.skipped.len(), "skipped"),
    ];
    let counts: Vec<String> = counts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    if counts.is_empty() { "no objects".to_owned() } else { counts.join(", ") }
}

fn write_deployment(text: &mut String, deployment: &DeploymentRef) {
    let plane = deployment.control_plane().map(|it| format!(", CoderControlPlane {it}")).unwrap_or_default();
    // Writing to a string cannot fail.
    writeln!(text, "{DEPLOYMENT} {deployment}{plane}\n").ok();
}

pub(super) fn write_row(text: &mut String, row: &Row) {
    let namespace = row.namespace.as_ref().map(|it| format!("{it}/")).unwrap_or_default();
    writeln!(text, "{} {namespace}{}: {}", row.kind, row.name, row.target).ok();
    if let Some(message) = &row.message {
        let reason = row.reason.map(|it| format!("{it}: ")).unwrap_or_default();
        writeln!(text, "  ! {reason}{message}").ok();
    }
    if row.state == State::Equal {
        writeln!(text, "  = equal").ok();
    }
    for step in &row.plan.steps {
        let (mark, word) = match step.action {
            Action::Create => ('+', "create"),
            Action::Update => ('~', "update"),
            Action::Delete => ('-', "delete"),
        };
        let impact = match step.impact {
            Impact::Upkeep | Impact::Safe => "",
            Impact::Disruptive => " (disruptive)",
            Impact::Destructive => " (destructive)",
        };
        writeln!(text, "  {mark} {word}{impact}: {}", step.reason).ok();
        for change in &step.changes {
            write_change(text, change);
            if let Some(attribution) = row.changed_by.iter().find(|it| it.field == change.field) {
                writeln!(text, "          changed {}", attribution.words()).ok();
            }
        }
    }
    text.push('\n');
}

fn write_change(text: &mut String, change: &Change) {
    let Change { field, before, after, .. } = change;
    match (before, after) {
        // A masked value differs. Any other value is as declared, and another client manages the field by now.
        (before, after) if before == after => {
            let why = if before == MASKED { "" } else { " (managed by another client)" };
            writeln!(text, "      ~ {field}: {}{why}", value(after)).ok();
        }
        (Value::Object(before), Value::Object(after)) => {
            writeln!(text, "      ~ {field}:").ok();
            let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                write_line(
                    text,
                    10,
                    key,
                    before.get(key).unwrap_or(&Value::Null),
                    after.get(key).unwrap_or(&Value::Null),
                );
            }
        }
        _ => write_line(text, 6, field, before, after),
    }
}

fn write_line(text: &mut String, indent: usize, key: &str, before: &Value, after: &Value) {
    let line = match (before, after) {
        (before, after) if before == after => return,
        (Value::Null, after) => format!("+ {key}: {}", value(after)),
        (before, Value::Null) => format!("- {key}: {}", value(before)),
        (before, after) => format!("~ {key}: {} -> {}", value(before), value(after)),
    };
    if indent + line.chars().count() > WIDTH && write_items(text, indent, key, before, after) {
        return;
    }
    writeln!(text, "{:indent$}{line}", "").ok();
}

/// A list that is too long for a line, by the items that come and go. False where that would hide a difference.
fn write_items(text: &mut String, indent: usize, key: &str, before: &Value, after: &Value) -> bool {
    let items = |value: &Value| match value {
        Value::Null => Some(Vec::new()),
        Value::Array(items) => Some(items.clone()),
        _ => None,
    };
    let (Some(old), Some(new)) = (items(before), items(after)) else { return false };
    let gone = old.iter().filter(|it| !new.contains(it)).map(|it| ('-', it));
    let come = new.iter().filter(|it| !old.contains(it)).map(|it| ('+', it));
    let lines: Vec<(char, &Value)> = gone.chain(come).collect();
    if lines.is_empty() {
        return false;
    }
    let mark = match (before, after) {
        (Value::Null, _) => '+',
        (_, Value::Null) => '-',
        _ => '~',
    };
    writeln!(text, "{:indent$}{mark} {key}:", "").ok();
    let indent = indent + 4;
    for (mark, item) in lines {
        writeln!(text, "{:indent$}{mark} {}", "", value(item)).ok();
    }
    true
}

fn value(value: &Value) -> String {
    match value {
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(self::value).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, field)| format!("{key}: {}", self::value(field))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::String(word) if word == SENSITIVE || word == MASKED => word.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(change: &Change) -> String {
        let mut text = String::new();
        write_change(&mut text, change);
        text
    }

    #[test]
    fn a_field_is_added_taken_away_or_changed() {
        assert_eq!(written(&Change::new("icon", Value::Null, "a")), "      + icon: \"a\"\n");
        assert_eq!(written(&Change::new("icon", "a", Value::Null)), "      - icon: \"a\"\n");
        assert_eq!(written(&Change::new("icon", "a", "b")), "      ~ icon: \"a\" -> \"b\"\n");
    }

    #[test]
    fn a_long_list_is_shown_by_what_comes_and_goes() {
        let names: Vec<String> = (0..20).map(|it| format!("person-{it}")).collect();
        let mut others = names.clone();
        others[3] = "somebody-else".to_owned();
        let expected = "      ~ members:\n          - \"person-3\"\n          + \"somebody-else\"\n";
        assert_eq!(written(&Change::new("members", names.clone(), others)), expected);
        let reversed: Vec<String> = names.iter().rev().cloned().collect();
        assert!(written(&Change::new("members", names, reversed)).contains(" -> "));
    }

    #[test]
    fn maps_in_lists_are_written_as_in_a_manifest_and_secrets_not_at_all() {
        let banners = json!([{"enabled": true, "message": "x"}]);
        let expected = "      ~ banners: [] -> [{enabled: true, message: \"x\"}]\n";
        assert_eq!(written(&Change::new("banners", json!([]), banners)), expected);
        assert_eq!(written(&Change::new("key", Value::Null, SENSITIVE)), "      + key: (sensitive)\n");
    }

    #[test]
    fn field_with_a_masked_value_or_another_manager_is_named() {
        assert_eq!(written(&Change::new("env", MASKED, MASKED)), "      ~ env: (not shown)\n");
        let expected = "      ~ replicas: 2 (managed by another client)\n";
        assert_eq!(written(&Change::new("replicas", 2, 2)), expected);
    }

    #[test]
    fn a_map_is_shown_by_the_keys_that_differ() {
        let (before, after) = (json!({"/a": ["x"], "/b": ["y"]}), json!({"/b": ["y"], "/c": ["z", "w"]}));
        let expected = "      ~ mapping:\n          - /a: [x]\n          + /c: [z, w]\n";
        assert_eq!(written(&Change::new("mapping", before, after)), expected);
    }
}
