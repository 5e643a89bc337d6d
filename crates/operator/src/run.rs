//! `coder-operator run`: the controllers.
//!
//! One controller for control planes, one for each registered kind. They share one [`Planes`]: a client, a rate budget, a
//! circuit and a snapshot for each control plane, so that a dead one delays nobody else.

mod admin;
mod control_plane;
mod lease;
mod memory;
mod metrics;
mod object;
mod pace;
mod planes;
mod record;
mod trigger;

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use engine::{Kind, kinds};
use futures::{StreamExt as _, future::BoxFuture};
use kube::{
    Client,
    runtime::{
        controller::Action,
        events::{Recorder, Reporter},
    },
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{args::Run, cluster, terminal::say};
use admin::{Addresses, Phase, Progress};
use lease::Election;
use metrics::{KindName, Metrics};
use planes::Planes;

/// How long controllers may take to end; a pod has half a minute.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// What controllers share.
pub(crate) struct Shared {
    client: Client,
    planes: Planes,
    metrics: Arc<Metrics>,
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

pub(crate) async fn run(args: Run) -> Result<()> {
    let client = cluster::connect().await?;
    let mut told = Box::pin(told_to_end(signal(SignalKind::terminate()).context("listen for SIGTERM")?));
    let (metrics, progress) = (Arc::new(Metrics::default()), Progress::default());
    let addresses = Addresses { health: args.health_address, metrics: args.metrics_address };
    // Answers until the very end.
    let _servers = admin::serve(addresses, progress.clone(), Arc::clone(&metrics)).await?;
    let mut election = args.leader_elect.then(|| {
        let namespace = args.lease_namespace.as_deref().or(args.namespace.as_deref());
        Election::begin(client.clone(), namespace.unwrap_or_else(|| client.default_namespace()))
    });
    let leads = tokio::select! {
        won = won(&mut election) => {
            anyhow::ensure!(won, "the election ended without us");
            true
        }
        () = &mut told => false,
    };
    if leads {
        metrics.lead(true);
        let controllers = Controllers::start(client, args.namespace, Arc::clone(&metrics));
        progress.set(Phase::Acting);
        say("running");
        tokio::select! {
            () = &mut told => {}
            // What is under way is dropped and not waited for: another one may act soon.
            () = lost(&mut election) => return Err(no_longer_leads()),
        }
        progress.set(Phase::Ending);
        say("ending");
        tokio::select! {
            () = controllers.end() => {}
            () = lost(&mut election) => return Err(no_longer_leads()),
        }
        metrics.lead(false);
    }
    progress.set(Phase::Ending);
    if let Some(election) = election {
        election.end().await;
    }
    Ok(())
}

/// Returns when we lead, at once where there is no election; or, with false, when we never will.
async fn won(election: &mut Option<Election>) -> bool {
    match election {
        Some(election) => election.won().await,
        None => true,
    }
}

/// Returns when we may not act any more; never where there is no election.
async fn lost(election: &mut Option<Election>) {
    match election {
        Some(election) => election.lost().await,
        None => std::future::pending().await,
    }
}

fn no_longer_leads() -> anyhow::Error {
    anyhow::anyhow!(
        "leadership was lost: the lease was not renewed in time, or another operator holds it; start again to stand for it"
    )
}

async fn told_to_end(mut terminated: Signal) {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}

/// The controllers, and how to end them.
struct Controllers {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Controllers {
    fn start(client: Client, namespace: Option<String>, metrics: Arc<Metrics>) -> Self {
        let reporter = Reporter { controller: "coder-operator".to_owned(), instance: None };
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            recorder: Recorder::new(client.clone(), reporter),
            client,
            planes: Planes::default(),
            metrics,
            namespace,
            stop: stop.clone(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(control_plane::run(Arc::clone(&shared)));
        let mut start = Start { shared: &shared, controllers: Vec::new() };
        kinds::visit(&mut start);
        for controller in start.controllers {
            tasks.spawn(controller);
        }
        Self { tasks, stop }
    }

    /// Lets what is under way come to its end, and starts nothing more. What has not ended in time is cut off: a
    /// controller that is still reading its first list does not hear that it should stop.
    async fn end(mut self) {
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(ENDS_WITHIN, ended).await.is_err() {
            self.tasks.shutdown().await;
        }
    }
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

/// When an object is looked at again whose pass the cluster cut short.
fn again(kind: KindName, shared: &Shared) -> Action {
    shared.metrics.cut_short(kind);
    Action::requeue(Duration::from_secs(5))
}

/// Drives a controller to its end. Its errors are those of the watch, which recovers by itself, and of objects, which have
/// been told in their status.
async fn drive<S: futures::Stream + Send>(controller: S) {
    controller.for_each(|_| std::future::ready(())).await;
}
