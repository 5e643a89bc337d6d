use std::collections::BTreeSet;

use api::{CoderControlPlane, CoderProvisioner};
use serde_json::{Value, json};

use super::*;
use crate::{
    kinds::{control_plane, provisioner},
    objects::Child,
};

/// Single rights: group, resource, verb.
type Rights = BTreeSet<(String, String, String)>;

fn rights(rules: impl IntoIterator<Item = PolicyRule>) -> Rights {
    let mut found = Rights::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    found.insert((group.clone(), resource.clone(), verb.clone()));
                }
            }
        }
    }
    found
}

/// The rights in the Roles among these objects.
fn in_roles(children: &[Child]) -> Rights {
    let roles = children.iter().filter(|it| it.key.kind == "Role");
    let rules = roles.flat_map(|it| it.object["rules"].as_array().cloned().unwrap_or_default());
    rights(rules.map(|it| serde_json::from_value(it).unwrap()))
}

fn manifest(kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": "coder.com/v1alpha1", "kind": kind,
        "metadata": {"name": "main", "namespace": "platform", "uid": "1"}, "spec": spec})
}

#[test]
fn granted_rights_are_exactly_those_of_the_roles_for_workspaces() {
    let plane: CoderControlPlane = serde_json::from_value(manifest("CoderControlPlane", &json!({}))).unwrap();
    let facts = control_plane::PlaneFacts::default();
    let mut made = in_roles(&control_plane::desire(&plane, &facts).unwrap().children);
    let spec = json!({"controlPlaneRef": {"name": "main"}});
    let daemons: CoderProvisioner = serde_json::from_value(manifest("CoderProvisioner", &spec)).unwrap();
    let facts = provisioner::children::DaemonFacts {
        url: "http://coder".to_owned(),
        image: "coder".to_owned(),
        secret: ("key".to_owned(), "key".to_owned()),
        checksum: String::new(),
        replicas: 1,
        authority: None,
    };
    made.extend(in_roles(&provisioner::children::desire(&daemons, &facts).unwrap()));
    assert!(made.contains(&(String::new(), "pods".to_owned(), "deletecollection".to_owned())));
    let granted = rules(Form::Watched).into_iter().filter(|it| it.is_granted).map(|it| it.policy());
    assert_eq!(rights(granted), made);
}

#[test]
fn namespaces_that_take_workspaces_need_what_is_granted_there_and_no_secrets() {
    let rules = rules(Form::Workspaces);
    let held = rights(rules.iter().map(Rule::policy));
    let granted = rights(rules.iter().filter(|it| it.is_granted).map(Rule::policy));
    let plane = rights(control_plane::children::workspace_rules(true));
    assert_eq!(granted, plane);
    assert!(held.iter().all(|(_, resource, _)| resource != "secrets"), "{held:?}");
    let all = rights(super::rules(Form::Watched).iter().map(Rule::policy));
    assert!(held.is_subset(&all));
}

#[test]
fn rules_hold_no_wildcard_and_no_verb_that_widens_rights() {
    for form in [Form::Watched, Form::Workspaces, Form::Own, Form::Cli] {
        for (group, resource, verb) in rights(rules(form).iter().map(Rule::policy)) {
            let words = [group.as_str(), &resource, &verb];
            assert!(words.iter().all(|it| !it.contains('*')), "{words:?}");
            assert!(!["escalate", "bind", "impersonate"].contains(&verb.as_str()), "{words:?}");
        }
    }
}

#[test]
fn each_resource_is_in_one_rule_of_its_purpose() {
    for form in [Form::Watched, Form::Workspaces, Form::Own, Form::Cli] {
        let mut seen = BTreeSet::new();
        for rule in rules(form) {
            assert!(!rule.reasons.is_empty());
            for resource in rule.resources {
                let place = (rule.group.clone(), resource, rule.names.clone(), rule.is_granted);
                assert!(seen.insert(place.clone()), "{place:?}");
            }
        }
    }
}

#[test]
fn every_kind_is_covered_by_the_table() {
    let held = rights(rules(Form::Watched).iter().map(Rule::policy));
    for ManagedKind { plural, .. } in kinds() {
        for (resource, verb) in [(plural.clone(), "watch"), (format!("{plural}/status"), "update")] {
            let right = (api::GROUP.to_owned(), resource, verb.to_owned());
            assert!(held.contains(&right), "{right:?}");
        }
    }
}

#[test]
fn kinds_that_refer_to_secrets_are_known_by_their_schemas() {
    let referring: Vec<String> =
        kinds().into_iter().filter(|it| !it.secret_fields.is_empty()).map(|it| it.kind).collect();
    assert_eq!(
        referring,
        [
            "CoderAIProvider",
            "CoderControlPlane",
            "CoderProvisioner",
            "CoderProvisionerKey",
            "CoderTemplate",
            "CoderUser"
        ]
    );
    let all = kinds();
    let fields = |kind: &str| all.iter().find(|it| it.kind == kind).unwrap().secret_fields.clone();
    assert_eq!(fields("CoderProvisionerKey"), ["spec.secretKey", "spec.secretName"]);
    for field in ["spec.envFrom", "spec.external", "spec.extraEnv", "spec.imagePullSecrets"] {
        assert!(fields("CoderControlPlane").iter().any(|it| it == field), "{field}");
    }
}
