//! The controller of provisioners: what causes a reconcile, which control plane it uses, and when the next one comes.

mod access;
mod deletion;
mod elsewhere;

use std::{sync::Arc, time::Duration};

use api::{AppState as _, CoderProvisioner, finalizer};
use engine::{
    Coder, Freshness, Kind as _, Ref, Trouble,
    coder::OtherDeployments,
    kinds::{Provisioner, provisioner::unreached},
    pipeline::{
        cleanup::Cleanup,
        ledger::{Leaves, Ledger},
    },
    ports::ClusterError,
    secrets::{Names, Retiring, Revoked},
};
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use serde_json::{Map, json};

use self::{access::Bootstraps, elsewhere::revoke_elsewhere};
use super::{
    Shared,
    app_state::{self, apply::with_first_status},
    driver::{Done, Driven, Driver},
    wake::Wake,
};
use crate::{
    controller::driver::deletion::{Deletion, Taken, Waiting},
    planes::{Plane, PlaneName},
};

/// Provisioners, with the credentials that they bring.
#[derive(Default)]
pub(super) struct Provisioners {
    bootstraps: Bootstraps,
}

impl Driven for Provisioners {
    type Manifest = CoderProvisioner;

    const FINALIZER: &'static str = finalizer::PROVISIONER;

    fn conditions(provisioner: &CoderProvisioner) -> &[Condition] {
        provisioner.status().map_or(&[], |it| it.conditions.as_slice())
    }

    fn plane(provisioner: &CoderProvisioner) -> Option<PlaneName> {
        Some(plane_of(provisioner))
    }

    fn coder(driver: &Driver<Self>, plane: &Plane, need: Freshness) -> Coder {
        plane.coder(need).knowing(Arc::new(OtherPlanes(Arc::clone(&driver.shared))))
    }

    fn refs(provisioner: &CoderProvisioner) -> Vec<Ref> {
        Provisioner::refs(provisioner)
    }

    fn is_suspended(provisioner: &CoderProvisioner) -> bool {
        provisioner.spec.is_suspended()
    }

    fn interval(provisioner: &CoderProvisioner) -> Duration {
        provisioner.spec.interval()
    }

    fn ledger(provisioner: &CoderProvisioner) -> Ledger {
        Provisioner::ledger(provisioner)
    }

    fn leaves(_: &CoderProvisioner) -> Leaves {
        Leaves::default()
    }

    fn forget(driver: &Driver<Self>, _: &str, _: &str) {
        driver.kind.bootstraps.retain(&driver.manifests);
    }

    async fn suspend(driver: &Driver<Self>, provisioner: &CoderProvisioner) -> Result<(), ClusterError> {
        app_state::suspend::<Provisioner>(provisioner, &driver.shared).await
    }

    async fn reconcile(
        driver: &Driver<Self>,
        provisioner: CoderProvisioner,
        wake: &Wake,
    ) -> Result<Option<Done<CoderProvisioner>>, ClusterError> {
        if access::is_early(&provisioner, &driver.shared).await {
            // The first reconcile of the control plane wakes the provisioner.
            return Ok(None);
        }
        let reaching = Box::pin(access::reach(&provisioner, driver));
        let shared = &driver.shared;
        let (reached, written) = with_first_status::<Provisioner, _>(&provisioner, reaching, shared).await?;
        let provisioner = written.unwrap_or(provisioner);
        let reached = match reached {
            Ok(plane) => Ok(plane),
            Err(why) => {
                let (aside, outcome) = unreached(&provisioner, why, &*shared.cluster).await?;
                Err((Some(aside), outcome))
            }
        };
        let reconciling = app_state::reconcile::<Provisioner, Self>(driver, provisioner, reached, wake);
        Box::pin(reconciling).await.map(Some)
    }

    async fn take_back(
        driver: &Driver<Self>,
        provisioner: &mut CoderProvisioner,
        deletion: &Deletion<'_>,
        cleanup: &mut Cleanup,
    ) -> Result<Taken, ClusterError> {
        Ok(deletion::take_back(driver, provisioner, deletion, cleanup).await)
    }

    async fn report_deletion(
        driver: &Driver<Self>,
        provisioner: &CoderProvisioner,
        waiting: &Waiting,
    ) -> Result<(), ClusterError> {
        // How much time the pods had is not known from anywhere else when they are gone.
        let grace = provisioner.status.as_ref().and_then(|it| it.termination_grace_period_seconds);
        let mut fields = Map::new();
        if let Some(now) = waiting.grace.filter(|it| grace != Some(*it)) {
            fields.insert("terminationGracePeriodSeconds".to_owned(), json!(now));
        }
        app_state::report_deletion::<Provisioner>(provisioner, waiting, fields, &driver.shared).await
    }
}

/// The deployments of the control planes that this process knows.
struct OtherPlanes(Arc<Shared>);

impl std::fmt::Debug for OtherPlanes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OtherPlanes")
    }
}

impl OtherDeployments for OtherPlanes {
    fn revoke<'a>(
        &'a self,
        retiring: &'a Retiring,
        namespace: &'a str,
        names: &'a Names,
    ) -> BoxFuture<'a, Result<Revoked, Trouble>> {
        Box::pin(revoke_elsewhere(retiring, namespace, names, None, &self.0))
    }
}

fn plane_of(provisioner: &CoderProvisioner) -> PlaneName {
    let name = provisioner.spec.control_plane_ref.name.clone();
    (provisioner.namespace().unwrap_or_default(), name)
}
