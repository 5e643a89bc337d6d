//! Control planes, wherever they run: their objects if they are ours, their address, their credentials and their licences.

mod deletion;
mod dependents;
mod orphans;
mod published;
mod supplied_token;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use api::{AppState as _, CoderControlPlane, CoderControlPlaneStatus, KeptClient, Reason, finalizer};
use engine::{
    Blocked, Coder, Kind, Object, Outcome, Ref, Report, Trouble,
    coder::address,
    kinds::control_plane::{
        PlaneObjects,
        access::{ObservedAccess, OperatorAccess},
        identity::recorded_deployment,
        leaves, ledger,
        license::Licenses,
        refs,
        status::{self, HeldBack, PlaneFindings, PlaneReadiness},
        workload,
    },
    pipeline::{
        cleanup::Cleanup,
        ledger::{Leaves, Ledger},
        status::message,
    },
    ports::{ClusterError, Watch},
};
use futures::{StreamExt as _, channel::mpsc, future::BoxFuture};
use jiff::Timestamp;
use k8s_openapi::{
    api::batch::v1::Job,
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time},
};
use kube::{
    ResourceExt as _,
    api::PartialObjectMeta,
    runtime::{WatchStreamExt as _, controller::Controller, reflector::ObjectRef, watcher},
};
use secrecy::SecretString;
use serde_json::{Map, json};

use self::{orphans::Orphans, published::Published};
use super::{
    Shared,
    app_state::{
        self, Compared,
        apply::{compare_and_apply_part, take_status, with_first_status, write_first_status},
    },
    driver::{Done, Driven, Driver, Events, Next},
    reach::proof::{Answered, Entry, Proved, answer},
    reconcile::Ending,
    record::{mark_where, publish},
    wake::{Wake, requested},
    watch::{self, Decoding},
};
use crate::{
    controller::driver::deletion::{Deletion, Taken, Waiting},
    index::Target,
    planes::{PlaneName, name_of},
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
    published: Published,
    recovered: mpsc::Sender<ObjectRef<CoderControlPlane>>,
    /// `None` once the controller listens.
    recoveries: Mutex<Option<Recoveries>>,
}

impl Default for ControlPlanes {
    fn default() -> Self {
        let (recovered, recoveries) = mpsc::channel(RECOVERIES);
        let recoveries = Mutex::new(Some(recoveries));
        Self { orphans: Arc::default(), published: Published::default(), recovered, recoveries }
    }
}

impl Driven for ControlPlanes {
    type Manifest = CoderControlPlane;

    const FINALIZER: &'static str = finalizer::CONTROL_PLANE;
    const IS_DONE_AT_ONCE: bool = true;

    fn conditions(plane: &CoderControlPlane) -> &[Condition] {
        plane.status().map_or(&[], |it| it.conditions.as_slice())
    }

    /// No queue: a control plane does not wait for its dependents.
    fn plane(_: &CoderControlPlane) -> Option<PlaneName> {
        None
    }

    fn refs(plane: &CoderControlPlane) -> Vec<Ref> {
        refs(plane)
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
        for name in driver.kind.published.changed(event) {
            driver.shared.index.changed(&Target::ControlPlaneStatus(name));
        }
    }

    fn watch(
        driver: &Arc<Driver<Self>>,
        controller: Controller<CoderControlPlane>,
    ) -> Controller<CoderControlPlane> {
        let jobs = Watch::all::<Job>().only_metadata();
        let jobs = watch::events::<PartialObjectMeta<Job>>(&driver.shared, jobs).touched_objects();
        let controller = controller.owns_stream(jobs);
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
        let name = (namespace.to_owned(), name.to_owned());
        // An object that cannot be decoded is missing from the store and still exists.
        if !driver.shared.planes.is_undecodable(&name) {
            forget(&name, &driver.shared);
        }
    }

    async fn suspend(driver: &Driver<Self>, plane: &CoderControlPlane) -> Result<(), ClusterError> {
        driver.shared.planes.block(&name_of(plane), Reason::Suspended, true);
        app_state::suspend::<PlaneObjects>(plane, &driver.shared).await
    }

    async fn reconcile(
        driver: &Driver<Self>,
        plane: CoderControlPlane,
        _: &Wake,
    ) -> Result<Option<Done<CoderControlPlane>>, ClusterError> {
        Box::pin(reconcile(driver, plane)).await.map(Some)
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
        app_state::report_deletion::<PlaneObjects>(plane, waiting, Map::new(), &driver.shared).await
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

async fn reconcile(
    driver: &Driver<ControlPlanes>,
    plane: CoderControlPlane,
) -> Result<Done<CoderControlPlane>, ClusterError> {
    let (name, shared) = (name_of(&plane), &*driver.shared);
    shared.planes.recall_deployment(&name, recorded_deployment(&plane));
    let objects = Box::pin(reconcile_objects(driver, plane)).await?;
    let mut plane = objects.object.manifest.clone();
    let answer = Box::pin(answer(&objects.object.manifest, shared));
    let (answered, written) = with_first_status::<PlaneObjects, _>(&plane, answer, shared).await?;
    if let Some(written) = written {
        take_status(&mut plane, &written);
    }
    let mut access = Part::<OperatorAccess>::new(plane);
    let proved = match answered {
        Ok(answered) => Box::pin(enter(answered, &mut access, driver)).await?,
        Err(why) => Err(why),
    };
    let plane = access.object.manifest.clone();
    shared.metrics.tried(&name, proved.is_ok());
    if let Err(why) = &proved {
        block(&name, why, shared);
    }
    let mut licenses = Part::<Licenses>::new(plane);
    if let Ok(proved) = &proved {
        licenses.reconcile(&proved.coder(shared), driver).await?;
    }
    let plane = &licenses.object.manifest;
    let licensing =
        licenses.object.observed().map(|it| it.licensing.clone().after(&licenses.report().outcome));
    if let Some(licensing) = &licensing {
        shared.metrics.licensed(&name, licensing);
    }
    let supplied = match &proved {
        Ok(it) => supplied_token::keep(plane, it, shared).await,
        Err(_) => None,
    };
    let workload = objects.object.observed().map(|it| it.workload.clone().after(objects.report()));
    let targets = [PlaneObjects::target(plane), OperatorAccess::target(plane), Licenses::target(plane)];
    let held_back = objects.held_back(&targets[0]).or_else(|| access.held_back(&targets[1]));
    let findings = PlaneFindings {
        access: proved.as_ref().map(|it| &it.build),
        supplied_token: supplied.as_ref(),
        token_secret: proved.as_ref().ok().and_then(|it| it.token_secret.as_deref()),
        account: proved.as_ref().ok().and_then(|it| it.account),
        workload: workload.as_ref(),
        url: Some(url(plane)),
        licensing: licensing.as_ref(),
        held_back: held_back.or_else(|| licenses.held_back(&targets[2])),
        reverted: objects.reverted().map(|plan| (plan, targets[0].as_str())),
        is_applied: objects.is_applied(),
        changed: objects.report().done > 0 || licenses.report().done > 0,
        requested: requested(plane),
        now: Timestamp::now(),
    };
    let next = status::status(plane, &findings);
    let is_other = |it: &CoderControlPlaneStatus| it.features != next.features || it.version != next.version;
    let covers_others = plane.status.as_ref().is_some_and(is_other);
    let written = write_status(plane, next, shared).await?;
    for announcement in licensing.iter().flat_map(|it| &it.announcements) {
        let note = announcement.message("the licence");
        publish(plane, true, (Reason::LicenseExpires, "Announce"), &note, shared).await;
    }
    let PlaneReadiness { outcome, is_retried_soon, .. } = findings.readiness();
    let message = findings.message();
    let mints = proved.as_ref().ok().map(|it| it.token_secret.is_some());
    let next = next_look(&name, mints, is_retried_soon, shared);
    // Known only now: who goes on because of it finds the status as it is.
    if let Ok(proved) = proved {
        shared.planes.admit(&name, proved.into_plane(shared));
    }
    if covers_others {
        // A manifest that waits for a feature or a version goes on at once, and one that has lost it reports that.
        shared.planes.wake_dependents(&name);
    }
    let is_ready = outcome.is_ready();
    let ending = Ending { reason: outcome.reason(), message, is_ready, is_trouble: !is_ready };
    Ok(Done { manifest: written, ending, next, is_answered: true })
}

/// Applies the objects of a control plane that we run.
async fn reconcile_objects(
    driver: &Driver<ControlPlanes>,
    plane: CoderControlPlane,
) -> Result<Part<PlaneObjects>, ClusterError> {
    let shared = &*driver.shared;
    let mut objects = Part::<PlaneObjects>::new(plane);
    if objects.object.manifest.spec.external.is_some() {
        workload::report_unmanaged(&objects.object.manifest, &*shared.cluster).await?;
        return Ok(objects);
    }
    let coder = Coder::unreached(shared.beside()).map_err(|it| ClusterError::NoAnswer(it.message))?;
    if let Err(error) = objects.reconcile(&coder, driver).await {
        // Without a status it would look healthy.
        objects.write_first_status(shared).await;
        return Err(error);
    }
    Ok(objects)
}

/// Signs in to a deployment that answers: with the token that a Secret holds, or with one that is minted and renewed by steps of a plan,
/// as is the operator's own account where the operator runs the deployment.
async fn enter(
    answered: Answered,
    access: &mut Part<OperatorAccess>,
    driver: &Driver<ControlPlanes>,
) -> Result<Result<Proved, Blocked>, ClusterError> {
    let shared = &*driver.shared;
    let entry = if let Some(given) = answered.given() {
        Entry::Given(given.clone())
    } else {
        access.reconcile(&answered.coder(shared), driver).await?;
        let entry = if answered.is_managed() { Entry::Own } else { Entry::Minted };
        match acquired(access) {
            Ok(token) => entry(token),
            Err(why) => return Ok(Err(why)),
        }
    };
    Ok(answered.enter(&access.object.manifest, entry, shared).await)
}

/// The token that the operator has, or why it has none.
fn acquired(access: &Part<OperatorAccess>) -> Result<SecretString, Blocked> {
    let (report, assessment) = (access.report(), access.compared.assessment.as_ref());
    let undone = report.retry.clone().map(Trouble::into_blocked);
    if let Some(Blocked { reason, message }) = &undone {
        tracing::warn!(%reason, "{message}");
    }
    // A token that is still remembered does not hide that the account may not sign in any more.
    let is_refused = report.outcome.reason() == Reason::Unauthorized;
    let token = access.object.observed().and_then(ObservedAccess::token);
    if let Some(token) = token.filter(|_| !is_refused) {
        if !report.outcome.is_ready() {
            let why = message(&report.outcome, &engine::PlanView::empty());
            tracing::warn!(reason = %report.outcome.reason(), "the operator's token is not renewed yet: {why}");
        }
        return Ok(token.clone());
    }
    if let Some(why) = undone {
        return Err(why);
    }
    let empty = engine::PlanView::empty();
    let message = message(&report.outcome, assessment.map_or(&empty, |it| &it.plan));
    Err(Blocked { reason: report.outcome.reason(), message })
}

/// When to reconcile a control plane again if no event causes it earlier. `mints` is whether its token is renewed; `None` where the
/// control plane could not be proved.
fn next_look(name: &PlaneName, mints: Option<bool>, is_soon: bool, shared: &Shared) -> Next {
    let Some(mints) = mints else {
        // What is tried at a pace of its own is not tried sooner, nor later.
        let pause = shared.planes.tokens.pause(name).filter(|it| Timestamp::now() < it.until);
        return pause.map_or(Next::Retry { wanted: None, at_most: None }, |it| Next::At(it.until));
    };
    // The token before a supplied one may still be remembered.
    let at = shared.planes.tokens.minted(name).map(|it| it.renewed_at).filter(|_| mints);
    Next::Periodic { within: is_soon.then_some(SOON), at }
}

/// A part of a control plane, and what became of it.
struct Part<K: Kind> {
    object: Object<K>,
    compared: Compared,
}

impl<K: Kind<Manifest = CoderControlPlane>> Part<K> {
    fn new(plane: CoderControlPlane) -> Self {
        Self { object: Object::new(plane), compared: Compared::default() }
    }

    async fn reconcile(&mut self, coder: &Coder, driver: &Driver<ControlPlanes>) -> Result<(), ClusterError> {
        self.compared = Box::pin(compare_and_apply_part(&mut self.object, coder, driver)).await?;
        match &self.compared.report.outcome {
            Outcome::Failed(Trouble::Cluster(error)) => {
                if self.report().done > 0 {
                    // The next reconcile finds nothing to do, and does not know of these steps.
                    let fields = json!({"lastAppliedTime": Time(Timestamp::now())});
                    mark_where(&self.object.manifest, &fields, &driver.shared, |_| true).await.ok();
                }
                Err(error.clone())
            }
            outcome if self.object.observed().is_none() => {
                Err(ClusterError::NoAnswer(message(outcome, &engine::PlanView::empty())))
            }
            _ => Ok(()),
        }
    }

    /// Writes the first status of a new control plane: it stands there before anything is made.
    async fn write_first_status(&mut self, shared: &Shared) {
        if let Some(written) = write_first_status::<K>(&self.object.manifest, shared).await {
            take_status(&mut self.object.manifest, &written);
        }
    }

    fn report(&self) -> &Report {
        &self.compared.report
    }

    /// Whether nothing of its plan is left.
    fn is_applied(&self) -> bool {
        self.compared.assessment.as_ref().is_none_or(|it| it.contact.is_some() && it.plan.is_empty())
    }

    /// The plan that was carried out and is there again: another client has reverted it.
    fn reverted(&self) -> Option<&engine::PlanView> {
        let is_refused = !self.report().refused.is_empty();
        let left = self.compared.assessment.as_ref().filter(|it| it.contact.is_some() && !is_refused);
        left.map(|it| &it.plan).filter(|it| !it.is_empty())
    }

    /// Its plan, where that is not carried out.
    fn held_back<'a>(&'a self, target: &'a str) -> Option<HeldBack<'a>> {
        HeldBack::of(self.compared.assessment.as_ref()?, self.report(), target)
    }
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
