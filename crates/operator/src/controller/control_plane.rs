//! Control planes, wherever they run: their objects if they are ours, their address, their credentials and their licences.

mod deletion;
pub(super) mod departure;
pub(super) mod given;
mod orphans;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use api::{CoderControlPlane, CoderControlPlaneStatus, External, KeptClient, Reason, finalizer};
use client::{Class, Client, Share, deployment::BuildInfo};
use engine::{
    Blocked, Credentials,
    coder::{
        address,
        endpoint::{DeclaredOrigin, declared, origin_secrets},
    },
    kinds::control_plane::{
        access::{Account, Acquired, account_token, own_token},
        identity::{ReachedDeployment, check_identity, recorded_deployment},
        license, operator_token_secret,
        status::{self, PlaneFindings, PlaneReadiness},
        workload,
    },
    objects::references::{SourceRef, references},
    pipeline::{conditions::Truth, held_back::Changes},
};
use futures::{StreamExt as _, channel::mpsc};
use jiff::Timestamp;
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Resource as _, ResourceExt as _,
    api::PartialObjectMeta,
    runtime::{
        PredicateConfig, WatchStreamExt as _,
        controller::{self, Action, Controller},
        reflector::{self, ObjectRef, Store},
        watcher,
    },
};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use self::orphans::Orphans;
use super::{
    Shared, drive, no_error,
    record::{has_finalizer, set_finalizer},
    wake::requested,
    watch::{self, Decoding},
};
use crate::{
    cluster::{owned, port::error_of, secret_cache},
    connect::reach,
    controller::{
        about::About,
        backoff::spread,
        predicate,
        reconcile::{self, Ending, Target},
    },
    planes::{Origin, Plane, PlaneName, Sources, Versions},
};

/// How many control planes can become decodable again at once.
const RECOVERIES: usize = 64;

/// How soon a licence that is not in force, or pods that are on their way, are looked at again.
const SOON: Duration = Duration::from_secs(30);

pub(super) async fn run(shared: Arc<Shared>) {
    let (known, writer) = reflector::store();
    shared.control_planes.set(known.clone()).ok();
    let (recovered, recoveries) = mpsc::channel(RECOVERIES);
    let orphans = Arc::new(Orphans::default());
    let note = note_decoding(Arc::clone(&shared), recovered);
    let of_deleted = Arc::clone(&orphans);
    let changes = watch::decoded_noting::<CoderControlPlane, _>(&shared, Some(known.clone()), note)
        .inspect(move |event| {
            if let Ok(watcher::Event::Delete(plane)) = event {
                of_deleted.look_in(plane.namespace().unwrap_or_default());
            }
        })
        .reflect(writer)
        .applied_objects()
        .predicate_filter(predicate::of::<CoderControlPlane>(), PredicateConfig::default());
    shared.metrics.show(known.clone(), |it| it.status.as_ref().map_or(&[], |it| it.conditions.as_slice()));
    let [of_secrets, of_maps, of_planes, of_objects, objects] = std::array::from_fn(|_| known.clone());
    let controller = Controller::for_stream(changes, known)
        // Only the metadata of what is referred to is watched; what has changed is fetched.
        .reconcile_on(secret_cache::changed(&shared.secrets, of_secrets, refers_to))
        .watches(
            shared.watching.api::<PartialObjectMeta<ConfigMap>>(),
            watcher::Config::default(),
            move |it| {
                let (namespace, reference) = (it.namespace(), SourceRef::ConfigMap(it.name_any()));
                those(&of_maps, |plane| plane.namespace() == namespace && is_read(plane, &reference))
            },
        )
        .reconcile_on(owned::changed(&shared.owned, of_objects))
        .owns(shared.watching.api::<PartialObjectMeta<Job>>(), watcher::Config::default())
        // What waits for the last of its dependents goes when that is gone.
        .reconcile_on(shared.planes.releases().flat_map(move |_| {
            futures::stream::iter(those(&of_planes, |it| it.metadata.deletion_timestamp.is_some()))
        }))
        .reconcile_on(recoveries)
        .graceful_shutdown_on(shared.stop.clone().cancelled_owned())
        .run(
            move |object, shared: Arc<Shared>| {
                // No line: what others wait for does not wait for them.
                let target = Target { object, objects: objects.clone(), plane: None };
                reconcile::over(Arc::clone(&shared), target, |it, _| reconcile(it, shared))
            },
            no_error,
            Arc::clone(&shared),
        );
    let passes = controller.inspect(|pass| {
        if let Err(controller::Error::ObjectNotFound(gone)) = pass {
            let name = (gone.namespace.clone().unwrap_or_default(), gone.name.clone());
            shared.memory.forget(CoderControlPlane::kind(&()), &name.0, &name.1);
            forget(&name, &shared);
        }
    });
    tokio::select! {
        () = drive::<CoderControlPlane, _>(&shared, passes) => {}
        () = orphans.release(&shared) => {}
        () = shared.secrets.each(|it| orphans.seen(it)) => {}
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

/// Those control planes.
fn those(
    known: &Store<CoderControlPlane>,
    are: impl Fn(&CoderControlPlane) -> bool,
) -> Vec<ObjectRef<CoderControlPlane>> {
    known.state().into_iter().filter(|it| are(it)).map(|it| ObjectRef::from_obj(&*it)).collect()
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

async fn reconcile(plane: Arc<CoderControlPlane>, shared: Arc<Shared>) -> Result<Action, kube::Error> {
    let (shared, name, about) = (&*shared, name_of(&plane), About::of(&*plane));
    if plane.metadata.deletion_timestamp.is_some() {
        return deletion::delete(&plane, shared).await;
    }
    if plane.spec.is_suspended() {
        return suspend(&plane, shared).await;
    }
    let mut plane = begin((*plane).clone(), shared).await?;
    shared.planes.recall_deployment(&name, recorded_deployment(&plane));
    let started = Instant::now();
    let mut changes = Changes::default();
    let workload = if plane.spec.external.is_some() {
        workload::report_unmanaged(&plane, &*shared.cluster).await.map_err(error_of)?;
        None
    } else {
        let kept = workload::keep(&mut plane, &mut changes, &shared.plane_context()).await;
        Some(kept.map_err(error_of)?)
    };
    let proved = prove(&plane, shared).await;
    shared.metrics.tried(&name, proved.is_ok());
    if let Err(why) = &proved {
        block(&name, why, shared);
    }
    let licensing = match &proved {
        Ok(it) => {
            let kept = license::keep(&mut plane, it.reached(), &mut changes, &*shared.cluster).await;
            Some(kept.map_err(error_of)?)
        }
        Err(_) => None,
    };
    if let Some(licensing) = &licensing {
        shared.metrics.licensed(&name, licensing);
    }
    let given = match &proved {
        Ok(it) => given::keep(&plane, it, shared).await,
        Err(_) => None,
    };
    let findings = PlaneFindings {
        access: proved.as_ref().map(|it| &it.build),
        supplied_token: given.as_ref(),
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
    write_status(&plane, next, shared).await?;
    let PlaneReadiness { is_ready, reason, message, is_retried_soon, .. } = findings.readiness();
    let ending = Ending { reason, message: &message, is_ready, is_trouble: !is_ready };
    shared.passes.ended(&about, ending, started.elapsed());
    let delay = if proved.is_err() {
        // What is tried at a pace of its own is not looked at sooner, nor later.
        let pause = shared.planes.tokens.pause(&name).filter(|it| Timestamp::now() < it.until);
        pause.map_or_else(|| shared.memory.after_failure(&about, None), |it| until(it.until))
    } else {
        shared.memory.succeeded(&about);
        let interval = spread(plane.spec.interval(), &about.uid);
        let interval = if is_retried_soon { interval.min(SOON) } else { interval };
        shared.planes.tokens.minted(&name).map_or(interval, |it| interval.min(until(it.renewed_at)))
    };
    // Known only now: who goes on because of it finds the status as it is.
    if let Ok(proved) = proved {
        shared.planes.admit(&name, proved.into_plane(shared));
    }
    if covers_others {
        // Whoever waits for a feature goes on at once, and whoever has lost one says so.
        shared.planes.tell(&name);
    }
    Ok(Action::requeue(delay))
}

/// Writes the finalizer and the first status where they are missing.
async fn begin(mut plane: CoderControlPlane, shared: &Shared) -> Result<CoderControlPlane, kube::Error> {
    if !has_finalizer(&plane, finalizer::CONTROL_PLANE) {
        plane = set_finalizer(&plane, finalizer::CONTROL_PLANE, true, shared).await?;
    }
    if !status::is_begun(&plane) {
        let message = "not reconciled yet".to_owned();
        let because = Blocked { reason: Reason::Progressing, message };
        let first = status::unlooked(&plane, Truth::Unknown, &because, Timestamp::now());
        plane = write_status(&plane, first, shared).await?;
    }
    Ok(plane)
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

/// Writes that nothing is read or changed.
async fn suspend(plane: &CoderControlPlane, shared: &Shared) -> Result<Action, kube::Error> {
    shared.planes.block(&name_of(plane), Reason::Suspended, true);
    let message = "suspended: nothing is read or changed, and nothing that belongs to it is".to_owned();
    let because = Blocked { reason: Reason::Suspended, message };
    let next = status::unlooked(plane, Truth::Unknown, &because, Timestamp::now());
    write_status(plane, next, shared).await?;
    Ok(Action::await_change())
}

/// How long it is until then; a second at least.
fn until(then: Timestamp) -> Duration {
    let left = Duration::try_from(then.duration_since(Timestamp::now())).unwrap_or_default();
    left.max(Duration::from_secs(1))
}

/// The client that is known of a control plane, if its whole origin is what is declared now.
pub(super) async fn known(plane: &CoderControlPlane, shared: &Shared) -> Option<Arc<Plane>> {
    let name = name_of(plane);
    let known = shared.planes.last_known(&name)?;
    // Read before the values are: a value that changes meanwhile has another version.
    let versions = versions_of(plane, shared);
    if versions.is_some() && known.compared_with() == versions {
        return Some(known);
    }
    let declared = declared(plane, &*shared.cluster).await;
    let origin = declared.origin();
    shared.planes.declare(&name, &origin);
    let known = shared.planes.last_known(&name)?;
    if let Some(versions) = versions.filter(|_| known.is_declared_as(&origin) && declared.endpoint().is_ok())
    {
        known.set_compared_with(versions);
    }
    Some(known)
}

/// The versions of a manifest and of the Secrets that declare its origin. `None` where one of them is not known.
fn versions_of(plane: &CoderControlPlane, shared: &Shared) -> Option<Versions> {
    let namespace = plane.namespace().unwrap_or_default();
    let mut secrets = Vec::new();
    for name in origin_secrets(plane) {
        let found = shared.secrets.watched(&namespace, name)?;
        secrets.push((found.uid.clone()?, found.resource_version.clone()?));
    }
    Some(Versions { manifest: (plane.uid()?, plane.metadata.generation?), secrets })
}

/// Where the deployment is, for those who read the status.
fn url(plane: &CoderControlPlane) -> String {
    plane.spec.external.as_ref().map_or_else(|| address::advertised(plane), |it| it.url.clone())
}

fn name_of(plane: &CoderControlPlane) -> PlaneName {
    (plane.namespace().unwrap_or_default(), plane.name_any())
}

/// A control plane that can be used.
pub(super) struct Proved {
    declared: DeclaredOrigin,
    /// The versions of what was declared, or earlier ones.
    versions: Option<Versions>,
    /// Where it is, without the credentials.
    place: Origin,
    origin: Origin,
    client: Client,
    build: BuildInfo,
    /// The token, where a Secret held it ready-made.
    given: Option<SecretString>,
    /// The Secret with a token of our own.
    token_secret: Option<String>,
    /// The account that we made for ourselves, where it is us who run it.
    account: Option<Uuid>,
}

impl Proved {
    fn reached(&self) -> ReachedDeployment<'_> {
        ReachedDeployment { client: &self.client, deployment: self.build.deployment_id }
    }

    pub(super) fn into_plane(self, shared: &Shared) -> Plane {
        let Self { declared, versions, place, origin, client, build, .. } = self;
        let made_from = Sources { declared, place, origin };
        let plane = Plane::new(made_from, &client, build.deployment_id, shared.beside());
        if let Some(versions) = versions {
            plane.set_compared_with(versions);
        }
        plane
    }
}

/// Whether the address answers, is the deployment that we know, and takes the credentials.
pub(super) async fn prove(plane: &CoderControlPlane, shared: &Shared) -> Result<Proved, Blocked> {
    let versions = versions_of(plane, shared);
    let declared = declared(plane, &*shared.cluster).await;
    let (name, origin_now) = (name_of(plane), declared.origin());
    shared.planes.declare(&name, &origin_now);
    let endpoint = declared.endpoint()?;
    check_address(&endpoint.url, shared)?;
    let place = Origin::new(&[endpoint.url.as_str().as_bytes(), endpoint.authority()]);
    // Asked without a token: who answers has to be known before anything secret is sent.
    let anonymous = match shared.planes.client(&name, &place) {
        Some(client) => client,
        None => reach(&endpoint, None, shared.addresses)
            .map_err(|message| Blocked { reason: Reason::Invalid, message })?
            .observed_by(shared.metrics.observer(&name)),
    };
    let anonymous = anonymous.guarded_by(Arc::new(shared.fence.clone()));
    let build = anonymous.build_info().await.map_err(|it| with_hint(remote(&it), plane))?;
    shared.planes.answers_as(&name, build.deployment_id);
    check_identity(plane, recorded_deployment(plane), build.deployment_id)?;
    let reached = ReachedDeployment { client: &anonymous, deployment: build.deployment_id };
    let (token, given) = match &endpoint.credentials {
        Credentials::Ours => {
            let acquired = Box::pin(own_token(plane, reached, &shared.access_context())).await?;
            (with_warning(acquired), None)
        }
        Credentials::Token(token) => (token.clone(), Some(token.clone())),
        Credentials::Account { email, password } => {
            let account = Account { email: email.clone(), password: password.clone() };
            let acquired = account_token(plane, reached, &account, &shared.access_context()).await?;
            (with_warning(acquired), None)
        }
    };
    let origin = place.with(token.expose_secret().as_bytes());
    let client = anonymous
        .with_token(token)
        .map_err(|error| Blocked { reason: Reason::Unauthorized, message: error.to_string() })?;
    let user = client.current_user().await.map_err(|error| {
        if error.class() == Class::SignedOut {
            // A token of ours that is not taken any more is replaced at the next reconcile.
            shared.planes.tokens.set_minted(&name, None);
        }
        remote(&error)
    })?;
    let is_own_account = matches!(endpoint.credentials, Credentials::Ours);
    let account = is_own_account.then_some(user.id);
    let limiter = shared.planes.rate_limiter(build.deployment_id, user.id);
    let share = if is_own_account { Share::OwnAccount } else { Share::Supplied };
    let client = client.with_share(share).with_rate_limiter(limiter);
    let token_secret = given.is_none().then(|| operator_token_secret(plane));
    Ok(Proved { declared: origin_now, versions, place, origin, client, build, given, token_secret, account })
}

/// The token, once the log has what did not work.
fn with_warning(acquired: Acquired) -> SecretString {
    if let Some(Blocked { reason, message }) = acquired.warning {
        tracing::warn!(%reason, "{message}");
    }
    acquired.token
}

/// What coderd said, as what has to come first.
fn remote(error: &client::Error) -> Blocked {
    Blocked { reason: engine::pipeline::outcome::reason_of(error.class()), message: error.words() }
}

/// Refuses an address that the operator does not connect to. What a name resolves to is checked when it is connected to.
pub(super) fn check_address(url: &url::Url, shared: &Shared) -> Result<(), Blocked> {
    shared.addresses.check_url(url).map_err(|why| Blocked {
        reason: Reason::AddressNotAllowed,
        message: format!(
            "the operator does not connect to {}: {why}; use another address, or start the operator with \
             --allow-local-addresses",
            url.host_str().unwrap_or_default()
        ),
    })
}

/// Adds what to do about a certificate that no trusted authority has signed.
fn with_hint(mut waiting: Blocked, plane: &CoderControlPlane) -> Blocked {
    if !waiting.message.contains("certificate") {
        return waiting;
    }
    let hint = match plane.spec.external.as_ref().map(External::ca) {
        Some(Some((secret, key))) => format!(
            "; neither the usual authorities nor those under {key} in Secret {secret} have signed it: put the \
             certificate of the authority that has into that Secret"
        ),
        Some(None) => {
            "; put the authority's certificate into a Secret and name it in spec.external.caSecretRef"
                .to_owned()
        }
        None if waiting.message.contains("not valid for name") => format!(
            "; no certificate of spec.tls is for the Service {}, which is where the operator sends its token: add that name \
             to a certificate, or a Secret with a certificate for that name to spec.tls.secretNames",
            address::host(plane)
        ),
        None => format!(
            "; put the certificate of the authority that has signed the certificate for {} under ca.crt into the Secret of \
             that certificate (spec.tls.secretNames: {})",
            address::host(plane),
            plane.spec.tls_secrets().join(", ")
        ),
    };
    waiting.message.push_str(&hint);
    waiting
}

/// Writes the status, if it is another one, and gives back the control plane as it is then.
async fn write_status(
    plane: &CoderControlPlane,
    next: CoderControlPlaneStatus,
    shared: &Shared,
) -> Result<CoderControlPlane, kube::Error> {
    if plane.status.as_ref() == Some(&next) {
        return Ok(plane.clone());
    }
    let written = CoderControlPlane { status: Some(next), ..plane.clone() };
    let cluster: &dyn engine::Cluster = &*shared.cluster;
    cluster.put_status(&written).await.map_err(error_of)
}
