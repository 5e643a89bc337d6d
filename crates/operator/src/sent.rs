//! Whether the reconcile of a task has sent something that may change a deployment.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use client::routes::Route;

tokio::task_local! {
    /// Whether the reconcile of this task has sent something that may change a deployment.
    pub(crate) static MAY_HAVE_CHANGED: Arc<AtomicBool>;
}

/// A request is about to be sent. From the first one that is more than a question the reconcile is not cut any more.
pub(crate) fn sends(route: &Route) {
    if !route.method().is_safe() {
        // Outside of a reconcile there is no deadline.
        MAY_HAVE_CHANGED.try_with(|it| it.store(true, Ordering::Relaxed)).ok();
    }
}
