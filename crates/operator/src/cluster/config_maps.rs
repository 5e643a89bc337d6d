//! The watch of ConfigMaps: of their metadata, for all controllers. Their content is read by whoever needs it.

use std::sync::Arc;

use engine::{Cluster, ports::Watch};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::Resource as _;

use super::{cache::Cache, complaints::Complaints};
use crate::{
    index::{Index, Target},
    telemetry::metrics::Metrics,
};

/// Wakes those who refer to a ConfigMap that was created, changed or deleted, for as long as it is polled.
pub(crate) async fn watch(index: Arc<Index>, cluster: Arc<dyn Cluster>, metrics: Arc<Metrics>) {
    let events = cluster.watch(Watch::all::<ConfigMap>().only_metadata());
    let changed = |it: &ObjectMeta| {
        let name = (it.namespace.clone().unwrap_or_default(), it.name.clone().unwrap_or_default());
        index.changed(&Target::ConfigMap(name));
    };
    let failed = Complaints::reported(ConfigMap::kind(&()), &metrics);
    Cache::default().follow(events, |_| Some(()), changed, failed).await;
}
