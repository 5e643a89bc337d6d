//! The one place where finalizers are added and removed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde_json::json;

use super::{
    Cluster, ClusterError, Write,
    object::{Key, Live},
};

pub fn has(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|it| it == finalizer)
}

/// Puts a finalizer on an object that is about to be written. One that is being deleted takes none.
pub fn put(metadata: &mut ObjectMeta, finalizer: &str) {
    if !has(metadata, finalizer) && metadata.deletion_timestamp.is_none() {
        metadata.finalizers.get_or_insert_default().push(finalizer.to_owned());
    }
}

/// Adds a finalizer to the version of an object that was read.
pub async fn add<K>(of: &ObjectMeta, finalizer: &str, cluster: &dyn Cluster) -> Result<Live, ClusterError>
where
    K: Resource<DynamicType = ()>,
{
    let mut next = of.clone();
    put(&mut next, finalizer);
    write::<K>(&next, cluster).await
}

/// Removes a finalizer from the version of an object that was read.
pub async fn remove<K>(of: &ObjectMeta, finalizer: &str, cluster: &dyn Cluster) -> Result<Live, ClusterError>
where
    K: Resource<DynamicType = ()>,
{
    let mut next = of.clone();
    next.finalizers.iter_mut().for_each(|it| it.retain(|it| it != finalizer));
    write::<K>(&next, cluster).await
}

async fn write<K>(metadata: &ObjectMeta, cluster: &dyn Cluster) -> Result<Live, ClusterError>
where
    K: Resource<DynamicType = ()>,
{
    let [namespace, name] = [&metadata.namespace, &metadata.name].map(|it| it.as_deref().unwrap_or_default());
    let key = Key::new(&K::api_version(&()), &K::kind(&()), namespace, name);
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    let patch = json!({"metadata": {"resourceVersion": metadata.resource_version, "finalizers": finalizers}});
    cluster.write(Write::Merge { key: &key, patch: &patch }, "").await
}
