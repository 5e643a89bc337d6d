//! What became of the pods: all there, on their way, or stuck, and then which one and what it says.
//!
//! Only pods of the Deployment's current form are looked at. One of an earlier form that fails is why somebody changed it.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet},
    core::v1::Pod,
};
use kube::{Resource, ResourceExt as _};

use super::crash::{Crash, crash, lives};

/// The annotation that tells the forms of a Deployment apart.
const REVISION: &str = "deployment.kubernetes.io/revision";
/// Reasons of waiting that do not pass by themselves.
const HOPELESS: [&str; 8] = [
    "ImagePullBackOff",
    "ErrImagePull",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
];
/// As much of a message as helps.
const LONGEST: usize = 300;

/// What became of the pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rollout {
    /// Every pod is of the current form and serves.
    Done,
    /// Not yet, and nothing is wrong.
    Progressing(String),
    /// Not without a person, or without something outside that comes back.
    Stuck(String),
}

/// What was seen.
#[derive(Debug)]
pub struct RolloutSeen<'a> {
    pub deployment: &'a Deployment,
    pub replica_sets: &'a [ReplicaSet],
    pub pods: &'a [Pod],
    /// The last line that a pod has logged, by the pod's name, scrubbed.
    pub last_lines: &'a BTreeMap<String, String>,
}

pub fn rollout(seen: &RolloutSeen<'_>) -> Rollout {
    let status = seen.deployment.status.clone().unwrap_or_default();
    if status.observed_generation < seen.deployment.metadata.generation {
        return Rollout::Progressing("the Deployment controller has not observed the change yet".to_owned());
    }
    let wanted = seen.deployment.spec.as_ref().and_then(|it| it.replicas).unwrap_or(1);
    let count = |it: Option<i32>| it.unwrap_or_default();
    let (updated, available) = (count(status.updated_replicas), count(status.available_replicas));
    if updated >= wanted && available >= wanted && count(status.replicas) <= updated {
        return Rollout::Done;
    }
    if let Some(trouble) = trouble(seen, &status) {
        return Rollout::Stuck(trouble);
    }
    let old = count(status.replicas).saturating_sub(updated);
    let old = if old > 0 { format!(", {old} old pods remain") } else { String::new() };
    Rollout::Progressing(format!("{available}/{wanted} pods available, {updated} updated{old}"))
}

/// The first thing that is wrong, with the pod that shows it.
fn trouble(seen: &RolloutSeen<'_>, status: &DeploymentStatus) -> Option<String> {
    let pods = current_pods(seen);
    if let Some(trouble) = pods.iter().find_map(|pod| of_pod(pod, seen.last_lines)) {
        return Some(trouble);
    }
    let condition = |type_: &str, status_: &str| {
        let mut conditions = status.conditions.iter().flatten();
        conditions.find(|it| it.type_ == type_ && it.status == status_)
    };
    let said = |it: &DeploymentCondition| short(it.message.as_deref().unwrap_or_default());
    if let Some(failure) = condition("ReplicaFailure", "True") {
        return Some(format!("no pod can be created: {}", said(failure)));
    }
    let late = condition("Progressing", "False")?;
    let waiting = pods.iter().find(|pod| !is_ready(pod));
    let Some(pod) = waiting else { return Some(said(late)) };
    let line = last_line(pod, seen.last_lines);
    Some(format!("pod {} runs and is not ready: its readiness probe fails{line}", pod.name_any()))
}

fn current_pods<'a>(seen: &RolloutSeen<'a>) -> Vec<&'a Pod> {
    let revision = seen.deployment.annotations().get(REVISION);
    let is_current = |it: &&ReplicaSet| {
        is_controlled_by(*it, seen.deployment.metadata.uid.as_deref())
            && revision.is_some()
            && it.annotations().get(REVISION) == revision
    };
    let Some(set) = seen.replica_sets.iter().find(is_current) else { return Vec::new() };
    let pods = seen.pods.iter().filter(|it| is_controlled_by(*it, set.metadata.uid.as_deref()));
    pods.filter(|it| lives(it)).collect()
}

fn is_controlled_by(object: &impl Resource, uid: Option<&str>) -> bool {
    let mut owners = object.meta().owner_references.iter().flatten();
    owners.any(|it| it.controller == Some(true) && Some(it.uid.as_str()) == uid)
}

fn of_pod(pod: &Pod, last_lines: &BTreeMap<String, String>) -> Option<String> {
    let status = pod.status.as_ref()?;
    let name = pod.name_any();
    let mut conditions = status.conditions.iter().flatten();
    let unscheduled = conditions.find(|it| {
        it.type_ == "PodScheduled" && it.status == "False" && it.reason.as_deref() == Some("Unschedulable")
    });
    if let Some(unscheduled) = unscheduled {
        let message = short(unscheduled.message.as_deref().unwrap_or("no node fits"));
        return Some(format!("pod {name} cannot be scheduled: {message}"));
    }
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten()).find_map(|container| {
        if let Some(crash) = crash(pod, container) {
            let what = if crash.is_repeated {
                "is in a crash loop"
            } else {
                "exited and has not become ready since"
            };
            return Some(format!("pod {name} {what}{}{}", exit(&crash), last_line(pod, last_lines)));
        }
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().filter(|it| HOPELESS.contains(it))?;
        let message = short(waiting.message.as_deref().unwrap_or_default());
        Some(format!("pod {name}: {reason}: {message}"))
    })
}

fn exit(crash: &Crash<'_>) -> String {
    crash.ending.map_or_else(String::new, |it| {
        let reason = it.reason.as_deref().unwrap_or("exited");
        format!(" ({reason}, exit code {})", it.exit_code)
    })
}

fn last_line(pod: &Pod, last_lines: &BTreeMap<String, String>) -> String {
    let line = last_lines.get(&pod.name_any()).map(|it| it.trim()).filter(|it| !it.is_empty());
    line.map_or_else(String::new, |it| format!("; last log line: {}", short(it)))
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

fn short(text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    let cut: String = text.chars().take(LONGEST).collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests;
