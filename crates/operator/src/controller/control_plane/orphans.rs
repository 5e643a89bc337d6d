//! Schedules the release of token Secrets whose control plane is gone.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use engine::{
    kinds::control_plane::token_secret::{is_deleted_and_held, release_orphans},
    ports::ClusterError,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::Notify;

use crate::controller::Shared;

/// How soon a namespace whose Secrets could not be released is tried again.
const RETRY: Duration = Duration::from_secs(30);
/// How often it is tried before its next event. In a namespace that is gone the operator may have no rights any more.
const MOST_TRIES: u32 = 10;

/// The namespaces in which token Secrets may have lost their control plane.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// With the number of tries that failed.
    namespaces: Mutex<BTreeMap<String, u32>>,
    asked: Notify,
}

impl Orphans {
    /// A Secret was seen. One that is being deleted and has our finalizer may be an orphan.
    pub(super) fn seen(&self, secret: &ObjectMeta) {
        if is_deleted_and_held(secret) {
            self.look_in(secret.namespace.clone().unwrap_or_default());
        }
    }

    /// A control plane of this namespace is gone.
    pub(super) fn look_in(&self, namespace: String) {
        self.lock().insert(namespace, 0);
        self.asked.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases orphans for as long as the operator runs.
    pub(super) async fn release(&self, shared: &Shared) {
        loop {
            self.asked.notified().await;
            let namespaces = std::mem::take(&mut *self.lock());
            for (namespace, failures) in namespaces {
                match release_orphans(&namespace, &*shared.cluster).await {
                    Ok(released) if released.is_empty() => {}
                    Ok(released) => tracing::info!(
                        namespace,
                        secrets = released.join(", "),
                        "token Secrets without a control plane were released"
                    ),
                    Err(error) => self.failed(namespace, failures + 1, &error),
                }
            }
            if !self.lock().is_empty() {
                tokio::time::sleep(RETRY).await;
                self.asked.notify_one();
            }
        }
    }

    fn failed(&self, namespace: String, failures: u32, error: &ClusterError) {
        let is_over = failures >= MOST_TRIES;
        if is_over || failures == 1 {
            let again = if is_over { "not retried" } else { "retried" };
            tracing::warn!(
                namespace,
                "token Secrets without a control plane are not released, {again}: {error}"
            );
        }
        if !is_over {
            // An event that came meanwhile begins anew.
            self.lock().entry(namespace).or_insert(failures);
        }
    }
}
