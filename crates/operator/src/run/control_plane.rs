//! Control planes that run elsewhere: their address, their credentials, and whether both work.

use std::{sync::Arc, time::Instant};

use api::{CoderControlPlane, CoderControlPlaneStatus, condition, reason};
use client::{Client, deployment::BuildInfo};
use engine::{Credentials, Waiting, endpoint::endpoint};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Secret,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{
    Api, ResourceExt as _,
    api::{PartialObjectMeta, PostParams},
    runtime::{
        controller::{self, Action, Controller},
        reflector::ObjectRef,
        watcher,
    },
};
use secrecy::ExposeSecret;

use super::{
    Shared, drive, no_error,
    pace::{Retries, spread},
    pass::{self, About, Ending},
    planes::{Origin, PlaneName},
};
use crate::{cluster::Cluster, deployment::reach};

const WORKS: &str = "answers, and takes the credentials";

struct Context {
    shared: Arc<Shared>,
    retries: Retries,
}

pub(super) async fn run(shared: Arc<Shared>) {
    let context = Arc::new(Context { shared: Arc::clone(&shared), retries: Retries::default() });
    let controller = Controller::new(shared.api::<CoderControlPlane>(), watcher::Config::default());
    let known = controller.store();
    shared
        .metrics
        .show(controller.store(), |it| it.status.as_ref().map_or(&[], |it| it.conditions.as_slice()));
    // Only the metadata of Secrets is watched; one that is referred to is fetched when it changes.
    let secrets = shared.api::<PartialObjectMeta<Secret>>();
    let controller = controller.watches(secrets, watcher::Config::default(), move |secret| {
        let refers = |plane: &Arc<CoderControlPlane>| {
            plane.namespace() == secret.namespace()
                && names(plane).any(|name| Some(name) == secret.metadata.name.as_deref())
        };
        known.state().into_iter().filter(refers).map(|it| ObjectRef::from_obj(&*it)).collect::<Vec<_>>()
    });
    let controller = controller.graceful_shutdown_on(shared.stop.clone().cancelled_owned()).run(
        |plane, context: Arc<Context>| {
            pass::over(Arc::clone(&context.shared), Arc::clone(&plane), reconcile(plane, context))
        },
        no_error,
        context,
    );
    let passes = controller.inspect(|pass| {
        if let Err(controller::Error::ObjectNotFound(gone)) = pass {
            let name = (gone.namespace.clone().unwrap_or_default(), gone.name.clone());
            shared.metrics.forget(&name);
            shared.planes.remove(&name);
        }
    });
    drive::<CoderControlPlane, _>(&shared, passes).await;
}

/// The Secrets that a control plane refers to.
fn names(plane: &CoderControlPlane) -> impl Iterator<Item = &str> {
    let external = plane.spec.external.iter();
    external.flat_map(|it| {
        let authority = it.ca_secret_ref.iter().map(|it| it.name.as_str());
        authority.chain([it.credentials_secret_ref.name.as_str()])
    })
}

async fn reconcile(plane: Arc<CoderControlPlane>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let Context { shared, retries } = &*context;
    let name: PlaneName = (plane.namespace().unwrap_or_default(), plane.name_any());
    let uid = plane.uid().unwrap_or_default();
    if plane.metadata.deletion_timestamp.is_some() {
        shared.planes.remove(&name);
        shared.metrics.forget(&name);
        retries.forget(&uid);
        shared.passes.forget(&uid);
        return Ok(Action::await_change());
    }
    if plane.spec.is_suspended() {
        return Ok(Action::await_change());
    }
    let started = Instant::now();
    let found = prove(&plane, shared).await;
    shared.metrics.tried(&name, found.is_ok());
    let delay = if found.is_ok() {
        retries.forget(&uid);
        spread(plane.spec.interval(), &uid)
    } else {
        retries.after_failure(&uid, None)
    };
    // One that does not answer just now keeps its client, with its budget and its circuit.
    let silent = [reason::UNREACHABLE, reason::RATE_LIMITED, reason::SECRET_UNREADABLE];
    let is_silent = |it: &Waiting| silent.contains(&it.reason);
    if found.as_ref().is_err_and(|it| !is_silent(it)) {
        shared.planes.remove(&name);
    }
    let status = status(&plane, found.as_ref().map(|it| &it.build));
    if plane.status.as_ref() != Some(&status) {
        let mut written = (*plane).clone();
        written.status = Some(status);
        let planes = Api::<CoderControlPlane>::namespaced(shared.client.clone(), &name.0);
        planes.replace_status(&name.1, &PostParams::default(), &written).await?;
    }
    let (reason, message) =
        found.as_ref().map_or_else(|it| (it.reason, it.message.as_str()), |_| (reason::UP_TO_DATE, WORKS));
    let ending = Ending { reason, message, is_ready: found.is_ok(), is_trouble: found.is_err() };
    shared.passes.ended(&About::of(&*plane), ending, started.elapsed());
    // Known only now: who goes on because of it finds the status as it is.
    if let Ok(Proved { origin, client, build }) = found {
        shared.planes.insert(name, origin, client, build.deployment_id);
    }
    Ok(Action::requeue(delay))
}

/// A control plane that can be used.
struct Proved {
    origin: Origin,
    client: Client,
    build: BuildInfo,
}

/// Whether the address answers, is the deployment that we know, and takes the credentials.
async fn prove(plane: &CoderControlPlane, shared: &Shared) -> Result<Proved, Waiting> {
    let endpoint = endpoint(plane, &Cluster(shared.client.clone())).await?;
    let Credentials::Token(token) = &endpoint.credentials else {
        let message = "an account is not enough yet: add a token".to_owned();
        return Err(Waiting { reason: reason::SECRET_NOT_FOUND, message });
    };
    let authority = endpoint.authority.as_ref().map(ExposeSecret::expose_secret).unwrap_or_default();
    let origin =
        Origin::new(&[endpoint.url.as_str().as_bytes(), token.expose_secret().as_bytes(), authority]);
    let name = (plane.namespace().unwrap_or_default(), plane.name_any());
    let client = match shared.planes.client(&name, &origin) {
        Some(client) => client,
        None => reach(&endpoint, Some(token.clone()))
            .map_err(|message| Waiting { reason: reason::INVALID, message })?
            .observed_by(shared.metrics.observer(&name)),
    };
    let remote = |error: client::Error| Waiting {
        reason: engine::outcome::reason_of(error.class()),
        message: error.words(),
    };
    let build = client.build_info().await.map_err(remote)?;
    let known = plane.status.as_ref().and_then(|it| it.deployment_id.as_deref());
    let accepted = plane.annotations().get(api::annotation::ACCEPT_DEPLOYMENT);
    let is_other = known.is_some_and(|known| known != build.deployment_id.to_string());
    if is_other && accepted != Some(&build.deployment_id.to_string()) {
        let message = format!(
            "another deployment answers: to let it take the place of the one known so far, annotate with {}: {}",
            api::annotation::ACCEPT_DEPLOYMENT,
            build.deployment_id
        );
        return Err(Waiting { reason: reason::DEPLOYMENT_CHANGED, message });
    }
    client.current_user().await.map_err(remote)?;
    Ok(Proved { origin, client, build })
}

/// The status after a pass. It equals the one before when nothing is different.
fn status(plane: &CoderControlPlane, found: Result<&BuildInfo, &Waiting>) -> CoderControlPlaneStatus {
    let before = plane.status.clone().unwrap_or_default();
    let make = |kind: &str, reason: &str, message: &str| {
        let status = if found.is_ok() { "True" } else { "False" };
        let since = before.conditions.iter().find(|it| it.type_ == kind && it.status == status);
        Condition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: plane.metadata.generation,
            last_transition_time: since
                .map_or_else(|| Time(Timestamp::now()), |it| it.last_transition_time.clone()),
        }
    };
    let (reason, message) = match &found {
        Ok(_) => (reason::UP_TO_DATE, WORKS),
        Err(obstacle) => (obstacle.reason, obstacle.message.as_str()),
    };
    let conditions =
        vec![make(condition::READY, reason, message), make(condition::OPERATOR_ACCESS, reason, message)];
    CoderControlPlaneStatus {
        observed_generation: plane.metadata.generation,
        conditions,
        url: plane.spec.external.as_ref().map(|it| it.url.clone()),
        version: found.as_ref().ok().map(|it| it.version.clone()).or(before.version),
        deployment_id: found.as_ref().ok().map(|it| it.deployment_id.to_string()).or(before.deployment_id),
        operator_access_ready: Some(found.is_ok()),
        phase: Some(if found.is_ok() { "Ready" } else { "Pending" }.to_owned()),
        last_handled_reconcile_at: requested(plane).or(before.last_handled_reconcile_at),
    }
}

/// The annotation that asks for a pass now.
pub(super) fn requested(object: &impl kube::ResourceExt) -> Option<String> {
    let annotations = object.annotations();
    let asked = [api::annotation::RECONCILE_REQUESTED_AT, api::annotation::FLUX_REQUESTED_AT];
    asked.iter().find_map(|it| annotations.get(*it)).cloned()
}
