//! The operator's rules compared with what a whole test run used: rules that no request needed, and rights that were missing.
//!
//! The API server's audit log of the shared bed holds every request of every operator that the tests started.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::BufRead,
};

use anyhow::{Context as _, Result};
use engine::rbac::{Evidence, Need, needs};
use serde_json::Value;

use crate::terminal::say;

/// Tests give every operator a ServiceAccount whose name ends like this, and any other account another name.
const ACCOUNT: &str = "coder-operator";

/// A right: API group, resource with its subresource, verb.
type Right = (String, String, String);

/// What the audit log shows of the operators.
#[derive(Debug, Default, PartialEq, Eq)]
struct Usage {
    used: BTreeSet<Right>,
    /// The right that was missing, with the API server's words for the first request.
    refused: BTreeMap<Right, String>,
}

impl Usage {
    /// Rights that operators asked for and never had. One that was refused only at times is in the table: its binding had not
    /// come yet, or went before its operator, as in an uninstallation.
    fn missing(&self) -> impl Iterator<Item = (&Right, &String)> {
        self.refused.iter().filter(|(right, _)| !self.used.contains(*right))
    }
}

/// Reports rights that operators lack, and after a whole run the rules that no request used. Returns whether there are none.
pub(crate) fn check(log: &std::path::Path, is_whole_run: bool) -> Result<bool> {
    let file = std::fs::File::open(log).with_context(|| format!("open the audit log {}", log.display()))?;
    let usage = read(std::io::BufReader::new(file)).context("read the audit log")?;
    let unused = if is_whole_run { unused(&needs(), &usage.used) } else { Vec::new() };
    let missing: Vec<_> = usage.missing().collect();
    for row in &unused {
        say(&format!("rbac: no request of this run needed {row}: remove it from the table in engine::rbac"));
    }
    for ((group, resource, verb), words) in &missing {
        say(&format!("rbac: {verb} of {resource} ({}) was refused: {words}", shown(group)));
    }
    if is_whole_run && unused.is_empty() && missing.is_empty() {
        say(&format!("rbac: {} rights used, every rule needed, none missing", usage.used.len()));
    }
    Ok(unused.is_empty() && missing.is_empty())
}

fn shown(group: &str) -> &str {
    if group.is_empty() { "core" } else { group }
}

fn read(lines: impl BufRead) -> std::io::Result<Usage> {
    let mut usage = Usage::default();
    for line in lines.lines() {
        let line = line?;
        // Most lines are of the API server's own parts; parsing each would take longer than the tests' last second.
        if line.contains(ACCOUNT)
            && let Ok(entry) = serde_json::from_str::<Value>(&line)
        {
            add(&mut usage, &entry);
        }
    }
    Ok(usage)
}

fn add(usage: &mut Usage, entry: &Value) {
    let user = text(&entry["user"]["username"]);
    if !user.starts_with("system:serviceaccount:") || !user.ends_with(ACCOUNT) {
        return;
    }
    let object = &entry["objectRef"];
    let mut resource = text(&object["resource"]).to_owned();
    if let Some(part) = object["subresource"].as_str() {
        resource = format!("{resource}/{part}");
    }
    let right = |verb: &str| (text(&object["apiGroup"]).to_owned(), resource.clone(), verb.to_owned());
    let verb = text(&entry["verb"]);
    let status = &entry["responseStatus"];
    let words = text(&status["message"]);
    let is_forbidden = entry["annotations"]["authorization.k8s.io/decision"] == "forbid";
    if is_forbidden || words.contains("attempting to grant RBAC permissions not currently held") {
        usage.refused.entry(right(verb)).or_insert_with(|| format!("{user}: {words}"));
        return;
    }
    usage.used.insert(right(verb));
    // An apply of an object that did not exist is a patch to the audit log, and needed both rights.
    if verb == "patch" && status["code"] == 201 {
        usage.used.insert(right("create"));
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Verbs of the table that no request used. The resources of a row are served by the same code, so one of them is enough.
fn unused(table: &[Need], used: &BTreeSet<Right>) -> Vec<String> {
    let mut found = BTreeSet::new();
    for Need { group, resources, verbs, evidence, .. } in table {
        if *evidence != Evidence::Requests {
            continue;
        }
        for verb in verbs {
            let is_used = |it: &String| used.contains(&(group.clone(), it.clone(), verb.clone()));
            if !resources.iter().any(is_used) {
                found.insert(format!("{verb} of {} ({})", resources.join(", "), shown(group)));
            }
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(user: &str, verb: &str, resource: &str, code: u16, decision: &str) -> Value {
        json!({"user": {"username": user}, "verb": verb,
            "objectRef": {"resource": resource, "apiGroup": "apps", "namespace": "platform"},
            "responseStatus": {"code": code, "message": "words"},
            "annotations": {"authorization.k8s.io/decision": decision}})
    }

    const OPERATOR: &str = "system:serviceaccount:platform:coder-operator";

    fn usage(entries: &[Value]) -> Usage {
        let log = entries.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        read(log.as_bytes()).unwrap()
    }

    fn right(verb: &str) -> Right {
        ("apps".to_owned(), "deployments".to_owned(), verb.to_owned())
    }

    fn need(verbs: &[&str], evidence: Evidence) -> Need {
        let any = needs().remove(0);
        Need {
            group: "apps".to_owned(),
            resources: vec!["deployments".to_owned(), "replicasets".to_owned()],
            verbs: verbs.iter().map(|it| (*it).to_owned()).collect(),
            evidence,
            ..any
        }
    }

    #[test]
    fn requests_of_operators_count_and_those_of_others_do_not() {
        let admin = entry("bed-admin", "delete", "deployments", 200, "allow");
        let pod =
            entry("system:serviceaccount:platform:coder-operator-main", "watch", "deployments", 200, "allow");
        let mut named = entry("bed-admin", "watch", "deployments", 200, "allow");
        named["objectRef"]["name"] = json!("coder-operator");
        let operator = entry(OPERATOR, "get", "deployments", 404, "allow");
        assert_eq!(usage(&[admin, pod, named, operator]).used, BTreeSet::from([right("get")]));
    }

    #[test]
    fn apply_that_creates_needs_both_verbs() {
        let made = entry(OPERATOR, "patch", "deployments", 201, "allow");
        assert_eq!(usage(&[made]).used, BTreeSet::from([right("create"), right("patch")]));
        let changed = entry(OPERATOR, "patch", "deployments", 200, "allow");
        assert_eq!(usage(&[changed]).used, BTreeSet::from([right("patch")]));
    }

    #[test]
    fn refused_requests_are_reported_once_with_the_answer() {
        let refused = entry(OPERATOR, "delete", "deployments", 403, "forbid");
        let mut escalation = entry(OPERATOR, "patch", "deployments", 403, "allow");
        escalation["responseStatus"]["message"] =
            json!("user is attempting to grant RBAC permissions not currently held");
        // A namespace that is being deleted takes nothing, whoever asks.
        let terminating = entry(OPERATOR, "create", "deployments", 403, "allow");
        let found = usage(&[refused.clone(), refused, escalation, terminating]);
        assert_eq!(found.refused.keys().collect::<Vec<_>>(), [&right("delete"), &right("patch")]);
        assert_eq!(found.refused[&right("delete")], format!("{OPERATOR}: words"));
        assert_eq!(found.used, BTreeSet::from([right("create")]));
    }

    #[test]
    fn right_that_was_refused_only_at_times_is_not_missing() {
        let refused = entry(OPERATOR, "delete", "deployments", 403, "forbid");
        let allowed = entry(OPERATOR, "delete", "deployments", 200, "allow");
        assert_eq!(usage(std::slice::from_ref(&refused)).missing().count(), 1);
        assert_eq!(usage(&[refused, allowed]).missing().count(), 0);
    }

    #[test]
    fn subresources_are_resources_of_their_own() {
        let mut status = entry(OPERATOR, "update", "deployments", 200, "allow");
        status["objectRef"]["subresource"] = json!("status");
        assert_eq!(unused(&[need(&["update"], Evidence::Requests)], &usage(&[status]).used).len(), 1);
    }

    #[test]
    fn unused_verbs_are_named_unless_no_request_can_show_them() {
        let used = BTreeSet::from([right("get")]);
        let table = [
            need(&["get", "list"], Evidence::Requests),
            need(&["update"], Evidence::Granted),
            need(&["patch"], Evidence::NoRequest("a reason")),
        ];
        assert_eq!(unused(&table, &used), ["list of deployments, replicasets (apps)"]);
        let replica_sets = ("apps".to_owned(), "replicasets".to_owned(), "list".to_owned());
        let used = BTreeSet::from([right("get"), replica_sets]);
        assert_eq!(unused(&table, &used), [""; 0]);
    }

    #[test]
    fn rows_without_a_request_stay_few() {
        let excused = needs().into_iter().filter(|it| matches!(it.evidence, Evidence::NoRequest(_)));
        assert!(excused.count() <= 2);
    }
}
