//! Control planes, wherever they run: their objects if they are ours, their address, their credentials and their licences.

mod deletion;
mod dependents;
mod orphans;
pub(super) mod proof;
pub(super) mod reach;
mod supplied_token;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use api::{CoderControlPlane, CoderControlPlaneStatus, KeptClient, Reason, finalizer};
use engine::{
    Blocked,
    coder::address,
    kinds::control_plane::{
        identity::recorded_deployment,
        leaves, ledger, license, operator_token_secret,
        status::{self, PlaneFindings, PlaneReadiness},
        workload,
    },
    objects::references::{SourceRef, references},
    pipeline::{
        cleanup::Cleanup,
        conditions::Truth,
        held_back::Changes,
        ledger::{Leaves, Ledger},
    },
    ports::{ClusterError, Watch},
};
use futures::{StreamExt as _, channel::mpsc, future::BoxFuture};
use jiff::Timestamp;
use k8s_openapi::{
    api::batch::v1::Job,
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
};
use kube::{
    ResourceExt as _,
    api::PartialObjectMeta,
    runtime::{WatchStreamExt as _, controller::Controller, reflector::ObjectRef, watcher},
};

use self::{orphans::Orphans, proof::prove};
use super::{
    Shared,
    driver::{Done, Driven, Driver, Events, Next},
    reconcile::Ending,
    wake::{Wake, requested},
    watch::{self, Decoding},
};
use crate::{
    controller::driver::deletion::{Deletion, Taken, Waiting},
    planes::PlaneName,
};

/// How many control planes can become decodable again at once.
const RECOVERIES: usize = 64;

/// How soon a licence that is not in force, or pods that are on their way, are looked at again.
const SOON: Duration = Duration::from_secs(30);

/// Control planes that became decodable again.
type Recoveries = mpsc::Receiver<ObjectRef<CoderControlPlane>>;

/// Control planes.
pub(super) struct ControlPlanes {
    orphans: Arc<Orphans>,
    recovered: mpsc::Sender<ObjectRef<CoderControlPlane>>,
    /// `None` once the controller listens.
    recoveries: Mutex<Option<Recoveries>>,
}

impl Default for ControlPlanes {
    fn default() -> Self {
        let (recovered, recoveries) = mpsc::channel(RECOVERIES);
        Self { orphans: Arc::default(), recovered, recoveries: Mutex::new(Some(recoveries)) }
    }
}

impl Driven for ControlPlanes {
    type Manifest = CoderControlPlane;

    const FINALIZER: &'static str = finalizer::CONTROL_PLANE;
    const OWNS_OBJECTS: bool = true;

    fn conditions(plane: &CoderControlPlane) -> &[Condition] {
        plane.status.as_ref().map_or(&[], |it| it.conditions.as_slice())
    }

    /// No queue: a control plane does not wait for its dependents.
    fn plane(_: &CoderControlPlane) -> Option<PlaneName> {
        None
    }

    fn refers_to_secret(plane: &CoderControlPlane, secret: &str) -> bool {
        refers_to(plane, secret)
    }

    fn is_suspended(plane: &CoderControlPlane) -> bool {
        plane.spec.is_suspended()
    }

    fn interval(plane: &CoderControlPlane) -> Duration {
        plane.spec.interval()
    }

    fn ledger(plane: &CoderControlPlane) -> Ledger {
        ledger(plane)
    }

    fn leaves(plane: &CoderControlPlane) -> Leaves {
        leaves(plane)
    }

    fn events(driver: &Arc<Driver<Self>>) -> Events<CoderControlPlane> {
        let shared = &driver.shared;
        shared.control_planes.set(driver.manifests.clone()).ok();
        let note = note_decoding(Arc::clone(shared), driver.kind.recovered.clone());
        let orphans = Arc::clone(&driver.kind.orphans);
        let known = Some(driver.manifests.clone());
        let events = watch::decoded_noting::<CoderControlPlane, _>(shared, known, note);
        let events = events.inspect(move |event| {
            if let Ok(watcher::Event::Delete(plane)) = event {
                orphans.look_in(plane.namespace().unwrap_or_default());
            }
        });
        events.boxed()
    }

    fn shown(driver: &Driver<Self>, event: &watcher::Event<CoderControlPlane>) {
        driver.shared.plane_statuses.shown(event);
    }

    fn watch(
        driver: &Arc<Driver<Self>>,
        controller: Controller<CoderControlPlane>,
    ) -> Controller<CoderControlPlane> {
        let shared = &driver.shared;
        let (of_maps, of_releases) = (Arc::clone(driver), Arc::clone(driver));
        // Only the metadata of what is referred to is watched; what has changed is fetched.
        let maps = shared.config_maps.changes().flat_map(move |changed| {
            let is_concerned = |plane: &CoderControlPlane| {
                changed.as_ref().is_none_or(|(namespace, name)| {
                    plane.namespace().as_ref() == Some(namespace)
                        && is_read(plane, &SourceRef::ConfigMap(name.clone()))
                })
            };
            futures::stream::iter(of_maps.those(is_concerned))
        });
        let jobs = Watch::all::<Job>().only_metadata();
        let jobs = watch::events::<PartialObjectMeta<Job>>(shared, jobs).touched_objects();
        let controller = controller
            .reconcile_on(maps)
            .owns_stream(jobs)
            // A control plane that waits for the last of its dependents goes when that is gone.
            .reconcile_on(shared.planes.releases().flat_map(move |_| {
                futures::stream::iter(of_releases.those(|it| it.metadata.deletion_timestamp.is_some()))
            }));
        match driver.kind.recoveries.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(recoveries) => controller.reconcile_on(recoveries),
            None => controller,
        }
    }

    fn beside(driver: &Arc<Driver<Self>>) -> BoxFuture<'static, ()> {
        let driver = Arc::clone(driver);
        Box::pin(async move {
            let (orphans, shared) = (&driver.kind.orphans, &driver.shared);
            tokio::join!(orphans.release(shared), shared.secrets.each(|it| orphans.seen(it)));
        })
    }

    fn forget(driver: &Driver<Self>, namespace: &str, name: &str) {
        forget(&(namespace.to_owned(), name.to_owned()), &driver.shared);
    }

    async fn suspend(driver: &Driver<Self>, plane: &CoderControlPlane) -> Result<(), ClusterError> {
        driver.shared.planes.block(&name_of(plane), Reason::Suspended, true);
        let message = "suspended: nothing is read or changed, and nothing that belongs to it is".to_owned();
        let because = Blocked { reason: Reason::Suspended, message };
        let next = status::unlooked(plane, Truth::Unknown, &because, Timestamp::now());
        write_status(plane, next, &driver.shared).await.map(drop)
    }

    async fn reconcile(
        driver: &Driver<Self>,
        plane: CoderControlPlane,
        _: &Wake,
    ) -> Result<Option<Done<CoderControlPlane>>, ClusterError> {
        Box::pin(reconcile(plane, &driver.shared)).await.map(Some)
    }

    async fn take_back(
        driver: &Driver<Self>,
        plane: &mut CoderControlPlane,
        deletion: &Deletion<'_>,
        cleanup: &mut Cleanup,
    ) -> Result<Taken, ClusterError> {
        deletion::take_back(plane, deletion, cleanup, &driver.shared).await
    }

    async fn report_deletion(
        driver: &Driver<Self>,
        plane: &CoderControlPlane,
        waiting: &Waiting,
    ) -> Result<(), ClusterError> {
        let next = status::unlooked(plane, Truth::False, &waiting.why, Timestamp::now());
        write_status(plane, next, &driver.shared).await.map(drop)
    }
}

/// Blocks a control plane while its object cannot be decoded, and reconciles it when it can be: a later version may differ in
/// its status alone, which is no reason for a reconcile.
fn note_decoding(
    shared: Arc<Shared>,
    mut recovered: mpsc::Sender<ObjectRef<CoderControlPlane>>,
) -> impl FnMut(&ObjectMeta, Decoding) + Send {
    move |metadata, decoding| {
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let name = (namespace, metadata.name.clone().unwrap_or_default());
        match decoding {
            Decoding::Failed => shared.planes.set_undecodable(&name, true),
            Decoding::Recovered => {
                shared.planes.set_undecodable(&name, false);
                recovered.try_send(ObjectRef::new(&name.1).within(&name.0)).ok();
            }
            Decoding::Deleted => forget(&name, &shared),
        }
    }
}

fn forget(name: &PlaneName, shared: &Shared) {
    shared.metrics.forget(name);
    shared.planes.forget(name);
}

/// Whether a control plane has anything to do with a Secret.
fn refers_to(plane: &CoderControlPlane, secret: &str) -> bool {
    let spec = &plane.spec;
    let external = spec.external.iter().flat_map(|it| {
        let authority = it.ca_secret_ref.iter().map(|it| it.name.as_str());
        authority.chain([it.credentials_secret_ref.name.as_str()])
    });
    let access = spec.operator_access.iter().flat_map(|it| {
        let given = [&it.first_user_secret_ref, &it.admin_credentials_secret_ref];
        given.into_iter().flatten().map(|it| it.name.as_str())
    });
    let mut names = external.chain(access).chain(spec.licenses().map(|(name, _)| name));
    names.any(|it| it == secret)
        || operator_token_secret(plane) == secret
        || is_read(plane, &SourceRef::Secret(secret.to_owned()))
}

/// Whether the pods of a control plane that we run read this.
fn is_read(plane: &CoderControlPlane, reference: &SourceRef) -> bool {
    plane.spec.external.is_none() && references(&plane.spec).contains(reference)
}

async fn reconcile(
    plane: CoderControlPlane,
    shared: &Shared,
) -> Result<Done<CoderControlPlane>, ClusterError> {
    let name = name_of(&plane);
    let mut plane = begin(plane, shared).await?;
    shared.planes.recall_deployment(&name, recorded_deployment(&plane));
    let mut changes = Changes::default();
    let workload = if plane.spec.external.is_some() {
        workload::report_unmanaged(&plane, &*shared.cluster).await?;
        None
    } else {
        Some(workload::keep(&mut plane, &mut changes, &shared.plane_context()).await?)
    };
    let proved = prove(&plane, shared).await;
    shared.metrics.tried(&name, proved.is_ok());
    if let Err(why) = &proved {
        block(&name, why, shared);
    }
    let licensing = match &proved {
        Ok(it) => Some(license::keep(&mut plane, it.reached(), &mut changes, &*shared.cluster).await?),
        Err(_) => None,
    };
    if let Some(licensing) = &licensing {
        shared.metrics.licensed(&name, licensing);
    }
    let supplied = match &proved {
        Ok(it) => supplied_token::keep(&plane, it, shared).await,
        Err(_) => None,
    };
    let findings = PlaneFindings {
        access: proved.as_ref().map(|it| &it.build),
        supplied_token: supplied.as_ref(),
        token_secret: proved.as_ref().ok().and_then(|it| it.token_secret.as_deref()),
        account: proved.as_ref().ok().and_then(|it| it.account),
        workload: workload.as_ref(),
        url: Some(url(&plane)),
        licensing: licensing.as_ref(),
        changes: &changes,
        requested: requested(&plane),
        now: Timestamp::now(),
    };
    let next = status::status(&plane, &findings);
    let covers_others = plane.status.as_ref().is_some_and(|it| it.features != next.features);
    let written = write_status(&plane, next, shared).await?;
    let PlaneReadiness { is_ready, reason, message, is_retried_soon, .. } = findings.readiness();
    let next = if proved.is_err() {
        // What is tried at a pace of its own is not tried sooner, nor later.
        let pause = shared.planes.tokens.pause(&name).filter(|it| Timestamp::now() < it.until);
        pause.map_or(Next::Retry { wanted: None, at_most: None }, |it| Next::At(it.until))
    } else {
        let at = shared.planes.tokens.minted(&name).map(|it| it.renewed_at);
        Next::Periodic { within: is_retried_soon.then_some(SOON), at }
    };
    // Known only now: who goes on because of it finds the status as it is.
    if let Ok(proved) = proved {
        shared.planes.admit(&name, proved.into_plane(shared));
    }
    if covers_others {
        // Whoever waits for a feature goes on at once, and whoever has lost one says so.
        shared.planes.tell(&name);
    }
    let ending = Ending { reason, message, is_ready, is_trouble: !is_ready };
    Ok(Done { manifest: written, ending, next, is_answered: true })
}

/// Writes the first status where it is missing.
async fn begin(plane: CoderControlPlane, shared: &Shared) -> Result<CoderControlPlane, ClusterError> {
    if status::is_begun(&plane) {
        return Ok(plane);
    }
    let because = Blocked { reason: Reason::Progressing, message: "not reconciled yet".to_owned() };
    let first = status::unlooked(&plane, Truth::Unknown, &because, Timestamp::now());
    write_status(&plane, first, shared).await
}

/// Blocks the dependents of a control plane that could not be proved.
fn block(name: &PlaneName, why: &Blocked, shared: &Shared) {
    // Only the origin that is declared may be merely silent: the client of another one is gone by now.
    let is_known = shared.planes.last_known(name).is_some();
    let kept = if is_known { why.reason.keeps_client() } else { KeptClient::No };
    match kept {
        KeptClient::Full => shared.planes.restate(name, why.reason),
        KeptClient::CleanupOnly => shared.planes.block(name, why.reason, true),
        KeptClient::No => shared.planes.block(name, why.reason, false),
    }
}

/// Where the deployment is, for those who read the status.
fn url(plane: &CoderControlPlane) -> String {
    plane.spec.external.as_ref().map_or_else(|| address::advertised(plane), |it| it.url.clone())
}

fn name_of(plane: &CoderControlPlane) -> PlaneName {
    (plane.namespace().unwrap_or_default(), plane.name_any())
}

/// Writes the status, if it is another one, and gives back the control plane as it is then.
async fn write_status(
    plane: &CoderControlPlane,
    next: CoderControlPlaneStatus,
    shared: &Shared,
) -> Result<CoderControlPlane, ClusterError> {
    if plane.status.as_ref() == Some(&next) {
        return Ok(plane.clone());
    }
    let written = CoderControlPlane { status: Some(next), ..plane.clone() };
    let cluster: &dyn engine::Cluster = &*shared.cluster;
    cluster.put_status(&written).await
}
