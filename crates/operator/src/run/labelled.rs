//! Lists of objects by their labels.

use engine::objects::Live;
use futures::future::try_join_all;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
    core::{GroupVersionKind, Selector},
};

use super::Shared;

/// Every object of these kinds that has these labels, in one namespace or wherever we look.
pub(super) async fn labelled(
    kinds: &[(&str, &str, &str)],
    namespace: Option<&str>,
    labels: &Selector,
    shared: &Shared,
) -> Result<Vec<Live>, kube::Error> {
    let ours = ListParams::default().labels(&labels.to_string());
    let lists = kinds.iter().map(async |(group, version, kind)| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let objects: Api<DynamicObject> = match namespace.or(shared.namespace.as_deref()) {
            Some(namespace) => Api::namespaced_with(shared.client.clone(), namespace, &resource),
            None => Api::all_with(shared.client.clone(), &resource),
        };
        let found = objects.list(&ours).await?.items;
        Ok::<Vec<Live>, kube::Error>(found.into_iter().filter_map(|it| Live::of(it, &resource)).collect())
    });
    Ok(try_join_all(lists).await?.into_iter().flatten().collect())
}
