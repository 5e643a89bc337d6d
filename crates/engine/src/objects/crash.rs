//! Containers that end and are started again. What a kubelet shows of one changes with every breath of it (it waits, it runs, it
//! has ended); what is wrong with it does not, and neither may what is said of it.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};

/// Whether a pod is there to stay. One that was evicted is listed for long, and its Deployment has another one.
pub(super) fn lives(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Failed" | "Succeeded"))
}

/// A container that has ended, and has not been ready since.
#[derive(Debug, PartialEq)]
pub(super) struct Crash<'a> {
    /// How it ended the last time.
    pub(super) ending: Option<&'a ContainerStateTerminated>,
    /// Whether its last words are those of the life before the one that is shown.
    pub(super) is_before: bool,
    /// Whether it has ended more than once, as far as can be seen.
    pub(super) is_repeated: bool,
}

pub(super) fn crash<'a>(pod: &Pod, container: &'a ContainerStatus) -> Option<Crash<'a>> {
    let state = container.state.as_ref()?;
    let reason = state.waiting.as_ref().and_then(|it| it.reason.as_deref());
    let backs_off = reason == Some("CrashLoopBackOff");
    let was_restarted = container.restart_count > 0 && !container.ready;
    let runs_again = was_restarted && state.running.is_some() && !was_ready_since(pod, container);
    let has_ended_again = was_restarted && state.terminated.is_some();
    let before = container.last_state.as_ref().and_then(|it| it.terminated.as_ref());
    (backs_off || runs_again || has_ended_again).then(|| Crash {
        ending: state.terminated.as_ref().or(before),
        is_before: !has_ended_again,
        is_repeated: backs_off || container.restart_count > 1,
    })
}

/// Whether the pod was ready in the life that its container has now: then it is not the end before that keeps it from it.
fn was_ready_since(pod: &Pod, container: &ContainerStatus) -> bool {
    let mut conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let ready = conditions.find(|it| it.type_ == "Ready");
    let changed = ready.and_then(|it| it.last_transition_time.as_ref());
    let running = container.state.as_ref().and_then(|it| it.running.as_ref());
    let started = running.and_then(|it| it.started_at.as_ref());
    matches!((changed, started), (Some(changed), Some(started)) if changed.0 > started.0)
}
