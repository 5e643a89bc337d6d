use serde_json::{Value, json};

use super::{
    super::{PlaneFacts, desire},
    *,
};
use crate::{
    objects::{
        ChildEffect, ObjectsSituation,
        ownership::{Ownership, holder, is_held},
        plan,
    },
    pipeline::plan::Impact,
    ports::object::Live,
};

fn plane() -> CoderControlPlane {
    serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
        "metadata": {"name": "main", "namespace": "platform", "uid": "1"}, "spec": {}}))
    .unwrap()
}

fn ask(kind: &str, namespace: &str, name: &str, metadata: Value) -> (Ownership, bool) {
    let (plane, key) = (plane(), Key::new("v1", kind, namespace, name));
    let live: ObjectMeta = serde_json::from_value(metadata).unwrap();
    (holder(&plane, &key, Some(&live)), is_held(&plane, &key, &live))
}

fn owned_by(kind: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": true}])
}

fn labels() -> Value {
    json!(names::labels("main"))
}

#[test]
fn an_owner_reference_decides_where_there_is_one() {
    let service = |owners: Value| {
        ask("Service", "platform", "main", json!({"labels": labels(), "ownerReferences": owners}))
    };
    assert_eq!(service(owned_by("CoderControlPlane", "main", "1")), (Ownership::Ours, true));
    let (Ownership::Foreign(words), false) = service(owned_by("Release", "other", "9")) else {
        panic!("not foreign")
    };
    assert!(words.contains("Service platform/main belongs to Release other"), "{words}");
    let (Ownership::Foreign(words), false) = service(owned_by("CoderControlPlane", "main", "0")) else {
        panic!("not foreign")
    };
    assert!(words.contains("an earlier CoderControlPlane main (uid 0)"), "{words}");
}

#[test]
fn what_coder_k8s_kept_last_is_told_apart() {
    let entry =
        json!({"manager": "coder-k8s", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {}});
    let metadata =
        json!({"ownerReferences": owned_by("CoderControlPlane", "main", "1"), "managedFields": [entry]});
    assert_eq!(ask("Service", "platform", "main", metadata), (Ownership::Predecessors, true));
}

#[test]
fn labels_are_enough_to_keep_an_orphan_and_not_to_delete_it() {
    assert_eq!(ask("Service", "platform", "main", json!({"labels": labels()})), (Ownership::Ours, false));
    let mut others = labels();
    others["app.kubernetes.io/instance"] = json!("other");
    let (Ownership::Foreign(_), false) = ask("Service", "platform", "main", json!({"labels": others})) else {
        panic!("not foreign")
    };
}

#[test]
fn what_nobody_marked_is_somebody_elses() {
    let (Ownership::Foreign(words), false) = ask("ServiceAccount", "platform", "default", json!({})) else {
        panic!("not foreign")
    };
    assert!(words.contains("nothing of it was changed") && words.contains("disableCreate"), "{words}");
    let key = Key::new("v1", "ServiceAccount", "platform", "default");
    assert_eq!(holder(&plane(), &key, None), Ownership::Free);
}

#[test]
fn rights_in_other_namespaces_are_known_by_their_marks() {
    let role = names::workspace_role("main", "main", "platform");
    let labels = json!(names::workspace_labels("main", "platform"));
    let marked =
        |uid: &str| json!({"labels": labels, "annotations": {"coder.com/workspace-rbac-owner-uid": uid}});
    assert_eq!(ask("Role", "dev", &role, marked("1")), (Ownership::Ours, true));
    assert!(!ask("Role", "dev", &role, marked("2")).1, "of an earlier control plane of this name");
    assert!(
        !ask("Role", "dev", &role, json!({"annotations": {"coder.com/workspace-rbac-owner-uid": "1"}})).1,
        "a look-alike"
    );
    // Older ones of coder-k8s have no such mark.
    assert_eq!(ask("Role", "dev", &role, json!({"labels": labels})), (Ownership::Ours, true));
    assert!(!ask("Role", "dev", "another", json!({"labels": labels})).1);
    assert!(!ask("Role", "platform", &role, json!({"labels": labels})).1, "here an owner reference would be");
}

#[test]
fn what_is_being_deleted_is_waited_for() {
    let metadata = json!({"deletionTimestamp": "2026-01-02T03:04:05Z", "labels": labels()});
    assert_eq!(ask("Service", "platform", "main", metadata).0, Ownership::Leaving);
}

fn declaring(spec: &Value) -> CoderControlPlane {
    serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
        "metadata": {"name": "main", "namespace": "platform", "uid": "1"}, "spec": spec}))
    .unwrap()
}

fn owner() -> Value {
    json!([{"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "name": "main", "uid": "1", "controller": true}])
}

fn found(kind: &str, namespace: &str, name: &str, mut metadata: Value) -> Live {
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
    let plane = declaring(spec);
    let desired = desire(&plane, &PlaneFacts::default()).unwrap();
    let planned = plan(&ObjectsSituation { keeper: &plane, children: &desired.children, live, rolled_out });
    let words = planned.plan.steps.iter().filter_map(|it| match &it.effect {
        ChildEffect::Delete { key, uid, .. } => Some(format!("delete {key} {uid}")),
        ChildEffect::Release { key, .. } => Some(format!("release {key}")),
        ChildEffect::Create(_) | ChildEffect::Apply { .. } | ChildEffect::Migrate { .. } => None,
    });
    words.collect()
}

#[test]
fn an_empty_cluster_gets_everything_and_nobody_is_interrupted() {
    let plane = declaring(&json!({}));
    let desired = desire(&plane, &PlaneFacts::default()).unwrap();
    let planned =
        plan(&ObjectsSituation { keeper: &plane, children: &desired.children, live: &[], rolled_out: false });
    assert_eq!(planned.plan.steps.len(), desired.children.len());
    assert_eq!(planned.plan.impact(), Some(Impact::Safe));
    assert_eq!(planned.plan.view("main").summary, "5 to create");
}

#[test]
fn a_way_in_that_is_no_longer_declared_goes_if_it_is_ours() {
    let ours = found("Ingress", "platform", "main", json!({"ownerReferences": owner()}));
    assert_eq!(removals(&json!({}), &[ours], false), ["delete Ingress platform/main 9"]);
    let labelled = found("Ingress", "platform", "main", json!({"labels": names::labels("main")}));
    assert_eq!(removals(&json!({}), &[labelled], true), [""; 0], "labels prove nothing");
    let deployment = found("Deployment", "platform", "earlier", json!({"ownerReferences": owner()}));
    assert_eq!(removals(&json!({}), &[deployment], true), [""; 0], "pods are never too many");
}

#[test]
fn rights_go_with_the_namespace_that_is_no_longer_declared() {
    let role = names::workspace_role("main", "main", "platform");
    let mark = |uid: &str| {
        json!({"labels": names::workspace_labels("main", "platform"),
            "annotations": {"coder.com/workspace-rbac-owner-uid": uid}})
    };
    let all = [found("Role", "dev", &role, mark("1")), found("Role", "foreign", &role, mark("2"))];
    assert_eq!(removals(&json!({}), &all, false), [format!("delete Role dev/{role} 9")]);
}

#[test]
fn an_earlier_account_stays_until_its_pods_are_gone() {
    let account = found("ServiceAccount", "platform", "earlier", json!({"ownerReferences": owner()}));
    let spec = json!({"serviceAccount": {"name": "later"}});
    assert_eq!(removals(&spec, std::slice::from_ref(&account), false), [""; 0]);
    assert_eq!(
        removals(&spec, std::slice::from_ref(&account), true),
        ["delete ServiceAccount platform/earlier 9"]
    );
    let spec = json!({"serviceAccount": {"disableCreate": true}});
    assert_eq!(removals(&spec, &[account], true), ["release ServiceAccount platform/earlier"]);
}
