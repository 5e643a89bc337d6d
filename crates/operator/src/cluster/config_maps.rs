//! The watch of ConfigMaps: of their metadata, for all controllers. Their content is read by whoever needs it.

use std::sync::Arc;

use engine::{
    Cluster,
    ports::{Watch, WatchEvent},
};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource as _;

use super::complaints::Complaints;
use crate::{
    index::{Index, Target},
    telemetry::metrics::Metrics,
};

/// Wakes those who refer to a ConfigMap that was created, changed or deleted, for as long as it is polled.
pub(crate) async fn watch(index: Arc<Index>, cluster: Arc<dyn Cluster>, metrics: Arc<Metrics>) {
    let mut events = cluster.watch(Watch::all::<ConfigMap>().only_metadata());
    let mut failed = Complaints::reported(ConfigMap::kind(&()), &metrics);
    while let Some(event) = events.next().await {
        match event {
            Ok(WatchEvent::InitApply(map) | WatchEvent::Apply(map) | WatchEvent::Delete(map)) => {
                index.changed(&Target::ConfigMap((map.key.namespace, map.key.name)));
            }
            Ok(WatchEvent::Init | WatchEvent::InitDone) => {}
            Err(error) => failed(&error),
        }
    }
}
