//! The operator's rules compared with what a whole test run used: rules that no request needed, and rights that were missing.
//!
//! The API server's audit log of the shared bed holds every request of every operator that the tests started.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::BufRead,
};

use anyhow::{Context as _, Result};
use engine::rbac::{Evidence, Need, RuleScope, needs};
use serde_json::Value;

use crate::terminal::say;

/// Tests give every operator a ServiceAccount whose name ends like this, and any other account another name.
const ACCOUNT: &str = "coder-operator";

/// What tests add to the name of a watched namespace, for the namespace of an operator that is bound by a ClusterRole.
const OWN: &str = "-operator";

/// A right: API group, resource with its subresource, verb.
type Right = (String, String, String);

/// What the audit log shows of the operators.
#[derive(Debug, Default, PartialEq, Eq)]
struct Usage {
    used: BTreeSet<Right>,
    /// Those that were used in the namespace of the operator's account.
    used_in_own: BTreeSet<Right>,
    /// Those that were used in a namespace that is neither the account's nor the watched one.
    used_in_workspaces: BTreeSet<Right>,
    /// The right that was missing, with the API server's words for the first request.
    refused: BTreeMap<Right, String>,
}

impl Usage {
    /// The rights that were used where a row of the table holds.
    fn used_in(&self, place: RuleScope) -> &BTreeSet<Right> {
        match place {
            RuleScope::Own => &self.used_in_own,
            RuleScope::Workspaces => &self.used_in_workspaces,
            RuleScope::Watched => &self.used,
        }
    }

    fn add_used(&mut self, right: Right, place: RuleScope) {
        match place {
            RuleScope::Own => drop(self.used_in_own.insert(right.clone())),
            RuleScope::Workspaces => drop(self.used_in_workspaces.insert(right.clone())),
            RuleScope::Watched => {}
        }
        self.used.insert(right);
    }

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
    let unused = if is_whole_run { unused(&needs(), &usage) } else { Vec::new() };
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
    let place = place_of(object["namespace"].as_str(), user.split(':').nth(2).unwrap_or_default());
    usage.add_used(right(verb), place);
    // An apply of an object that did not exist is a patch to the audit log, and needed both rights.
    if verb == "patch" && status["code"] == 201 {
        usage.add_used(right("create"), place);
    }
}

/// Where a request in a namespace went, by the namespace of the operator's account. An operator of the shared bed runs in the
/// namespace that it watches, or in one that is called like it with [`OWN`] at the end.
fn place_of(namespace: Option<&str>, own: &str) -> RuleScope {
    match namespace {
        Some(namespace) if namespace == own => RuleScope::Own,
        Some(namespace) if own.strip_suffix(OWN) != Some(namespace) => RuleScope::Workspaces,
        _ => RuleScope::Watched,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Verbs of the table that no request used where the row holds. Our own kinds are served by the same code, so one of a row is
/// enough; every other resource needs a request of its own.
fn unused(table: &[Need], usage: &Usage) -> Vec<String> {
    let mut found = BTreeSet::new();
    for Need { group, resources, verbs, evidence, place, .. } in table {
        if *evidence != Evidence::Requests {
            continue;
        }
        let used = usage.used_in(*place);
        let whole = [resources.as_slice()];
        let each: Vec<&[String]> = resources.chunks(1).collect();
        let parts: &[&[String]] = if group == api::GROUP { &whole } else { &each };
        for (verb, part) in verbs.iter().flat_map(|verb| parts.iter().map(move |part| (verb, part))) {
            let is_used = |it: &String| used.contains(&(group.clone(), it.clone(), verb.clone()));
            if !part.iter().any(is_used) {
                found.insert(format!(
                    "{verb} of {} ({}){}",
                    part.join(", "),
                    shown(group),
                    where_needed(*place)
                ));
            }
        }
    }
    found.into_iter().collect()
}

fn where_needed(place: RuleScope) -> &'static str {
    match place {
        RuleScope::Own => " in the operator's own namespace",
        RuleScope::Workspaces => " in a namespace that takes workspaces",
        RuleScope::Watched => "",
    }
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
        let table =
            [Need { resources: vec!["deployments".to_owned()], ..need(&["update"], Evidence::Requests) }];
        assert_eq!(unused(&table, &usage(&[status])).len(), 1);
    }

    #[test]
    fn unused_verbs_are_named_unless_no_request_can_show_them() {
        let get = entry(OPERATOR, "get", "deployments", 200, "allow");
        let table = [
            need(&["get"], Evidence::Requests),
            need(&["update"], Evidence::Granted),
            need(&["patch"], Evidence::NoRequest("a reason")),
        ];
        assert_eq!(unused(&table, &usage(std::slice::from_ref(&get))), ["get of replicasets (apps)"]);
        let other = entry(OPERATOR, "get", "replicasets", 200, "allow");
        assert_eq!(unused(&table, &usage(&[get, other])), [""; 0]);
    }

    #[test]
    fn one_of_our_own_kinds_is_enough() {
        let mut get = entry(OPERATOR, "get", "codergroups", 200, "allow");
        get["objectRef"]["apiGroup"] = json!(api::GROUP);
        let ours = |resources: &[&str]| Need {
            group: api::GROUP.to_owned(),
            resources: resources.iter().map(|it| (*it).to_owned()).collect(),
            ..need(&["get"], Evidence::Requests)
        };
        let usage = usage(&[get]);
        assert_eq!(unused(&[ours(&["codergroups", "coderorganizations"])], &usage), [""; 0]);
        assert_eq!(unused(&[ours(&["coderorganizations"])], &usage).len(), 1);
    }

    #[test]
    fn right_counts_only_where_it_was_used() {
        let row = |place| Need {
            place,
            resources: vec!["deployments".to_owned()],
            ..need(&["get"], Evidence::Requests)
        };
        let table = [row(RuleScope::Watched), row(RuleScope::Own), row(RuleScope::Workspaces)];
        let at_home = entry(OPERATOR, "get", "deployments", 200, "allow");
        let mut elsewhere = at_home.clone();
        elsewhere["objectRef"]["namespace"] = json!("workspaces");
        let missing = "get of deployments (apps) in a namespace that takes workspaces";
        assert_eq!(unused(&table, &usage(std::slice::from_ref(&at_home))), [missing]);
        let missing = "get of deployments (apps) in the operator's own namespace";
        assert_eq!(unused(&table, &usage(std::slice::from_ref(&elsewhere))), [missing]);
        assert_eq!(unused(&table, &usage(&[at_home, elsewhere])), [""; 0]);
        let beside = "system:serviceaccount:platform-operator:coder-operator";
        let watched = entry(beside, "get", "deployments", 200, "allow");
        assert_eq!(unused(&table, &usage(&[watched])).len(), 2, "neither its own nor one for workspaces");
    }

    #[test]
    fn rows_without_a_request_stay_few() {
        let excused = needs().into_iter().filter(|it| matches!(it.evidence, Evidence::NoRequest(_)));
        assert!(excused.count() <= 3);
    }
}
