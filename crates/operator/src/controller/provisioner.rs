//! The controller of provisioners: what causes a reconcile, which control plane it uses, and when the next one comes.

mod access;
mod deletion;
mod elsewhere;

use std::{sync::Arc, time::Duration};

use api::{CoderProvisioner, Reason, finalizer};
use engine::{
    Freshness, RemoteName, Trouble,
    kinds::provisioner::{
        keys::recorded,
        ledger,
        reconcile::{Reconciled, conclude, reconcile, write_status},
        refers_to_secret, refs,
        status::{self, Findings, Readiness},
    },
    pipeline::{
        cleanup::Cleanup,
        ledger::{Leaves, Ledger},
    },
    ports::ClusterError,
    secrets::{Names, Retiring, Revoked},
};
use futures::{StreamExt as _, future::BoxFuture};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{ResourceExt as _, runtime::controller::Controller};

use self::{access::Bootstraps, elsewhere::revoke_elsewhere};
use super::{
    backoff::spread,
    driver::{Done, Driven, Driver, Next, SAFETY_NET},
    predicate::is_ready,
    reconcile::Ending,
    wake::{PERIODIC, Wake, requested},
};
use crate::{
    controller::driver::deletion::{Deletion, Taken, Waiting},
    planes::PlaneName,
};

/// How soon an old key is reconciled again.
const SOON: Duration = Duration::from_secs(5);

/// Provisioners, with the credentials that they bring.
#[derive(Default)]
pub(super) struct Provisioners {
    bootstraps: Bootstraps,
}

impl Driven for Provisioners {
    type Manifest = CoderProvisioner;

    const FINALIZER: &'static str = finalizer::PROVISIONER;
    const OWNS_OBJECTS: bool = true;

    fn conditions(provisioner: &CoderProvisioner) -> &[Condition] {
        provisioner.status.as_ref().map_or(&[], |it| it.conditions.as_slice())
    }

    fn plane(provisioner: &CoderProvisioner) -> Option<PlaneName> {
        Some(plane_of(provisioner))
    }

    fn refs(provisioner: &CoderProvisioner) -> Vec<RemoteName> {
        refs(provisioner)
    }

    fn refers_to_secret(provisioner: &CoderProvisioner, secret: &str) -> bool {
        refers_to_secret(provisioner, secret)
    }

    fn is_suspended(provisioner: &CoderProvisioner) -> bool {
        provisioner.spec.is_suspended()
    }

    fn interval(provisioner: &CoderProvisioner) -> Duration {
        provisioner.spec.interval()
    }

    fn ledger(provisioner: &CoderProvisioner) -> Ledger {
        ledger::ledger(provisioner)
    }

    fn leaves(_: &CoderProvisioner) -> Leaves {
        Leaves::default()
    }

    fn watch(
        driver: &Arc<Driver<Self>>,
        controller: Controller<CoderProvisioner>,
    ) -> Controller<CoderProvisioner> {
        let (statuses, driver) = (driver.shared.plane_statuses.changes(), Arc::clone(driver));
        controller.reconcile_on(statuses.flat_map(move |changed| {
            let is_concerned =
                |it: &CoderProvisioner| changed.as_ref().is_none_or(|name| plane_of(it) == *name);
            futures::stream::iter(driver.referring(is_concerned))
        }))
    }

    async fn suspend(driver: &Driver<Self>, provisioner: &CoderProvisioner) -> Result<(), ClusterError> {
        conclude(provisioner, &Findings::suspended(), &*driver.shared.cluster).await.map(drop)
    }

    async fn reconcile(
        driver: &Driver<Self>,
        provisioner: CoderProvisioner,
        wake: &Wake,
    ) -> Result<Option<Done<CoderProvisioner>>, ClusterError> {
        let before = Before::of(&provisioner, wake);
        let Some(mut done) = Box::pin(stages(provisioner, before.need(wake), driver)).await? else {
            return Ok(None);
        };
        if let Some(need) = before.needs_again(&done, wake).filter(|it| !done.rests_on(*it)) {
            let written = CoderProvisioner { status: done.written, ..done.provisioner };
            let Some(again) = Box::pin(stages(written, need, driver)).await? else {
                return Ok(None);
            };
            done = again;
        }
        let Reconciled { provisioner, written, findings, trouble, again_at, is_rotating, .. } = done;
        let known = provisioner.status.clone().unwrap_or_default();
        let next = status::status(&provisioner, known, &findings, Timestamp::now());
        let cluster = &*driver.shared.cluster;
        let provisioner = write_status(&provisioner, written.as_ref(), next, cluster).await?;
        let Readiness { is_ready, reason, message, is_stalled } = findings.readiness();
        let is_awaited = reason == Reason::DaemonsNotSeen || reason == Reason::Progressing;
        let next = if trouble.is_some() || is_awaited {
            let interval = spread(provisioner.spec.interval(), &provisioner.uid().unwrap_or_default());
            Next::Retry { wanted: trouble.as_ref().and_then(retry_after), at_most: Some(interval) }
        } else {
            let within = if is_ready { None } else { Some(SAFETY_NET) };
            Next::Periodic { within: if is_rotating { Some(SOON) } else { within }, at: again_at }
        };
        let is_trouble = trouble.is_some() || is_stalled;
        let ending = Ending { reason, message, is_ready, is_trouble };
        Ok(Some(Done { manifest: provisioner, ending, next, is_answered: trouble.is_none() }))
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
        deletion::report(provisioner, waiting, &driver.shared).await
    }
}

/// What is known of a provisioner before a reconcile, as far as it decides how recent the reads have to be.
#[derive(Debug, Clone, Copy)]
struct Before {
    is_ready: bool,
    /// Whether no key is recorded, and the deployment has answered lately. Then a key is minted, and the deployment's answer to
    /// that, which comes after the cause, says the same as lists do: who answers, the licence, the organization.
    is_new: bool,
}

impl Before {
    fn of(provisioner: &CoderProvisioner, wake: &Wake) -> Self {
        let record = recorded(provisioner);
        Self {
            is_ready: is_ready(Provisioners::conditions(provisioner)),
            is_new: record.names().next().is_none() && !wake.is_doubtful(),
        }
    }

    /// How recent the reads have to be that the reconcile begins with.
    fn need(self, wake: &Wake) -> Freshness {
        if self.is_new { PERIODIC } else { wake.need() }
    }

    /// How recent the reads have to be that the result rests on; `None` where they need not be more recent than they were asked
    /// to be.
    fn needs_again(self, done: &Reconciled, wake: &Wake) -> Option<Freshness> {
        if done.trouble.is_some() || done.has_minted {
            return None;
        }
        // The reconciles before have read what their causes need, and this one rests on reads that are no older.
        let is_ready = done.findings.readiness().is_ready;
        if wake.is_doubtful() && wake.is_too_old_for(self.is_ready, is_ready) {
            return Some(wake.need_to_write());
        }
        self.is_new.then(|| wake.need())
    }
}

fn plane_of(provisioner: &CoderProvisioner) -> PlaneName {
    let name = provisioner.spec.control_plane_ref.name.clone();
    (provisioner.namespace().unwrap_or_default(), name)
}

/// The stages of a reconcile. `None` until the control plane has been reconciled once, which wakes the provisioner.
async fn stages(
    provisioner: CoderProvisioner,
    need: Freshness,
    driver: &Driver<Provisioners>,
) -> Result<Option<Reconciled>, ClusterError> {
    let shared = &driver.shared;
    if access::is_early(&provisioner, shared).await {
        return Ok(None);
    }
    let names = Names::new(provisioner.key_name(), &provisioner.uid().unwrap_or_default());
    let (namespace, requested) = (provisioner.namespace().unwrap_or_default(), requested(&provisioner));
    let elsewhere = |retiring: Retiring| -> BoxFuture<'_, Result<Revoked, Trouble>> {
        let (names, namespace) = (&names, &namespace);
        Box::pin(async move { revoke_elsewhere(&retiring, namespace, names, None, shared).await })
    };
    let manifest = provisioner.clone();
    let (reaching, beside) = (access::reach(&manifest, need, driver), shared.beside());
    let mut done = Box::pin(reconcile(provisioner, reaching, &elsewhere, &beside)).await?;
    done.findings.requested = requested;
    Ok(Some(done))
}

/// When coderd wants to be asked again.
fn retry_after(trouble: &Trouble) -> Option<Duration> {
    if let Trouble::Remote(error) = trouble { error.retry_after() } else { None }
}
