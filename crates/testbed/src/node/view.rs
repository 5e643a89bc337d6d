//! What is known of a pod's containers, and who is told when it changes.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

use super::events::{Events, Severity};

/// One container at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    pub(super) state: State,
    pub(super) last: Option<Termination>,
    pub(super) restarts: i32,
    pub(super) started: bool,
    pub(super) ready: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Waiting { reason: &'static str, message: String },
    Running { since: Timestamp, process: u32 },
    Ended(Termination),
}

/// How a container's process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Termination {
    pub(super) exit_code: i32,
    pub(super) signal: Option<i32>,
    pub(super) message: String,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
    pub(super) process: u32,
}

/// All containers of a pod, by name.
pub(super) type Views = BTreeMap<String, View>;

impl View {
    pub(super) fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        let state = State::Waiting { reason, message: message.into() };
        Self { state, last: None, restarts: 0, started: false, ready: false }
    }
}

/// The end of a container at which its news are told.
#[derive(Clone)]
pub(super) struct Report {
    pub(super) container: String,
    pub(super) pod: Arc<Pod>,
    pub(super) views: Arc<watch::Sender<Views>>,
    pub(super) events: Events,
}

impl Report {
    /// The container is not running, and why.
    pub(super) fn waiting(&self, reason: &'static str, message: impl Into<String>) {
        let message = message.into();
        self.change(|view| {
            view.state = State::Waiting { reason, message };
            (view.started, view.ready) = (false, false);
        });
    }

    pub(super) fn running(&self, since: Timestamp, process: u32) {
        self.change(|view| {
            if view.last.is_some() {
                view.restarts += 1;
            }
            view.state = State::Running { since, process };
            (view.started, view.ready) = (false, false);
        });
    }

    pub(super) fn ended(&self, termination: Termination) {
        self.change(|view| {
            view.last = Some(termination.clone());
            view.state = State::Ended(termination);
            (view.started, view.ready) = (false, false);
        });
    }

    pub(super) fn started(&self) {
        self.change(|view| view.started = true);
    }

    pub(super) fn ready(&self, ready: bool) {
        self.change(|view| view.ready = ready);
    }

    /// A probe failed: people read that in the pod's events.
    pub(super) async fn unhealthy(&self, probe: &str, reason: &str) {
        self.events
            .tell(&self.pod, Severity::Warning, "Unhealthy", &format!("{probe} probe failed: {reason}"))
            .await;
    }

    fn change(&self, change: impl FnOnce(&mut View)) {
        self.views.send_if_modified(|views| {
            let Some(view) = views.get_mut(&self.container) else {
                return false;
            };
            let before = view.clone();
            change(view);
            *view != before
        });
    }
}
