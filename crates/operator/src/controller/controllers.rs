//! The controllers as tasks: started together, watched while they should run, and ended without waiting for anything but the
//! reconciles under way.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

use api::{CoderControlPlane, CoderProvisioner};
use engine::{Cluster, Kind, kinds};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Resource as _;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Shared, app_state::OfKind, control_plane::ControlPlanes, driver, provisioner::Provisioners};
use crate::{
    cluster::{config_maps, owned, secret_cache},
    controller::reconcile::Reconciles,
    index::KindName,
};

/// How long reconciles under way may take to end; a pod has half a minute.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// The controllers, and how to end them.
pub(super) struct Controllers {
    tasks: JoinSet<()>,
    kinds: HashMap<Id, KindName>,
    reconciles: Arc<Reconciles>,
    stop: CancellationToken,
}

impl Controllers {
    pub(super) fn start(shared: &Arc<Shared>) -> Self {
        let planes = Box::pin(driver::run::<ControlPlanes>(Arc::clone(shared)));
        let provisioners = Box::pin(driver::run::<Provisioners>(Arc::clone(shared)));
        let controllers: Vec<(KindName, Controller)> =
            vec![(CoderControlPlane::kind(&()), planes), (CoderProvisioner::kind(&()), provisioners)];
        let mut start = Start { shared, controllers };
        let cluster: Arc<dyn Cluster> = Arc::clone(&shared.cluster) as _;
        start.controllers.extend(owned::watches(&shared.owned, &cluster, &shared.metrics));
        let (index, metrics) = (Arc::clone(&shared.index), Arc::clone(&shared.metrics));
        let maps = config_maps::watch(index, Arc::clone(&cluster), metrics);
        start.controllers.push((ConfigMap::kind(&()), Box::pin(maps)));
        let secrets = secret_cache::watch(Arc::clone(&shared.secrets), cluster, Arc::clone(&shared.metrics));
        start.controllers.push((Secret::kind(&()), Box::pin(secrets)));
        kinds::visit(&mut start);
        Self::of(start.controllers, Arc::clone(&shared.reconciles), shared.stop.clone())
    }

    fn of(
        controllers: Vec<(KindName, Controller)>,
        reconciles: Arc<Reconciles>,
        stop: CancellationToken,
    ) -> Self {
        let (mut tasks, mut kinds) = (JoinSet::new(), HashMap::new());
        for (kind, controller) in controllers {
            kinds.insert(tasks.spawn(controller).id(), kind);
        }
        Self { tasks, kinds, reconciles, stop }
    }

    /// Returns when one of them does not run any more, though nobody told it to end. Half an operator is worse than none:
    /// it looks alive, and its objects are looked after by nobody.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        match self.tasks.join_next_with_id().await {
            Some(ended) => {
                let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
                let kind = self.kinds.get(&id).map_or("a kind", |it| it);
                let how = if ended.is_ok() { "stopped unexpectedly" } else { "panicked" };
                anyhow::anyhow!("the controller of {kind} {how}; the process exits")
            }
            None => anyhow::anyhow!("there are no controllers"),
        }
    }

    /// Lets reconciles under way come to their end, and starts no more. Nothing else is waited for: a controller that is still
    /// reading its first list does not hear that it should stop. What has not ended in time is cut off.
    pub(super) async fn end(mut self) {
        self.stop.cancel();
        if tokio::time::timeout(ENDS_WITHIN, self.reconciles.all_ended()).await.is_err() {
            tracing::warn!(
                reconciles = self.reconciles.count(),
                "reconciles were cut off: they took longer than {ENDS_WITHIN:?}"
            );
        }
        self.tasks.shutdown().await;
    }
}

type Controller = BoxFuture<'static, ()>;

/// Makes a controller for every kind that it is shown.
struct Start<'a> {
    shared: &'a Arc<Shared>,
    controllers: Vec<(KindName, Controller)>,
}

impl kinds::Visitor for Start<'_> {
    fn visit<K: Kind>(&mut self) {
        let controller = Box::pin(driver::run::<OfKind<K>>(Arc::clone(self.shared)));
        self.controllers.push((K::Manifest::kind(&()), controller));
    }
}
