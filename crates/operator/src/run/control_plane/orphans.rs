//! Releases token Secrets whose control plane is gone. A control plane whose finalizer was removed by hand is deleted without a
//! cleanup, and no other controller removes the finalizer of its Secret.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::{CoderControlPlane, Reason, annotation, finalizer};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Resource as _, ResourceExt as _, api::ListParams};
use tokio::sync::Notify;

use crate::run::{
    Shared,
    letting_go::answer,
    record::{leave_behind, set_finalizer},
};

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
        if is_held(secret) {
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
                if let Err(error) = release_in(&namespace, shared).await {
                    self.failed(namespace, failures + 1, &error);
                }
            }
            if !self.lock().is_empty() {
                tokio::time::sleep(RETRY).await;
                self.asked.notify_one();
            }
        }
    }

    fn failed(&self, namespace: String, failures: u32, error: &kube::Error) {
        let is_over = failures >= MOST_TRIES;
        if is_over || failures == 1 {
            let (why, again) = (answer(error), if is_over { "not retried" } else { "retried" });
            tracing::warn!(
                namespace,
                "token Secrets without a control plane are not released, {again}: {why}"
            );
        }
        if !is_over {
            // An event that came meanwhile begins anew.
            self.lock().entry(namespace).or_insert(failures);
        }
    }
}

/// Whether only our finalizer may keep a Secret.
fn is_held(secret: &ObjectMeta) -> bool {
    let has_ours = secret.finalizers.iter().flatten().any(|it| it == finalizer::TOKEN);
    has_ours && secret.deletion_timestamp.is_some()
}

async fn release_in(namespace: &str, shared: &Shared) -> Result<(), kube::Error> {
    let secrets = Api::<Secret>::namespaced(shared.client.clone(), namespace);
    for found in secrets.list_metadata(&ListParams::default()).await? {
        if !is_held(&found.metadata) || has_owner(&found.metadata, namespace, shared).await? {
            continue;
        }
        let secret = Secret { metadata: found.metadata, ..Secret::default() };
        if secret.annotations().contains_key(annotation::OPERATOR_ACCESS) {
            let note = format!(
                "the operator's token in Secret {}, which expires within a day, is left behind: its control plane is gone",
                secret.name_any()
            );
            leave_behind(&secret, Reason::ControlPlaneNotFound, &note, shared).await;
        }
        set_finalizer(&secret, finalizer::TOKEN, false, shared).await?;
        tracing::info!(
            namespace,
            secret = secret.name_any(),
            "a token Secret without a control plane was released"
        );
    }
    Ok(())
}

/// Whether a control plane that owns the Secret is there and still releases it by itself.
async fn has_owner(secret: &ObjectMeta, namespace: &str, shared: &Shared) -> Result<bool, kube::Error> {
    let planes = Api::<CoderControlPlane>::namespaced(shared.client.clone(), namespace);
    let kind = CoderControlPlane::kind(&());
    for owner in secret.owner_references.iter().flatten().filter(|it| it.kind == kind) {
        let found = planes.get_metadata_opt(&owner.name).await?;
        if found.is_some_and(|it| it.uid().as_ref() == Some(&owner.uid)) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_secret_that_goes_and_has_our_finalizer_is_held() {
        let is = |metadata: Value| is_held(&serde_json::from_value(metadata).unwrap());
        let gone = "2026-01-01T00:00:00Z";
        assert!(is(json!({"finalizers": [finalizer::TOKEN], "deletionTimestamp": gone})));
        assert!(!is(json!({"finalizers": [finalizer::TOKEN]})), "Kubernetes has not deleted it");
        assert!(!is(json!({"finalizers": ["other"], "deletionTimestamp": gone})));
    }
}
