use serde_json::{Value, json};

use super::*;

fn deployment(status: &Value) -> Deployment {
    serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "main", "uid": "d", "generation": 2, "annotations": {REVISION: "2"}},
        "spec": {"replicas": 2, "selector": {}, "template": {}}, "status": status}))
    .unwrap()
}

fn set(uid: &str, revision: &str) -> ReplicaSet {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "main", "uid": "d", "controller": true}]);
    serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": {"selector": {}},
        "metadata": {"name": uid, "uid": uid, "annotations": {REVISION: revision}, "ownerReferences": owner}}))
    .unwrap()
}

fn pod(name: &str, set: &str, status: &Value) -> Pod {
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": set, "controller": true}]);
    serde_json::from_value(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "ownerReferences": owner},
        "status": status}),
    )
    .unwrap()
}

fn waiting(reason: &str, message: &str) -> Value {
    let ended = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
    json!({"containerStatuses": [{"name": "coder", "image": "", "imageID": "", "ready": false, "restartCount": 3,
        "state": {"waiting": {"reason": reason, "message": message}}, "lastState": ended}]})
}

/// What is said of a Deployment that is on its way, with this pod of its current form.
fn said(status: &Value, pods: &[Pod]) -> Rollout {
    let lines = [("new".to_owned(), "database is gone\n".to_owned())].into();
    let (deployment, sets) = (deployment(status), [set("old", "1"), set("now", "2")]);
    rollout(&Seen { deployment: &deployment, replica_sets: &sets, pods, last_lines: &lines })
}

fn under_way() -> Value {
    json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1, "availableReplicas": 2})
}

fn stuck(status: &Value) -> String {
    match said(&under_way(), &[pod("new", "now", status)]) {
        Rollout::Stuck(words) => words,
        other => panic!("not stuck: {other:?}"),
    }
}

#[test]
fn done_means_that_every_pod_is_of_the_current_form_and_serves() {
    let status = |observed: i32, replicas: i32, updated: i32, available: i32| json!({"observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated, "availableReplicas": available});
    assert_eq!(said(&status(2, 2, 2, 2), &[]), Rollout::Done);
    for (status, words) in [
        (status(1, 2, 2, 2), "not yet looked at"),
        (status(2, 3, 2, 2), "1 of an earlier form"),
        (status(2, 2, 2, 1), "1 of 2 pods serve"),
        (status(2, 2, 1, 2), "1 are of the current form"),
        (json!({}), "not yet looked at"),
    ] {
        let Rollout::Progressing(said) = said(&status, &[]) else { panic!("{status}") };
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_pod_that_cannot_start_is_named_with_what_it_says() {
    assert_eq!(stuck(&waiting("ImagePullBackOff", "no such tag")), "pod new: ImagePullBackOff: no such tag");
    assert_eq!(
        stuck(&waiting("CreateContainerConfigError", "secret \"db\" not found")),
        "pod new: CreateContainerConfigError: secret \"db\" not found"
    );
    assert_eq!(
        stuck(&waiting("CrashLoopBackOff", "back-off")),
        "pod new ends again and again (Error, exit code 1); its last words: database is gone"
    );
    let condition =
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"});
    assert_eq!(stuck(&json!({"conditions": [condition]})), "pod new finds no node: 0/3 nodes");
}

#[test]
fn a_pod_of_an_earlier_form_or_of_somebody_else_is_no_trouble() {
    let failing = waiting("CrashLoopBackOff", "");
    for set in ["old", "foreign"] {
        let answer = said(&under_way(), &[pod("new", set, &failing)]);
        assert!(matches!(answer, Rollout::Progressing(_)), "{answer:?}");
    }
    let answer = said(&under_way(), &[pod("new", "now", &waiting("ContainerCreating", ""))]);
    assert!(matches!(answer, Rollout::Progressing(_)), "{answer:?}");
}

#[test]
fn a_probe_that_fails_for_too_long_is_told() {
    let mut status = under_way();
    let running = json!({"conditions": [{"type": "Ready", "status": "False"}]});
    let pods = [pod("new", "now", &running)];
    assert!(matches!(said(&status, &pods), Rollout::Progressing(_)), "it may still come");
    status["conditions"] =
        json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]);
    let words = "pod new runs and is not ready: its readiness probe fails; its last words: database is gone";
    assert_eq!(said(&status, &pods), Rollout::Stuck(words.to_owned()));
}

#[test]
fn pods_that_cannot_be_made_are_told_with_the_reason() {
    let mut status = under_way();
    status["conditions"] = json!([{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]);
    assert_eq!(said(&status, &[]), Rollout::Stuck("no pod can be made: exceeded quota".to_owned()));
}

#[test]
fn long_words_are_cut() {
    let words = stuck(&waiting("ErrImagePull", &"ä".repeat(1000)));
    assert!(words.chars().count() < 340 && words.ends_with('…'), "{words}");
}
