//! What is kept beside the objects: Events and logs.

use api::Reason;
use k8s_openapi::api::core::v1::ObjectReference;

/// An Event as it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedEvent {
    pub about: ObjectReference,
    pub is_warning: bool,
    pub reason: Reason,
    /// `None` where the Event names something that is left behind.
    pub action: Option<&'static str>,
    pub note: String,
}

/// Which log of which container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodLog {
    pub namespace: String,
    pub pod: String,
    pub container: String,
    /// Whether the log is that of the container before its last restart.
    pub previous: bool,
}
