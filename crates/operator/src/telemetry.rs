//! What the operator reports of itself: log lines, metrics, and its health.

pub(crate) mod admin;
pub(crate) mod logs;
pub(crate) mod metrics;
