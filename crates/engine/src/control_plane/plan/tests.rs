use serde_json::json;

use super::{
    super::{Facts, children, desire, names},
    *,
};

fn plane(spec: &Value) -> CoderControlPlane {
    serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
        "metadata": {"name": "main", "namespace": "platform", "uid": "1"}, "spec": spec}))
    .unwrap()
}

fn owned() -> Value {
    json!([{"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "name": "main", "uid": "1", "controller": true}])
}

fn live(kind: &str, namespace: &str, name: &str, mut metadata: Value) -> Live {
    let api_version = match kind {
        "ServiceAccount" => "v1",
        "Ingress" => "networking.k8s.io/v1",
        "Deployment" => "apps/v1",
        _ => "rbac.authorization.k8s.io/v1",
    };
    metadata["namespace"] = json!(namespace);
    metadata["name"] = json!(name);
    metadata["uid"] = json!("9");
    Live::new(json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})).unwrap()
}

/// What would be removed, in words.
fn removals(spec: &Value, live: &[Live], rolled_out: bool) -> Vec<String> {
    let plane = plane(spec);
    let desired = desire(&plane, &Facts::default()).unwrap();
    let planned = plan(&Situation { plane: &plane, desired: &desired, live, rolled_out });
    let words = planned.plan.steps.iter().filter_map(|it| match &it.effect {
        ChildEffect::Delete { key, uid } => Some(format!("delete {key} {uid}")),
        ChildEffect::Release { key, .. } => Some(format!("release {key}")),
        ChildEffect::Apply { .. } | ChildEffect::Migrate { .. } => None,
    });
    words.collect()
}

#[test]
fn an_empty_cluster_gets_everything_and_nobody_is_interrupted() {
    let plane = plane(&json!({}));
    let desired = desire(&plane, &Facts::default()).unwrap();
    let planned = plan(&Situation { plane: &plane, desired: &desired, live: &[], rolled_out: false });
    assert_eq!(planned.plan.steps.len(), desired.children.len());
    assert_eq!(planned.plan.impact(), Some(Impact::Safe));
    assert_eq!(planned.plan.view("main").summary, "5 to create");
}

#[test]
fn a_way_in_that_is_no_longer_declared_goes_if_it_is_ours() {
    let ours = live("Ingress", "platform", "main", json!({"ownerReferences": owned()}));
    assert_eq!(removals(&json!({}), &[ours], false), ["delete Ingress platform/main 9"]);
    let labelled = live("Ingress", "platform", "main", json!({"labels": names::labels("main")}));
    assert_eq!(removals(&json!({}), &[labelled], true), [""; 0], "labels prove nothing");
    let deployment = live("Deployment", "platform", "earlier", json!({"ownerReferences": owned()}));
    assert_eq!(removals(&json!({}), &[deployment], true), [""; 0], "pods are never too many");
}

#[test]
fn rights_go_with_the_namespace_that_is_no_longer_declared() {
    let role = names::workspace_role("main", "main", "platform");
    let mark = |uid: &str| {
        json!({"labels": names::workspace_labels("main", "platform"),
            "annotations": {"coder.com/workspace-rbac-owner-uid": uid}})
    };
    let all = [live("Role", "dev", &role, mark("1")), live("Role", "foreign", &role, mark("2"))];
    assert_eq!(removals(&json!({}), &all, false), [format!("delete Role dev/{role} 9")]);
}

#[test]
fn an_earlier_account_stays_until_its_pods_are_gone() {
    let account = live("ServiceAccount", "platform", "earlier", json!({"ownerReferences": owned()}));
    let spec = json!({"serviceAccount": {"name": "later"}});
    assert_eq!(removals(&spec, std::slice::from_ref(&account), false), [""; 0]);
    assert_eq!(
        removals(&spec, std::slice::from_ref(&account), true),
        ["delete ServiceAccount platform/earlier 9"]
    );
    let spec = json!({"serviceAccount": {"disableCreate": true}});
    assert_eq!(removals(&spec, &[account], true), ["release ServiceAccount platform/earlier"]);
}

#[test]
fn what_interrupts_people_is_said_to() {
    let key = |kind: &str| children::Key::new("v1", kind, "platform", "main");
    for (kind, field, before, after, expected) in [
        ("Deployment", "spec.template.spec.nodeSelector", json!("a"), json!("b"), Impact::Disruptive),
        ("Deployment", "spec.template.spec.nodeSelector", json!("a"), json!("a"), Impact::Safe),
        ("Deployment", "spec.replicas", json!(1), json!(2), Impact::Safe),
        ("Deployment", "spec.replicas", json!(1), json!(0), Impact::Disruptive),
        ("Deployment", "metadata.labels.a", json!("a"), json!("b"), Impact::Safe),
        ("Service", "spec.ports", json!("a"), json!("b"), Impact::Disruptive),
        ("Service", "metadata.annotations.a", json!("a"), json!("b"), Impact::Safe),
        ("Role", "rules", json!("a"), json!("b"), Impact::Safe),
    ] {
        let changes = [Change { field: field.to_owned(), before, after }];
        assert_eq!(impact(&key(kind), &changes), expected, "{kind} {field}");
    }
}
