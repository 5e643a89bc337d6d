//! What the pods' account may do so that templates can make workspaces: a Role and a `RoleBinding` per namespace.
//!
//! The operator's rights are wider than those of whoever writes a manifest. So a namespace has to consent by its label, and rules
//! beyond the usual ones have to be allowed to the operator by whoever started it.

use std::collections::BTreeMap;

use api::{CoderControlPlane, Reason, annotation, label};
use k8s_openapi::{
    api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt as _;

use super::{PlaneFacts, service_account};
use crate::{
    kinds::control_plane::names,
    objects::{Child, Keeper as _, WORKSPACES_ROLE, child},
    pipeline::outcome::{Blocked, Invalid},
};

const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
/// Verbs by which rights grow. Whatever is allowed, they are not.
const GROWING: [&str; 3] = ["escalate", "bind", "impersonate"];

pub(super) fn desire(
    plane: &CoderControlPlane,
    facts: &PlaneFacts,
    notices: &mut Vec<Blocked>,
) -> Result<Vec<Child>, Invalid> {
    let spec = plane.spec.rbac.clone().unwrap_or_default();
    if !spec.has_workspace_perms() {
        return Ok(Vec::new());
    }
    let namespaces = namespaces(plane, facts, notices)?;
    let mut rules = workspace_rules(spec.enables_deployments());
    for (index, extra) in spec.extra_rules.iter().flatten().enumerate() {
        match allows(&facts.allowed_rules, extra) {
            Ok(()) => rules.push(extra.clone()),
            Err(why) => notices.push(Blocked {
                reason: Reason::RulesNotAllowed,
                message: format!("spec.rbac.extraRules[{index}] is not granted: {why}"),
            }),
        }
    }
    Ok(namespaces.iter().flat_map(|it| for_namespace(plane, it, &rules)).collect())
}

/// The rights that templates need to make workspaces.
pub(crate) fn workspace_rules(deployments: bool) -> Vec<PolicyRule> {
    let mut rules = vec![rule("", "pods"), rule("", "persistentvolumeclaims")];
    if deployments {
        rules.push(rule("apps", "deployments"));
    }
    rules
}

/// Whether a namespace with these labels consents to take workspaces from a control plane.
pub fn consents(plane: &CoderControlPlane, labels: &BTreeMap<String, String>) -> bool {
    labels.get(label::WORKSPACES_FROM).is_some_and(|it| Some(it) == plane.metadata.namespace.as_ref())
}

/// The namespaces that take workspaces: the control plane's own, and those of the declared ones that consent.
fn namespaces(
    plane: &CoderControlPlane,
    facts: &PlaneFacts,
    notices: &mut Vec<Blocked>,
) -> Result<Vec<String>, Invalid> {
    let own = plane.namespace().unwrap_or_default();
    let mut found = vec![own.clone()];
    let declared = plane.spec.rbac.iter().flat_map(|it| it.workspace_namespaces.iter().flatten());
    for (index, namespace) in declared.enumerate() {
        let namespace = namespace.trim();
        if namespace.is_empty() {
            return Err(Invalid::new(
                &format!("spec.rbac.workspaceNamespaces[{index}]"),
                "must be the name of a namespace",
            ));
        }
        if found.iter().any(|it| it == namespace) {
            continue;
        }
        if facts.consenting.contains(namespace) {
            found.push(namespace.to_owned());
        } else if let Some(answer) = facts.unreadable.get(namespace) {
            notices.push(Blocked {
                reason: Reason::NotPermitted,
                message: format!(
                    "namespace {namespace} gets no permissions for workspaces: the operator may not read it: {answer}. Apply \
                     {WORKSPACES_ROLE} there"
                ),
            });
        } else {
            notices.push(Blocked {
                reason: Reason::NoConsent,
                message: format!(
                    "namespace {namespace} does not accept workspaces: label it {}={own}",
                    label::WORKSPACES_FROM
                ),
            });
        }
    }
    Ok(found)
}

fn for_namespace(plane: &CoderControlPlane, namespace: &str, rules: &[PolicyRule]) -> [Child; 2] {
    let (name, own) = (plane.name_any(), plane.namespace().unwrap_or_default());
    let account = service_account::name(plane);
    let metadata = |object: String| ObjectMeta {
        name: Some(object),
        namespace: Some(namespace.to_owned()),
        labels: Some(names::workspace_labels(&name, &own)),
        annotations: Some(BTreeMap::from([(
            annotation::WORKSPACE_RBAC_OWNER.to_owned(),
            plane.uid().unwrap_or_default(),
        )])),
        // An owner in another namespace would be taken for one that is gone.
        owner_references: (namespace == own).then(|| vec![plane.owner()]),
        ..ObjectMeta::default()
    };
    let role = names::workspace_role(&account, &name, &own);
    let binding = RoleBinding {
        metadata: metadata(names::workspace_binding(&account, &name, &own)),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "Role".to_owned(),
            name: role.clone(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: account,
            namespace: Some(own.clone()),
            api_group: None,
        }]),
    };
    let role = Role { metadata: metadata(role), rules: Some(rules.to_vec()) };
    [child(&role, "permissions for workspaces"), child(&binding, "permission to create workspaces")]
}

fn rule(group: &str, resource: &str) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: VERBS.map(str::to_owned).to_vec(),
        ..PolicyRule::default()
    }
}

/// Whether a rule is one that a Role can have and that lets nobody grow.
pub fn check_rule(rule: &PolicyRule) -> Result<(), String> {
    if rule.non_resource_urls.iter().flatten().next().is_some() {
        return Err("a Role cannot grant nonResourceURLs".to_owned());
    }
    let has_none = |list: &Option<Vec<String>>| list.iter().flatten().next().is_none();
    let lacks = [
        ("apiGroups", has_none(&rule.api_groups)),
        ("resources", has_none(&rule.resources)),
        ("verbs", rule.verbs.is_empty()),
    ];
    if let Some((field, _)) = lacks.into_iter().find(|(_, is_missing)| *is_missing) {
        return Err(format!("it names no {field}, so it grants nothing"));
    }
    match rule.verbs.iter().find(|it| GROWING.contains(&it.as_str())) {
        Some(verb) => Err(format!("the verb {verb} allows privilege escalation")),
        None => Ok(()),
    }
}

/// Whether everything that a rule grants is allowed, by one rule or by several together.
fn allows(allowed: &[PolicyRule], wanted: &PolicyRule) -> Result<(), String> {
    check_rule(wanted)?;
    if wanted.verbs.iter().any(|it| it == "*") {
        return Err("the verb * allows privilege escalation: name the verbs that are needed".to_owned());
    }
    for group in wanted.api_groups.iter().flatten() {
        for resource in wanted.resources.iter().flatten() {
            for verb in &wanted.verbs {
                if !allowed.iter().any(|it| grants(it, wanted, group, resource, verb)) {
                    let group = if group.is_empty() { "core" } else { group };
                    return Err(format!(
                        "the operator was not started to allow {verb} of {resource} ({group}), see --allow-rules"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// As the API server reads rules: a resource does not stand for its subresources, `*/log` stands for every one of that name.
fn grants(allowed: &PolicyRule, wanted: &PolicyRule, group: &str, resource: &str, verb: &str) -> bool {
    let has = |list: &[String], it: &str| list.iter().any(|held| held == it || held == "*");
    let named = allowed.resource_names.as_deref().unwrap_or_default();
    let wanted_names = wanted.resource_names.as_deref().unwrap_or_default();
    let names_fit =
        named.is_empty() || (!wanted_names.is_empty() && wanted_names.iter().all(|it| named.contains(it)));
    let resources = allowed.resources.as_deref().unwrap_or_default();
    let any_parent = resource.split_once('/').map(|(_, part)| format!("*/{part}"));
    names_fit
        && check_rule(allowed).is_ok()
        && has(allowed.api_groups.as_deref().unwrap_or_default(), group)
        && (has(resources, resource) || any_parent.is_some_and(|it| resources.contains(&it)))
        && has(&allowed.verbs, verb)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(rule: &Value) -> PolicyRule {
        serde_json::from_value(rule.clone()).unwrap()
    }

    fn ask(allowed: &[Value], wanted: &Value) -> Result<(), String> {
        let allowed: Vec<PolicyRule> = allowed.iter().map(of).collect();
        allows(&allowed, &of(wanted))
    }

    fn rule_for(group: &str, resource: &str, verbs: &[&str]) -> Value {
        json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
    }

    #[test]
    fn a_rule_is_granted_only_where_all_of_it_is_allowed() {
        let allowed = [
            rule_for("batch", "jobs", &["get", "create"]),
            json!({"apiGroups": [""], "resources": ["services", "secrets"], "verbs": ["*"], "resourceNames": ["a"]}),
        ];
        let jobs = |verbs: &[&str]| ask(&allowed, &rule_for("batch", "jobs", verbs));
        assert_eq!(jobs(&["get", "create"]), Ok(()));
        assert!(jobs(&["get", "delete"]).unwrap_err().contains("delete of jobs (batch)"));
        let secrets = |names: &[&str]| {
            let mut rule = rule_for("", "secrets", &["get"]);
            rule["resourceNames"] = json!(names);
            ask(&allowed, &rule)
        };
        assert_eq!(secrets(&["a"]), Ok(()));
        assert!(secrets(&["a", "b"]).unwrap_err().contains("get of secrets (core)"));
        assert!(secrets(&[]).is_err(), "all of them are more than one");
        // Two rules together allow what neither does alone.
        let both = json!({"apiGroups": ["batch", ""], "resources": ["jobs"], "verbs": ["get"]});
        assert!(ask(&allowed, &both).unwrap_err().contains("get of jobs (core)"));
        let more = [allowed[0].clone(), rule_for("", "jobs", &["get"])];
        assert_eq!(ask(&more, &both), Ok(()));
    }

    #[test]
    fn a_wildcard_allows_what_it_stands_for_and_is_itself_allowed_only_by_one() {
        let everything = [rule_for("*", "*", &["*"])];
        assert_eq!(ask(&everything, &rule_for("batch", "jobs", &["get"])), Ok(()));
        assert_eq!(ask(&everything, &rule_for("", "pods/log", &["get"])), Ok(()));
        assert_eq!(ask(&everything, &rule_for("*", "*", &["get"])), Ok(()));
        let logs = [rule_for("", "*/log", &["get"])];
        assert_eq!(ask(&logs, &rule_for("", "pods/log", &["get"])), Ok(()));
        let pods = [rule_for("", "pods", &["get"])];
        for (allowed, wanted) in [
            (&pods, rule_for("", "pods/log", &["get"])),
            (&pods, rule_for("", "*", &["get"])),
            (&pods, rule_for("*", "pods", &["get"])),
            (&logs, rule_for("", "pods", &["get"])),
            (&logs, rule_for("", "pods/exec", &["get"])),
        ] {
            assert!(ask(allowed, &wanted).is_err(), "{wanted}");
        }
    }

    #[test]
    fn what_lets_its_holder_grow_is_never_granted_whatever_is_allowed() {
        let everything = [
            rule_for("*", "*", &["*"]),
            rule_for("*", "*", &["escalate", "bind", "impersonate"]),
            json!({"nonResourceURLs": ["*"], "verbs": ["*"]}),
        ];
        for verb in ["*", "escalate", "bind", "impersonate"] {
            let told = ask(&everything, &rule_for("batch", "jobs", &["get", verb])).unwrap_err();
            assert!(told.contains(verb) && told.contains("privilege escalation"), "{told}");
        }
        let urls = json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]});
        assert!(ask(&everything, &urls).unwrap_err().contains("nonResourceURLs"));
    }

    #[test]
    fn a_rule_that_the_api_server_would_not_take_is_left_out_with_the_field_that_it_lacks() {
        let everything = [rule_for("*", "*", &["*"])];
        for field in ["apiGroups", "resources", "verbs"] {
            let mut wanted = rule_for("batch", "jobs", &["get"]);
            wanted[field] = json!([]);
            assert!(ask(&everything, &wanted).unwrap_err().contains(field), "{field}");
        }
    }
}
