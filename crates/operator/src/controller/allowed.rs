//! What `extraRules` of control planes may grant, as whoever starts the operator says: a list of rules in a file.
//!
//! A rule that is misread would grant too much, so everything that is not understood ends the start.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use engine::kinds::control_plane::check_rule;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

const FIELDS: [&str; 4] = ["apiGroups", "resources", "resourceNames", "verbs"];

/// Reads the file of `--allow-rules`; nothing is allowed where there is none.
pub(super) fn read(file: Option<&Path>) -> Result<Vec<PolicyRule>> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let place = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("--allow-rules: read {place}"))?;
    rules(&text).with_context(|| format!("--allow-rules: {place} cannot be used"))
}

fn rules(text: &str) -> Result<Vec<PolicyRule>> {
    // Nothing but comments is a list without rules.
    let list: Option<Value> = serde_saphyr::from_str(text).context("it is not YAML")?;
    let list = match list {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => bail!("expected a list of rules, as under `rules` of a Role"),
    };
    list.into_iter()
        .enumerate()
        .map(|(at, it)| rule(it).with_context(|| format!("rule {}", at + 1)))
        .collect()
}

fn rule(rule: Value) -> Result<PolicyRule> {
    let fields = rule.as_object().context("expected a rule with apiGroups, resources and verbs")?;
    for (name, value) in fields {
        ensure!(name != "nonResourceURLs", "a Role cannot grant nonResourceURLs: take it out");
        ensure!(
            FIELDS.contains(&name.as_str()),
            "{name} is not a field of a rule: expected {}",
            FIELDS.join(", ")
        );
        let words = value.as_array().is_some_and(|it| it.iter().all(Value::is_string));
        ensure!(words, "{name}: expected a list of words");
    }
    let rule: PolicyRule = serde_json::from_value(rule).context("read the rule")?;
    if let Err(why) = check_rule(&rule) {
        bail!("{why}: it is never granted, take it out");
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_rules_is_read_and_nothing_is_an_empty_one() {
        let text = "# for templates\n- apiGroups: [batch]\n  resources: [jobs, jobs/status]\n  verbs: [get, create]\n\
                    - {apiGroups: [\"\"], resources: [secrets], resourceNames: [a], verbs: [\"*\"]}\n";
        let read = rules(text).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].resources.as_deref().unwrap(), ["jobs", "jobs/status"]);
        assert_eq!(read[1].resource_names.as_deref().unwrap(), ["a"]);
        for nothing in ["", "# nothing yet\n", "[]", "null"] {
            assert_eq!(rules(nothing).unwrap(), [], "{nothing:?}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_with_the_rule_and_the_field() {
        let wrong = |field: &str| {
            format!("- {{apiGroups: [batch], resources: [jobs], verbs: [get]}}\n- {{{field}}}\n")
        };
        for (text, told) in [
            ("rules: []".to_owned(), "expected a list of rules"),
            ("- [".to_owned(), "it is not YAML"),
            ("- jobs".to_owned(), "rule 1: expected a rule"),
            (wrong("apiGroups: [a], resources: [b]"), "rule 2: it names no verbs"),
            (
                wrong("apiGroups: a, resources: [b], verbs: [get]"),
                "rule 2: apiGroups: expected a list of words",
            ),
            (
                wrong("apiGroups: [a], resources: [b], verbs: [true]"),
                "rule 2: verbs: expected a list of words",
            ),
            // A name that is misspelt would widen the rule to all of them.
            (
                wrong("apiGroups: [a], resources: [b], verbs: [get], resourceName: [c]"),
                "rule 2: resourceName is not a field",
            ),
            (
                wrong("nonResourceURLs: [/metrics], verbs: [get]"),
                "rule 2: a Role cannot grant nonResourceURLs",
            ),
            (wrong("apiGroups: [a], resources: [b], verbs: [get, bind]"), "rule 2: the verb bind allows"),
            (wrong("apiGroups: [a], resources: [b], verbs: [escalate]"), "rule 2: the verb escalate allows"),
            (wrong("apiGroups: [a], resources: [b], verbs: [impersonate]"), "rule 2: the verb impersonate"),
        ] {
            let error = format!("{:#}", rules(&text).unwrap_err());
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
