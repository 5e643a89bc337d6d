//! How pods end, and what notices when they do.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, WatchEvent, WatchParams},
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{Corner, LIMIT, ask, condition, container, process_of, wait_for, wait_until_gone};

fn looping(trap: &str) -> Value {
    let script = format!("{trap}; echo up; while :; do sleep 0.05; done");
    json!({"name": "main", "image": "bed/host", "command": ["sh", "-c", script]})
}

/// Deletes a pod and returns the last it said of its container.
async fn delete_and_watch(corner: &Corner, name: &str, grace: u32) -> Value {
    let pods: Api<Pod> = corner.api();
    let version = pods.get(name).await.unwrap().resource_version().unwrap();
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut events = pods.watch(&only, &version).await.unwrap().boxed();
    pods.delete(name, &DeleteParams { grace_period_seconds: Some(grace), ..DeleteParams::default() })
        .await
        .unwrap();
    let mut last = Value::Null;
    let gone = async {
        while let Some(event) = events.try_next().await.unwrap() {
            match event {
                WatchEvent::Modified(pod) => last = container(&pod),
                WatchEvent::Deleted(_) => return,
                _ => {}
            }
        }
    };
    timeout(LIMIT, gone).await.unwrap_or_else(|_| panic!("{name} is not gone"));
    last
}

fn is_running(process: i32) -> bool {
    test_kill_process(Pid::from_raw(process).unwrap()).is_ok()
}

#[tokio::test]
async fn a_deleted_pod_may_end_in_its_own_way() {
    let corner = Corner::new("grace").await;
    let trap = "trap 'echo bye > /dev/termination-log; exit 7' TERM";
    let pod = json!({"metadata": {"name": "polite"}, "spec": {"containers": [looping(trap)]}});
    corner.create::<Pod>(pod).await;
    let pod = corner.pod("polite", "ready", |pod| condition(pod, "Ready") == Some("True")).await;
    let process = process_of(&pod).unwrap();
    let last = delete_and_watch(&corner, "polite", 30).await;
    assert_eq!(last["state"]["terminated"]["exitCode"], 7);
    assert_eq!(last["state"]["terminated"]["message"], "bye\n");
    assert!(!is_running(process));
}

#[tokio::test]
async fn a_process_that_will_not_end_is_killed_when_its_time_is_over() {
    let corner = Corner::new("stubborn").await;
    let pod = json!({"metadata": {"name": "stubborn"}, "spec": {"containers": [looping("trap '' TERM")]}});
    corner.create::<Pod>(pod).await;
    let pod = corner.pod("stubborn", "ready", |pod| condition(pod, "Ready") == Some("True")).await;
    let process = process_of(&pod).unwrap();
    let last = delete_and_watch(&corner, "stubborn", 1).await;
    assert_eq!(last["state"]["terminated"]["exitCode"], 137);
    assert!(!is_running(process));
}

#[tokio::test]
async fn a_pod_that_is_deleted_without_grace_leaves_no_process() {
    let corner = Corner::new("force").await;
    let pod = json!({"metadata": {"name": "forced"}, "spec": {"containers": [looping("trap '' TERM")]}});
    corner.create::<Pod>(pod).await;
    let pod = corner.pod("forced", "ready", |pod| condition(pod, "Ready") == Some("True")).await;
    let process = process_of(&pod).unwrap();
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    corner.api::<Pod>().delete("forced", &now).await.unwrap();
    ask("without the process", || async { (!is_running(process)).then_some(()) }).await;
}

#[tokio::test]
async fn a_second_deletion_may_shorten_the_grace() {
    let corner = Corner::new("shorter").await;
    let pod = json!({"metadata": {"name": "slow"}, "spec": {"containers": [looping("trap '' TERM")]}});
    corner.create::<Pod>(pod).await;
    corner.pod("slow", "ready", |pod| condition(pod, "Ready") == Some("True")).await;
    let pods = corner.api::<Pod>();
    pods.delete("slow", &DeleteParams { grace_period_seconds: Some(600), ..DeleteParams::default() })
        .await
        .unwrap();
    pods.delete("slow", &DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::default() })
        .await
        .unwrap();
    wait_until_gone(&pods, "slow").await;
}

#[tokio::test]
async fn a_killed_process_is_noticed_and_started_again() {
    let corner = Corner::new("killed").await;
    let pod = json!({"metadata": {"name": "victim"}, "spec": {"containers": [looping(":")]}});
    corner.create::<Pod>(pod).await;
    let pod = corner.pod("victim", "ready", |pod| condition(pod, "Ready") == Some("True")).await;
    let process = process_of(&pod).unwrap();
    kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
    let again = corner.pod("victim", "ready again", |pod| {
        container(pod)["restartCount"] == 1 && condition(pod, "Ready") == Some("True")
    });
    let again = again.await;
    assert_eq!(container(&again)["lastState"]["terminated"]["signal"], 9);
    assert_ne!(process_of(&again).unwrap(), process);
}

#[tokio::test]
async fn a_deployment_replaces_a_deleted_pod_and_scales() {
    let corner = Corner::new("deploy").await;
    let labels = json!({"app": "web"});
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 1, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [looping(":")]}}}});
    corner.create::<Deployment>(deployment).await;
    let deployments = corner.api::<Deployment>();
    let has = |count: i32| {
        move |it: &Deployment| {
            let status = it.status.as_ref();
            status.is_some_and(|it| {
                it.ready_replicas.unwrap_or(0) == count && it.replicas.unwrap_or(0) == count
            })
        }
    };
    wait_for(&deployments, "web", "available", has(1)).await;
    let pods = corner.api::<Pod>();
    let first = pods.list(&ListParams::default()).await.unwrap().items[0].name_any();
    pods.delete(&first, &DeleteParams::default()).await.unwrap();
    wait_until_gone(&pods, &first).await;
    wait_for(&deployments, "web", "available again", has(1)).await;

    let scale = kube::api::Patch::Merge(json!({"spec": {"replicas": 0}}));
    deployments.patch_scale("web", &kube::api::PatchParams::default(), &scale).await.unwrap();
    wait_for(&deployments, "web", "scaled to nothing", has(0)).await;
}
