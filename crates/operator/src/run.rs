//! `coder-operator run`: the controllers.
//!
//! One controller for control planes, one for each registered kind. They share one [`Planes`]: a client, a rate budget, a
//! circuit and a snapshot for each control plane, so that a dead one delays nobody else.

mod control_plane;
mod object;
mod pace;
mod planes;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use engine::{Kind, kinds};
use futures::{StreamExt as _, future::BoxFuture};
use kube::{
    Client, Config,
    config::Kubeconfig,
    runtime::events::{Recorder, Reporter},
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::terminal::say;
use planes::Planes;

/// What controllers share.
pub(crate) struct Shared {
    client: Client,
    planes: Planes,
    recorder: Recorder,
    /// The namespace that is looked at; all of them when absent.
    namespace: Option<String>,
    stop: CancellationToken,
}

impl Shared {
    fn api<K>(&self) -> kube::Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        match &self.namespace {
            Some(namespace) => kube::Api::namespaced(self.client.clone(), namespace),
            None => kube::Api::all(self.client.clone()),
        }
    }
}

pub(crate) async fn run(namespace: Option<String>) -> Result<()> {
    let client = connect().await?;
    let reporter = Reporter { controller: "coder-operator".to_owned(), instance: None };
    let stop = CancellationToken::new();
    let shared = Arc::new(Shared {
        recorder: Recorder::new(client.clone(), reporter),
        client,
        planes: Planes::default(),
        namespace,
        stop: stop.clone(),
    });
    let tasks = TaskTracker::new();
    tasks.spawn(control_plane::run(Arc::clone(&shared)));
    let mut start = Start { shared: &shared, controllers: Vec::new() };
    kinds::visit(&mut start);
    for controller in start.controllers {
        tasks.spawn(controller);
    }
    say("running");
    let mut terminated = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
    say("ending");
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// A client of the cluster. A proxy is used for it only where the kubeconfig names one: the variables are for coderd.
async fn connect() -> Result<Client> {
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
    Client::try_from(config).context("make a client of the cluster")
}

/// Starts a controller for every kind that it is shown.
struct Start<'a> {
    shared: &'a Arc<Shared>,
    controllers: Vec<BoxFuture<'static, ()>>,
}

impl kinds::Visitor for Start<'_> {
    fn visit<K: Kind>(&mut self) {
        self.controllers.push(Box::pin(object::run::<K>(Arc::clone(self.shared))));
    }
}

/// Drives a controller to its end. Its errors are those of the watch, which recovers by itself, and of objects, which have
/// been told in their status.
async fn drive<S: futures::Stream + Send>(controller: S) {
    controller.for_each(|_| std::future::ready(())).await;
}
