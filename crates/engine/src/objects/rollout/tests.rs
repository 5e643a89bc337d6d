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
    rollout(&RolloutSeen { deployment: &deployment, replica_sets: &sets, pods, last_lines: &lines })
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
        (status(1, 2, 2, 2), "has not observed the change"),
        (status(2, 3, 2, 2), "1 old pods remain"),
        (status(2, 2, 2, 1), "1/2 pods available"),
        (status(2, 2, 1, 2), "1 updated"),
        (json!({}), "has not observed the change"),
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
        "pod new is in a crash loop (Error, exit code 1); last log line: database is gone"
    );
    let condition =
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"});
    assert_eq!(stuck(&json!({"conditions": [condition]})), "pod new cannot be scheduled: 0/3 nodes");
}

/// A container that has been started again so often, in one of the states that a kubelet shows one after the other.
fn restarted(count: i32, state: &Value) -> Value {
    let ended = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
    let last = if count > 0 { ended } else { json!({}) };
    let created = json!({"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T10:00:00Z"});
    json!({"conditions": [created], "containerStatuses": [{"name": "coder", "image": "", "imageID": "", "ready": false,
        "restartCount": count, "state": state, "lastState": last}]})
}

#[test]
fn a_pod_that_crashes_is_the_same_trouble_whatever_it_is_at_when_it_is_looked_at() {
    let ended = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
    let running = json!({"running": {"startedAt": "2026-01-01T10:00:30Z"}});
    let backs_off = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}});
    // Nothing is known of the first life, and it may still come.
    let first = said(&under_way(), &[pod("new", "now", &restarted(0, &running))]);
    assert!(matches!(first, Rollout::Progressing(_)), "{first:?}");
    let once =
        "pod new exited and has not become ready since (Error, exit code 1); last log line: database is gone";
    for state in [&running, &ended] {
        assert_eq!(stuck(&restarted(1, state)), once, "{state}");
    }
    let often = "pod new is in a crash loop (Error, exit code 1); last log line: database is gone";
    for (count, state) in [
        (1, &backs_off),
        (2, &running),
        (2, &ended),
        (2, &backs_off),
        (3, &running),
        (3, &ended),
        (3, &backs_off),
    ] {
        assert_eq!(stuck(&restarted(count, state)), often, "{count} {state}");
    }
    // The words are those of the pod, also when the Deployment has lost its patience.
    let mut late = under_way();
    late["conditions"] =
        json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]);
    let late = said(&late, &[pod("new", "now", &restarted(3, &running))]);
    assert_eq!(late, Rollout::Stuck(often.to_owned()));
}

#[test]
fn a_crash_that_is_over_is_no_trouble() {
    let running = json!({"running": {"startedAt": "2026-01-01T10:00:30Z"}});
    // Since then it was ready, and its probe fails for another reason.
    let mut since = restarted(1, &running);
    since["conditions"][0]["lastTransitionTime"] = json!("2026-01-02T00:00:00Z");
    let mut ready = restarted(1, &running);
    ready["containerStatuses"][0]["ready"] = json!(true);
    // Its node has come back, and makes everything anew.
    let anew = restarted(1, &json!({"waiting": {"reason": "ContainerCreating"}}));
    // It was evicted, stays in the list, and another pod has its place.
    let mut evicted = restarted(3, &json!({"terminated": {"exitCode": 137}}));
    evicted["phase"] = json!("Failed");
    for status in [since, ready, anew, evicted] {
        let answer = said(&under_way(), &[pod("new", "now", &status)]);
        assert!(matches!(answer, Rollout::Progressing(_)), "{status}: {answer:?}");
    }
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
    let words = "pod new runs and is not ready: its readiness probe fails; last log line: database is gone";
    assert_eq!(said(&status, &pods), Rollout::Stuck(words.to_owned()));
}

#[test]
fn pods_that_cannot_be_made_are_told_with_the_reason() {
    let mut status = under_way();
    status["conditions"] = json!([{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]);
    assert_eq!(said(&status, &[]), Rollout::Stuck("no pod can be created: exceeded quota".to_owned()));
}

#[test]
fn long_words_are_cut() {
    let words = stuck(&waiting("ErrImagePull", &"ä".repeat(1000)));
    assert!(words.chars().count() < 340 && words.ends_with('…'), "{words}");
}
