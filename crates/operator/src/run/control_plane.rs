//! Control planes that run elsewhere: their address, their credentials, and whether both work.

mod access;
pub(super) mod departure;
pub(super) mod licensing;
mod vault;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use api::{CoderControlPlane, CoderControlPlaneStatus, annotation, finalizer, reason};
use client::{Client, deployment::BuildInfo};
use engine::{
    Credentials, Waiting,
    conditions::Truth,
    control_plane::{
        access::Account,
        report::{self, Findings, Readiness},
    },
    endpoint::endpoint,
};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::PartialObjectMeta,
    runtime::{
        PredicateConfig, WatchStreamExt as _,
        controller::{self, Action, Controller},
        reflector::{self, ObjectRef},
        watcher,
    },
};
use secrecy::ExposeSecret as _;
use uuid::Uuid;

use super::{
    Shared, drive, no_error,
    pace::spread,
    pass::{self, About, Ending, Target},
    planes::{Origin, Plane, PlaneName},
    record::{has_finalizer, leave_behind, set_finalizer, writes},
    trigger,
};
use crate::{cluster::Cluster, deployment::reach};
use departure::{Departure, leaving};

/// Reasons of a control plane that may answer again at any moment: what belongs to it goes on trying, with the same client.
const SILENT: [&str; 3] = [reason::UNREACHABLE, reason::RATE_LIMITED, reason::SECRET_UNREADABLE];

/// Reasons of a control plane whose client is still good for deletions: a Secret may be deleted together with what it is
/// needed for. One with other words in it is meant.
const KEPT: [&str; 2] = [reason::SECRET_NOT_FOUND, reason::SECRET_NOT_WRITTEN];

/// How soon a licence that is not in force is looked at again.
const LICENSE_RETRY: Duration = Duration::from_secs(30);

pub(super) async fn run(shared: Arc<Shared>) {
    let (known, writer) = reflector::store();
    let changes = watcher(shared.api::<CoderControlPlane>(), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .applied_objects()
        .predicate_filter(trigger::of::<CoderControlPlane>(), PredicateConfig::default());
    shared.metrics.show(known.clone(), |it| it.status.as_ref().map_or(&[], |it| it.conditions.as_slice()));
    let (of_secrets, of_planes, objects) = (known.clone(), known.clone(), known.clone());
    let controller = Controller::for_stream(changes, known)
        // Only the metadata of Secrets is watched; one that is referred to is fetched when it changes.
        .watches(shared.api::<PartialObjectMeta<Secret>>(), watcher::Config::default(), move |secret| {
            let refers = |plane: &Arc<CoderControlPlane>| {
                plane.namespace() == secret.namespace()
                    && (names(plane).any(|name| Some(name) == secret.metadata.name.as_deref())
                        || secret.metadata.name == Some(engine::control_plane::operator_token_secret(plane)))
            };
            of_secrets
                .state()
                .into_iter()
                .filter(refers)
                .map(|it| ObjectRef::from_obj(&*it))
                .collect::<Vec<_>>()
        })
        // What waits for the last of its dependents goes when that is gone.
        .reconcile_on(shared.planes.changes().flat_map(move |_| {
            let leaving = |it: &Arc<CoderControlPlane>| it.metadata.deletion_timestamp.is_some();
            let leaving = of_planes.state().into_iter().filter(leaving);
            futures::stream::iter(leaving.map(|it| ObjectRef::from_obj(&*it)).collect::<Vec<_>>())
        }))
        .graceful_shutdown_on(shared.stop.clone().cancelled_owned())
        .run(
            move |object, shared: Arc<Shared>| {
                // No line: what others wait for does not wait for them.
                let target = Target { object, objects: objects.clone(), plane: None };
                pass::over(Arc::clone(&shared), target, |it| reconcile(it, shared))
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
    drive::<CoderControlPlane, _>(&shared, passes).await;
}

fn forget(name: &PlaneName, shared: &Shared) {
    shared.metrics.forget(name);
    shared.planes.forget(name);
}

/// The Secrets that a control plane refers to.
fn names(plane: &CoderControlPlane) -> impl Iterator<Item = &str> {
    let external = plane.spec.external.iter();
    let external = external.flat_map(|it| {
        let authority = it.ca_secret_ref.iter().map(|it| it.name.as_str());
        authority.chain([it.credentials_secret_ref.name.as_str()])
    });
    external.chain(plane.spec.licenses().map(|(name, _)| name))
}

async fn reconcile(plane: Arc<CoderControlPlane>, shared: Arc<Shared>) -> Result<Action, kube::Error> {
    let (shared, name, about) = (&*shared, name_of(&plane), About::of(&*plane));
    if plane.metadata.deletion_timestamp.is_some() {
        return depart(&plane, shared).await;
    }
    if plane.spec.is_suspended() {
        shared.planes.block(&name, reason::SUSPENDED, true);
        let message = "suspended: nothing is read or changed, and nothing that belongs to it is".to_owned();
        let because = Waiting { reason: reason::SUSPENDED, message };
        let next = report::unlooked(&plane, Truth::Unknown, &because, Timestamp::now());
        write_status(&plane, next, shared).await?;
        return Ok(Action::await_change());
    }
    if !has_finalizer(&*plane, finalizer::CONTROL_PLANE) {
        set_finalizer(&*plane, finalizer::CONTROL_PLANE, true, shared).await?;
        return Ok(Action::await_change());
    }
    let started = Instant::now();
    let proved = prove(&plane, shared).await;
    shared.metrics.tried(&name, proved.is_ok());
    let known = shared.planes.last_known(&name).is_some();
    if let Some(why) = proved.as_ref().err().filter(|it| !(known && SILENT.contains(&it.reason))) {
        shared.planes.block(&name, why.reason, KEPT.contains(&why.reason));
    }
    let mut plane = (*plane).clone();
    let licensing = match &proved {
        Ok(it) => Some(licensing::keep(&mut plane, &it.client, it.build.deployment_id, shared).await?),
        Err(_) => None,
    };
    let findings = Findings {
        access: proved.as_ref().map(|it| &it.build),
        url: plane.spec.external.as_ref().map(|it| it.url.clone()),
        licensing: licensing.as_ref(),
        requested: requested(&plane),
        now: Timestamp::now(),
    };
    write_status(&plane, report::status(&plane, &findings), shared).await?;
    let Readiness { is_ready, reason, message, .. } = findings.readiness();
    let ending = Ending { reason, message: &message, is_ready, is_trouble: !is_ready };
    shared.passes.ended(&about, ending, started.elapsed());
    let delay = if proved.is_err() {
        shared.memory.after_failure(&about, None)
    } else {
        shared.memory.succeeded(&about);
        let interval = spread(plane.spec.interval(), &about.uid);
        if is_ready { interval } else { interval.min(LICENSE_RETRY) }
    };
    // Known only now: who goes on because of it finds the status as it is.
    if let Ok(proved) = proved {
        shared.planes.admit(&name, proved.into_plane());
    }
    Ok(Action::requeue(delay))
}

fn name_of(plane: &CoderControlPlane) -> PlaneName {
    (plane.namespace().unwrap_or_default(), plane.name_any())
}

/// Lets a control plane go, after everything that needs it for its own deletion.
async fn depart(plane: &CoderControlPlane, shared: &Shared) -> Result<Action, kube::Error> {
    let (name, about) = (name_of(plane), About::of(plane));
    if !has_finalizer(plane, finalizer::CONTROL_PLANE) {
        shared.passes.forget(&about);
        forget(&name, shared);
        return Ok(Action::await_change());
    }
    shared.planes.block(&name, reason::DELETING, true);
    let (age, is_forced) = leaving(plane);
    let dependents = departure::dependents(&shared.client, &name).await?;
    match departure::decide(&dependents, age, is_forced) {
        Departure::Wait(awaited) => {
            let message = format!("waits until these are deleted: {}", shortened(&awaited));
            let because = Waiting { reason: reason::DELETING, message };
            let next = report::unlooked(plane, Truth::False, &because, Timestamp::now());
            write_status(plane, next, shared).await?;
            // Each of them tells when it is gone; this is for those that do not.
            Ok(Action::requeue(shared.memory.after_failure(&about, None)))
        }
        Departure::Go(left) => {
            if !left.is_empty() {
                let note = format!("it goes before what belongs to it: {}", shortened(&left));
                leave_behind(plane, reason::DELETING, &note, shared).await;
            }
            licensing::end(plane, shared).await?;
            access::end(plane, shared).await?;
            set_finalizer(plane, finalizer::CONTROL_PLANE, false, shared).await?;
            shared.passes.forget(&about);
            forget(&name, shared);
            Ok(Action::await_change())
        }
    }
}

/// A list as far as a person reads it.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}

/// A control plane that can be used.
pub(super) struct Proved {
    /// Where it is, without the credentials.
    place: Origin,
    origin: Origin,
    client: Client,
    build: BuildInfo,
}

impl Proved {
    pub(super) fn into_plane(self) -> Plane {
        Plane::new(self.place, self.origin, self.client, self.build.deployment_id)
    }
}

/// Whether the address answers, is the deployment that we know, and takes the credentials.
pub(super) async fn prove(plane: &CoderControlPlane, shared: &Shared) -> Result<Proved, Waiting> {
    let endpoint = endpoint(plane, &Cluster(shared.client.clone())).await?;
    let name = name_of(plane);
    let place = Origin::new(&[endpoint.url.as_str().as_bytes(), endpoint.authority()]);
    // Asked without a token: who answers has to be known before anything secret is sent.
    let anonymous = match shared.planes.client(&name, &place) {
        Some(client) => client,
        None => reach(&endpoint, None)
            .map_err(|message| Waiting { reason: reason::INVALID, message })?
            .observed_by(shared.metrics.observer(&name)),
    };
    let build = anonymous.build_info().await.map_err(|it| with_hint(remote(&it)))?;
    check_identity(plane, build.deployment_id)?;
    let token = match &endpoint.credentials {
        Credentials::Token(token) => token.clone(),
        Credentials::Account { email, password } => {
            let account = Account { email: email.clone(), password: password.clone() };
            access::token(plane, &anonymous, build.deployment_id, &account, shared).await?
        }
    };
    let origin = place.with(token.expose_secret().as_bytes());
    let client = anonymous
        .with_token(token)
        .map_err(|error| Waiting { reason: reason::UNAUTHORIZED, message: error.to_string() })?;
    if let Err(error) = client.current_user().await {
        // A token of ours that is not taken any more is replaced at the next pass.
        shared.planes.set_minted(&name, None);
        return Err(remote(&error));
    }
    Ok(Proved { place, origin, client, build })
}

/// What coderd said, as what has to come first.
fn remote(error: &client::Error) -> Waiting {
    Waiting { reason: engine::outcome::reason_of(error.class()), message: error.words() }
}

/// Adds what to do about a certificate that nobody vouches for.
fn with_hint(mut waiting: Waiting) -> Waiting {
    if waiting.message.contains("certificate") {
        waiting.message.push_str(
            "; put the authority's certificate into a Secret and name it in spec.external.caSecretRef",
        );
    }
    waiting
}

/// Another deployment under the same name stops everything until a person says that it may.
fn check_identity(plane: &CoderControlPlane, deployment: Uuid) -> Result<(), Waiting> {
    let found = deployment.to_string();
    let known = plane.status.as_ref().and_then(|it| it.deployment_id.as_deref());
    let accepted = plane.annotations().get(annotation::ACCEPT_DEPLOYMENT);
    if known.is_none_or(|it| it == found) || accepted == Some(&found) {
        return Ok(());
    }
    let message = format!(
        "another deployment answers: to let it take the place of the one known so far, annotate with {}: {found}",
        annotation::ACCEPT_DEPLOYMENT,
    );
    Err(Waiting { reason: reason::DEPLOYMENT_CHANGED, message })
}

/// Writes the status, if it is another one.
async fn write_status(
    plane: &CoderControlPlane,
    next: CoderControlPlaneStatus,
    shared: &Shared,
) -> Result<(), kube::Error> {
    if plane.status.as_ref() == Some(&next) {
        return Ok(());
    }
    let written = CoderControlPlane { status: Some(next), ..plane.clone() };
    let planes =
        Api::<CoderControlPlane>::namespaced(shared.client.clone(), &plane.namespace().unwrap_or_default());
    planes.replace_status(&plane.name_any(), &writes(), &written).await?;
    Ok(())
}

/// The annotation that asks for a pass now.
pub(super) fn requested(object: &impl kube::ResourceExt) -> Option<String> {
    let annotations = object.annotations();
    let asked = [api::annotation::RECONCILE_REQUESTED_AT, api::annotation::FLUX_REQUESTED_AT];
    asked.iter().find_map(|it| annotations.get(*it)).cloned()
}
