//! Kubernetes as the operator reaches it: clients, watches, and the engine's port.

mod attempts;
pub(crate) mod cache;
pub(crate) mod complaints;
pub(crate) mod config_maps;
#[cfg(test)]
mod conformance;
pub(crate) mod events;
pub(crate) mod fence;
pub(crate) mod left;
pub(crate) mod own_writes;
pub(crate) mod owned;
pub(crate) mod port;
pub(crate) mod secret_cache;
mod watch;
pub(crate) mod watched;

use std::time::Duration;

use anyhow::{Context as _, Result};
use engine::{
    objects::FIELD_MANAGER,
    ports::{ClusterError, RandomBytes},
};
use kube::{
    Client, Config,
    api::{ApiResource, PatchParams, PostParams},
    client::{Body, ClientBuilder},
    config::Kubeconfig,
    core::GroupVersionKind,
};
use tower::filter::FilterLayer;
use uuid::Uuid;

use self::attempts::{Repeats, bounded};
use self::fence::Fence;

/// How long a watch may hear nothing: the server ends one after 290 seconds.
const SILENT_FOR: Duration = Duration::from_secs(330);

/// Clients of one cluster.
pub(crate) struct Clients {
    /// For requests, each with an end. Writes pass the fence.
    pub(crate) acting: Client,
    /// For the Lease, which is written also while nothing else may be.
    pub(crate) electing: Client,
    /// Whether writes may be sent.
    pub(crate) fence: Fence,
    /// For watches, which may hear nothing for minutes.
    pub(crate) watching: Client,
}

/// Clients of the cluster of the pod or of the kubeconfig.
pub(crate) async fn clients(fence: Fence) -> Result<Clients> {
    clients_of(config().await?, fence)
}

/// Clients of that cluster. Every attempt to write passes the fence.
fn clients_of(mut config: Config, fence: Fence) -> Result<Clients> {
    config.reset_reader_on_write = true;
    // kube repeats writes too, behind the fence, and waits for as long as the server asks.
    config.default_retry = false;
    let client = |silent_for: Duration| {
        let mut config = config.clone();
        config.read_timeout = Some(silent_for);
        ClientBuilder::try_from(config).context("make a client of the cluster")
    };
    let acting = client(attempts::TIMEOUT)?.with_layer(&fenced(fence.clone())).build();
    Ok(Clients {
        acting: bounded(acting, Repeats::Twice),
        // The election has retries of its own.
        electing: bounded(client(attempts::TIMEOUT)?.build(), Repeats::Never),
        fence,
        // A watch that fails begins anew, with a backoff.
        watching: client(SILENT_FOR)?.build(),
    })
}

/// Refuses writes while the fence is closed.
fn fenced(
    fence: Fence,
) -> FilterLayer<
    impl FnMut(http::Request<Body>) -> Result<http::Request<Body>, String> + Clone + Send + 'static,
> {
    FilterLayer::new(move |request: http::Request<Body>| {
        let refusal = fence.refusal_now().filter(|_| !request.method().is_safe());
        refusal.map_or(Ok(request), |why| Err(format!("not sent: {why}")))
    })
}

/// How the cluster is reached. A proxy is used for it only where the kubeconfig names one: the variables are for coderd.
async fn config() -> Result<Config> {
    let mut config = Config::infer().await.context("find a cluster: set KUBECONFIG, or run in a pod")?;
    let named = Kubeconfig::read().ok().and_then(|it| {
        let context =
            it.contexts.iter().find(|context| Some(&context.name) == it.current_context.as_ref())?;
        let cluster = &context.context.as_ref()?.cluster;
        it.clusters.iter().find(|found| found.name == *cluster)?.cluster.as_ref()?.proxy_url.clone()
    });
    if named.is_none() {
        config.proxy_url = None;
    }
    Ok(config)
}

pub(crate) fn patches() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

pub(crate) fn writes() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// The resource of a kind.
fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

fn failure(error: kube::Error) -> ClusterError {
    match error {
        kube::Error::Api(status) => ClusterError::Refused(status),
        other => ClusterError::NoAnswer(format!("{:#}", anyhow::Error::from(other))),
    }
}

/// Random bytes of the operating system.
pub(crate) fn random() -> RandomBytes {
    let drawn = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()];
    // Without the two bytes of each that say that it is a random UUID.
    let random = drawn.iter().flat_map(|it| {
        let bytes = it.as_bytes().iter().enumerate();
        bytes.filter(|(index, _)| ![6, 8].contains(index)).map(|(_, byte)| *byte)
    });
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(random).for_each(|(place, byte)| *place = byte);
    RandomBytes::new(bytes)
}
