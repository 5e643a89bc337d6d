//! A pod's status, from what is known of its containers.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::view::{State, Termination, View, Views};

/// Where and when a status is made.
pub(super) struct Moment<'a> {
    pub(super) address: Ipv4Addr,
    pub(super) host: &'a str,
    /// The status before this one.
    pub(super) before: Option<&'a PodStatus>,
    pub(super) now: Timestamp,
}

/// The status of a pod whose containers look like this.
pub(super) fn pod_status(pod: &Pod, views: &Views, moment: &Moment<'_>) -> PodStatus {
    let Moment { address, host, before, now } = moment;
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|it| it.init_containers.as_deref()).unwrap_or_default();
    let main = spec.map_or(&[] as &[Container], |it| &it.containers);
    let initialized = init.iter().all(|it| views.get(&it.name).is_some_and(has_succeeded));
    let main_views: Vec<&View> = main.iter().filter_map(|it| views.get(&it.name)).collect();
    let unready: Vec<&str> = main
        .iter()
        .filter(|it| !views.get(&it.name).is_some_and(|view| view.ready))
        .map(|it| it.name.as_str())
        .collect();
    let restarts = spec.and_then(|it| it.restart_policy.as_deref());
    let phase = phase(restarts, init.iter().filter_map(|it| views.get(&it.name)), &main_views, initialized);
    let unready_reason = match () {
        () if phase == "Succeeded" => Some(("PodCompleted", String::new())),
        () if phase == "Failed" => Some(("PodFailed", String::new())),
        () if unready.is_empty() => None,
        () => {
            Some(("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" "))))
        }
    };
    let conditions = Conditions { before: *before, now: *now };
    PodStatus {
        phase: Some(phase.to_owned()),
        conditions: Some(vec![
            conditions.make("PodScheduled", None),
            conditions
                .make("Initialized", (!initialized).then(|| ("ContainersNotInitialized", String::new()))),
            conditions.make("ContainersReady", unready_reason.clone()),
            conditions.make("Ready", unready_reason),
        ]),
        container_statuses: Some(main.iter().filter_map(|it| container_status(it, views)).collect()),
        init_container_statuses: (!init.is_empty())
            .then(|| init.iter().filter_map(|it| container_status(it, views)).collect()),
        host_ip: Some((*host).to_owned()),
        host_ips: Some(vec![HostIP { ip: (*host).to_owned() }]),
        pod_ip: Some(address.to_string()),
        pod_ips: Some(vec![PodIP { ip: address.to_string() }]),
        start_time: pod.metadata.creation_timestamp.clone(),
        ..PodStatus::default()
    }
}

/// The patch that makes a status the API's: what a condition no longer says has to be taken back by name.
pub(super) fn patch_of(status: &PodStatus) -> serde_json::Value {
    let mut patch = serde_json::json!(status);
    for condition in patch.get_mut("conditions").and_then(|it| it.as_array_mut()).into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            for field in ["reason", "message"] {
                condition.entry(field).or_insert(serde_json::Value::Null);
            }
        }
    }
    patch
}

fn phase<'a>(
    restart_policy: Option<&str>,
    mut init: impl Iterator<Item = &'a View>,
    main: &[&View],
    initialized: bool,
) -> &'static str {
    if restart_policy == Some("Never") && init.any(|view| has_ended(view) && !has_succeeded(view)) {
        return "Failed";
    }
    if !initialized
        || main.iter().all(|view| matches!(view.state, State::Waiting { .. }) && view.last.is_none())
    {
        return "Pending";
    }
    let ends_for_good = |view: &&View| match restart_policy {
        Some("Never") => has_ended(view),
        Some("OnFailure") => has_succeeded(view),
        _ => false,
    };
    if !main.iter().all(ends_for_good) {
        return "Running";
    }
    if main.iter().all(|view| has_succeeded(view)) { "Succeeded" } else { "Failed" }
}

fn has_ended(view: &View) -> bool {
    matches!(view.state, State::Ended(_))
}

fn has_succeeded(view: &View) -> bool {
    matches!(&view.state, State::Ended(termination) if termination.exit_code == 0)
}

fn container_status(container: &Container, views: &Views) -> Option<ContainerStatus> {
    let view = views.get(&container.name)?;
    let image = container.image.clone().unwrap_or_default();
    let process = match &view.state {
        State::Running { process, .. } => Some(*process),
        State::Ended(termination) => Some(termination.process),
        State::Waiting { .. } => view.last.as_ref().map(|it| it.process),
    };
    Some(ContainerStatus {
        name: container.name.clone(),
        container_id: process.map(container_id),
        image_id: format!("bed://{image}"),
        image,
        ready: view.ready,
        started: Some(view.started),
        restart_count: view.restarts,
        state: Some(container_state(&view.state)),
        // The last end is told once there is a later state.
        last_state: match (&view.state, &view.last) {
            (State::Waiting { .. } | State::Running { .. }, Some(last)) => {
                Some(ContainerState { terminated: Some(terminated(last)), ..ContainerState::default() })
            }
            _ => None,
        },
        ..ContainerStatus::default()
    })
}

fn container_state(state: &State) -> ContainerState {
    let mut told = ContainerState::default();
    match state {
        State::Waiting { reason, message } => {
            told.waiting = Some(ContainerStateWaiting {
                reason: Some((*reason).to_owned()),
                message: Some(message.clone()).filter(|it| !it.is_empty()),
            });
        }
        State::Running { since, .. } => {
            told.running = Some(ContainerStateRunning { started_at: Some(Time(whole_second(*since))) });
        }
        State::Ended(termination) => told.terminated = Some(terminated(termination)),
    }
    told
}

fn terminated(termination: &Termination) -> ContainerStateTerminated {
    let Termination { exit_code, signal, message, started, finished, process } = termination;
    ContainerStateTerminated {
        exit_code: *exit_code,
        signal: *signal,
        reason: Some(if *exit_code == 0 { "Completed" } else { "Error" }.to_owned()),
        message: Some(message.clone()).filter(|it| !it.is_empty()),
        started_at: Some(Time(whole_second(*started))),
        finished_at: Some(Time(whole_second(*finished))),
        container_id: Some(container_id(*process)),
    }
}

fn container_id(process: u32) -> String {
    format!("bed://{process}")
}

/// Conditions whose time moves only when they do.
struct Conditions<'a> {
    before: Option<&'a PodStatus>,
    now: Timestamp,
}

impl Conditions<'_> {
    /// A condition that is true unless there is a reason why not.
    fn make(&self, kind: &str, against: Option<(&str, String)>) -> PodCondition {
        let status = if against.is_none() { "True" } else { "False" };
        let known = self.before.iter().flat_map(|it| it.conditions.iter().flatten());
        let since = known
            .filter(|it| it.type_ == kind && it.status == status)
            .find_map(|it| it.last_transition_time.clone())
            .unwrap_or_else(|| Time(whole_second(self.now)));
        let (reason, message) = against.unzip();
        PodCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.map(str::to_owned),
            message: message.filter(|it| !it.is_empty()),
            last_transition_time: Some(since),
            ..PodCondition::default()
        }
    }
}

/// The API keeps whole seconds: what is compared must not hold more.
fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
