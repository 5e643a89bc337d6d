//! One pod's life on the node: volumes, init containers, containers, and a status that follows them.

use std::{collections::BTreeMap, net::Ipv4Addr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container as ContainerSpec, Pod, PodStatus};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;
use tokio::{sync::watch, task::JoinSet};

use super::{
    Node,
    container::{Container, Restart, stopped},
    environment::Facts,
    events::Severity,
    status::{Moment, patch_of, pod_status},
    view::{Report, View, Views},
    volumes,
};

/// How long a status that could not be written, or a volume that is not there, is left alone.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A pod and the tools to run it.
struct Worker {
    node: Arc<Node>,
    pod: Arc<Pod>,
    folder: PathBuf,
    address: Ipv4Addr,
    views: Arc<watch::Sender<Views>>,
    stop: watch::Receiver<Option<Duration>>,
}

/// Runs a pod from when it is bound to this node until it is gone from the API.
pub(super) async fn run(node: Arc<Node>, mut pods: watch::Receiver<Arc<Pod>>) {
    let pod = Arc::clone(&pods.borrow_and_update());
    let address = node.options.addresses.next_address();
    let folder = node.options.folder.join(pod.uid().unwrap_or_default());
    let views = Arc::new(watch::Sender::new(first_views(&pod)));
    let (stop, stop_receiver) = watch::channel(None);
    let worker = Worker {
        node: Arc::clone(&node),
        pod: Arc::clone(&pod),
        folder: folder.clone(),
        address,
        views: Arc::clone(&views),
        stop: stop_receiver,
    };
    let mut changes = views.subscribe();
    let mut reporter = StatusReporter { node: Arc::clone(&node), address, sent: None };
    // A task of its own, so that an API server which takes its time stops no probe and no clock. It is aborted, and the
    // processes go on, when this future is dropped: that is a node without its agent.
    let mut life = JoinSet::new();
    if !is_finished(&pod) {
        life.spawn(worker.live());
    }
    loop {
        let pod = Arc::clone(&pods.borrow_and_update());
        if let Some(grace) = deletion_grace(&pod) {
            stop.send_if_modified(|it| shorten(it, grace));
            if life.is_empty() {
                break;
            }
        }
        let seen = changes.borrow_and_update().clone();
        let written = is_finished(&pod) || reporter.write(&pod, &seen).await;
        tokio::select! {
            Some(_) = life.join_next() => {}
            _ = changes.changed() => {}
            changed = pods.changed() => if changed.is_err() {
                // Somebody deleted the pod without waiting for us; its processes have no time left.
                stop.send_replace(Some(Duration::ZERO));
                life.join_all().await;
                break;
            },
            () = tokio::time::sleep(TRY_AGAIN), if !written => {}
        }
    }
    let pod = Arc::clone(&pods.borrow());
    if !is_finished(&pod) {
        let seen = changes.borrow().clone();
        reporter.write(&pod, &seen).await;
    }
    std::fs::remove_dir_all(&folder).ok();
    forget(&node, &pod).await;
}

/// Sets the time that is left, unless there is less already.
fn shorten(left: &mut Option<Duration>, grace: Duration) -> bool {
    let shorter = left.is_none_or(|left| grace < left);
    if shorter {
        *left = Some(grace);
    }
    shorter
}

impl Worker {
    async fn live(self) {
        let mut stop = self.stop.clone();
        let Some(volumes) = self.mounted(&mut stop).await else {
            return;
        };
        let volumes = Arc::new(volumes);
        let spec = self.pod.spec.clone().unwrap_or_default();
        let policy = Restart::of(spec.restart_policy.as_deref());
        let init_policy = if policy == Restart::Never { Restart::Never } else { Restart::OnFailure };
        for init in spec.init_containers.into_iter().flatten() {
            if self.container(init, init_policy, &volumes).live().await != Some(0) {
                return;
            }
        }
        for container in &spec.containers {
            self.report(&container.name).waiting("ContainerCreating", "");
        }
        let containers = spec.containers.into_iter().map(|it| self.container(it, policy, &volumes).live());
        join_all(containers).await;
    }

    /// The volumes, once everything that they come from exists; nothing when the pod is deleted before.
    async fn mounted(
        &self,
        stop: &mut watch::Receiver<Option<Duration>>,
    ) -> Option<BTreeMap<String, PathBuf>> {
        loop {
            let facts = Facts {
                pod: &self.pod,
                address: self.address,
                node: &self.node.options.name,
                node_address: self.node.address(),
            };
            match volumes::mount(&self.node.options.client, &facts, &self.folder.join("volumes")).await {
                Ok(places) => return Some(places),
                Err(error) => {
                    self.node
                        .events
                        .tell(&self.pod, Severity::Warning, "FailedMount", &format!("{error:#}"))
                        .await;
                }
            }
            tokio::select! {
                _ = stopped(stop) => return None,
                () = tokio::time::sleep(TRY_AGAIN) => {}
            }
        }
    }

    fn container(
        &self,
        spec: ContainerSpec,
        restart: Restart,
        volumes: &Arc<BTreeMap<String, PathBuf>>,
    ) -> Container {
        Container {
            node: Arc::clone(&self.node),
            pod: Arc::clone(&self.pod),
            restart,
            folder: self.folder.clone(),
            address: self.address,
            volumes: Arc::clone(volumes),
            report: self.report(&spec.name),
            stop: self.stop.clone(),
            spec,
        }
    }

    fn report(&self, container: &str) -> Report {
        Report {
            container: container.to_owned(),
            pod: Arc::clone(&self.pod),
            views: Arc::clone(&self.views),
            events: self.node.events.clone(),
        }
    }
}

/// Writes a pod's status, when it is another one than before.
struct StatusReporter {
    node: Arc<Node>,
    address: Ipv4Addr,
    /// What was written last, and the version that made of the pod.
    sent: Option<(PodStatus, Option<u64>)>,
}

impl StatusReporter {
    /// Whether the API server has the status now.
    async fn write(&mut self, pod: &Pod, views: &Views) -> bool {
        let before = self.sent.as_ref().map(|(status, _)| status).or(pod.status.as_ref());
        let moment =
            Moment { address: self.address, host: &self.node.address(), before, now: Timestamp::now() };
        let status = pod_status(pod, views, &moment);
        if self
            .sent
            .as_ref()
            .is_some_and(|(sent, version)| *sent == status && !overwritten(pod, sent, *version))
        {
            return true;
        }
        match self.send(pod, &status).await {
            Ok(version) => {
                self.sent = Some((status, version));
                true
            }
            Err(_) => false,
        }
    }

    /// Sends the status; a pod that has gone, or made place for another of its name, has none any more.
    async fn send(&self, pod: &Pod, status: &PodStatus) -> Result<Option<u64>> {
        let pods =
            Api::<Pod>::namespaced(self.node.options.client.clone(), &pod.namespace().unwrap_or_default());
        // The uid makes it a conflict, and not a write, when another pod of that name has come.
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": patch_of(status)}));
        match pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await {
            Ok(written) => Ok(version(&written)),
            Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(None),
            Err(kube::Error::Api(answer)) if answer.code == 409 && answer.message.contains("uid") => Ok(None),
            Err(error) => Err(error).context("write a pod's status"),
        }
    }
}

/// Whether somebody else has said something different of the pod's readiness since we last did: the controller
/// manager does, when it takes the node for dead.
fn overwritten(pod: &Pod, sent: &PodStatus, sent_version: Option<u64>) -> bool {
    let ready = |status: &PodStatus| {
        let mut conditions = status.conditions.iter().flatten();
        conditions.find(|it| it.type_ == "Ready").map(|it| it.status.clone())
    };
    version(pod) > sent_version && pod.status.as_ref().is_some_and(|status| ready(status) != ready(sent))
}

fn version(pod: &Pod) -> Option<u64> {
    pod.resource_version()?.parse().ok()
}

/// Removes the pod from the API: its processes are gone.
async fn forget(node: &Node, pod: &Pod) {
    let pods = Api::<Pod>::namespaced(node.options.client.clone(), &pod.namespace().unwrap_or_default());
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: pod.uid(), resource_version: None }),
        ..DeleteParams::default()
    };
    loop {
        match pods.delete(&pod.name_any(), &parameters).await {
            Ok(_) => return,
            Err(kube::Error::Api(answer)) if answer.code == 404 || answer.code == 409 => return,
            Err(_) => tokio::time::sleep(TRY_AGAIN).await,
        }
    }
}

fn first_views(pod: &Pod) -> Views {
    let spec = pod.spec.iter();
    let init: Vec<&ContainerSpec> = spec.clone().flat_map(|it| it.init_containers.iter().flatten()).collect();
    let reason = if init.is_empty() { "ContainerCreating" } else { "PodInitializing" };
    let all = init.into_iter().chain(spec.flat_map(|it| &it.containers));
    all.map(|container| (container.name.clone(), View::waiting(reason, ""))).collect()
}

fn deletion_grace(pod: &Pod) -> Option<Duration> {
    pod.metadata.deletion_timestamp.as_ref()?;
    let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Whether the pod ran to its end in an earlier life of this node, or was ended by somebody else.
fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(version: &str, ready: &str) -> Pod {
        let conditions = json!([{"type": "Ready", "status": ready}]);
        let pod = json!({"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_later_word_of_somebody_else_is_noticed_and_an_earlier_one_of_ours_is_not() {
        let sent = pod("9", "True").status.unwrap();
        assert!(overwritten(&pod("10", "False"), &sent, Some(9)));
        assert!(!overwritten(&pod("10", "True"), &sent, Some(9)));
        assert!(!overwritten(&pod("8", "False"), &sent, Some(9)), "the watch has not caught up");
    }

    #[test]
    fn the_time_that_is_left_only_gets_shorter() {
        let mut left = None;
        assert!(shorten(&mut left, Duration::from_secs(30)));
        assert!(!shorten(&mut left, Duration::from_mins(1)));
        assert!(shorten(&mut left, Duration::from_secs(1)));
        assert_eq!(left, Some(Duration::from_secs(1)));
    }
}
