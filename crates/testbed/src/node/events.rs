//! Events about pods, as the kubelet writes them.

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::{
    Resource as _,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

/// Whether something is wrong.
#[derive(Debug, Clone, Copy)]
pub(super) enum Severity {
    Normal,
    Warning,
}

/// Where events go.
#[derive(Clone)]
pub(super) struct Events {
    recorder: Recorder,
}

impl Events {
    pub(super) fn new(client: kube::Client, node: &str) -> Self {
        let reporter = Reporter { controller: "bed-node".to_owned(), instance: Some(node.to_owned()) };
        Self { recorder: Recorder::new(client, reporter) }
    }

    /// Writes an event. One that cannot be written, as in a namespace that is going, is nobody's loss.
    pub(super) async fn tell(&self, pod: &Pod, severity: Severity, reason: &str, note: &str) {
        let event = Event {
            type_: match severity {
                Severity::Normal => EventType::Normal,
                Severity::Warning => EventType::Warning,
            },
            reason: reason.to_owned(),
            note: Some(note.chars().take(1000).collect()),
            action: reason.to_owned(),
            secondary: None,
        };
        let about: ObjectReference = pod.object_ref(&());
        self.recorder.publish(&event, &about).await.ok();
    }
}
