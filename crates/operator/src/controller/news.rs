//! What several controllers hear of and one watch shows: ConfigMaps that changed, and what control planes report in their status.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
};

use api::CoderControlPlane;
use engine::{
    Cluster,
    ports::{Watch, WatchEvent},
};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Resource as _, ResourceExt as _, runtime::watcher::Event};
use tokio::sync::broadcast;

use crate::{
    cluster::complaints::Complaints, planes::PlaneName, stream::received, telemetry::metrics::Metrics,
};

/// How many changes a slow controller may be behind before it reconciles everything.
const CAPACITY: usize = 4096;

/// Namespace and name of an object.
pub(super) type Name = (String, String);

/// ConfigMaps that were created, changed or deleted.
#[derive(Debug, Clone)]
pub(super) struct ConfigMaps(broadcast::Sender<Name>);

impl Default for ConfigMaps {
    fn default() -> Self {
        Self(broadcast::Sender::new(CAPACITY))
    }
}

impl ConfigMaps {
    /// Every change from now on; `None` where the receiver was too slow and missed some.
    pub(super) fn changes(&self) -> impl Stream<Item = Option<Name>> + Send + 'static {
        received(self.0.subscribe())
    }

    /// Watches the metadata of ConfigMaps for as long as it is polled. Their content is read by whoever needs it.
    pub(super) async fn follow(self, cluster: Arc<dyn Cluster>, metrics: Arc<Metrics>) {
        let mut events = cluster.watch(Watch::all::<ConfigMap>().only_metadata());
        let mut failed = Complaints::reported(ConfigMap::kind(&()), &metrics);
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::InitApply(map) | WatchEvent::Apply(map) | WatchEvent::Delete(map)) => {
                    // No receiver: no controller runs.
                    self.0.send((map.key.namespace, map.key.name)).ok();
                }
                Ok(WatchEvent::Init | WatchEvent::InitDone) => {}
                Err(error) => failed(&error),
            }
        }
    }
}

/// What control planes report in their status, as far as daemons depend on it. It is written after dependents were woken.
#[derive(Debug)]
pub(super) struct PlaneStatuses {
    said: Mutex<HashMap<PlaneName, u64>>,
    changes: broadcast::Sender<PlaneName>,
}

impl Default for PlaneStatuses {
    fn default() -> Self {
        Self { said: Mutex::default(), changes: broadcast::Sender::new(CAPACITY) }
    }
}

impl PlaneStatuses {
    /// Enters what the watch has shown and the store has.
    pub(super) fn shown(&self, event: &Event<CoderControlPlane>) {
        let mut known = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::InitApply(plane) | Event::Apply(plane) => {
                let (name, said) = (name_of(plane), said(plane));
                if known.insert(name.clone(), said) != Some(said) {
                    // No receiver: no controller runs.
                    self.changes.send(name).ok();
                }
            }
            Event::Delete(plane) => drop(known.remove(&name_of(plane))),
            Event::Init | Event::InitDone => {}
        }
    }

    /// Every change from now on; `None` where the receiver was too slow and missed some.
    pub(super) fn changes(&self) -> impl Stream<Item = Option<PlaneName>> + Send + 'static {
        received(self.changes.subscribe())
    }
}

fn name_of(plane: &CoderControlPlane) -> PlaneName {
    (plane.namespace().unwrap_or_default(), plane.name_any())
}

/// Tells two versions of a control plane apart if they are not the same to its daemons.
fn said(plane: &CoderControlPlane) -> u64 {
    let mut hasher = DefaultHasher::new();
    let status = plane.status.as_ref();
    (plane.uid(), status.and_then(|it| it.url.as_ref())).hash(&mut hasher);
    status.and_then(|it| it.deployment_id.as_ref()).hash(&mut hasher);
    status.and_then(|it| it.version.as_ref()).hash(&mut hasher);
    status.and_then(|it| it.external_provisioner_daemons_entitlement.as_ref()).hash(&mut hasher);
    plane.spec.image().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::{Value, json};

    use super::*;

    fn plane(status: &Value) -> CoderControlPlane {
        serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main", "namespace": "platform", "uid": "u"}, "spec": {}, "status": status}))
        .unwrap()
    }

    #[tokio::test]
    async fn status_is_news_where_daemons_depend_on_it() {
        let statuses = PlaneStatuses::default();
        let mut changes = std::pin::pin!(statuses.changes());
        let mut is_news = |event: &Event<CoderControlPlane>| {
            statuses.shown(event);
            changes.next().now_or_never().is_some()
        };
        let (old, new) = (plane(&json!({"version": "v2.36.0"})), plane(&json!({"version": "v2.36.1"})));
        assert!(is_news(&Event::InitApply(old.clone())));
        assert!(!is_news(&Event::Apply(plane(&json!({"version": "v2.36.0", "phase": "Ready"})))));
        assert!(is_news(&Event::Apply(new.clone())));
        assert!(!is_news(&Event::InitApply(new.clone())), "a watch that begins anew");
        assert!(!is_news(&Event::Delete(new.clone())));
        assert!(is_news(&Event::Apply(new)), "another one of the name");
    }
}
