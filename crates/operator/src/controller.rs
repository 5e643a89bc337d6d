//! `coder-operator run`: the controllers.
//!
//! One controller for control planes, one for each registered kind. They share one [`Planes`]: a client, a rate budget, a
//! circuit and a snapshot for each control plane, so that a dead one delays nobody else.

mod about;
mod allowed;
mod app_state;
mod backoff;
mod control_plane;
mod controllers;
mod driver;
#[cfg(test)]
mod in_memory;
mod memory;
mod predicate;
mod provisioner;
mod reach;
mod reconcile;
mod record;
mod rounds;
mod wake;
mod watch;

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::{Context as _, Result};
use api::{CoderControlPlane, Reason};
use client::{AddressPolicy, Client, ClientOptions, Downloads};
use engine::{
    Blocked, Cluster, Endpoint,
    coder::Beside,
    kinds::control_plane::{access::AccessContext, facts::PlaneContext},
    ports::Reading,
    secrets::{KeyMemory, KeyStore, referenced::Unreadable},
};
use k8s_openapi::api::{core::v1::ObjectReference, rbac::v1::PolicyRule};
use kube::runtime::{
    controller::Action,
    reflector::{ObjectRef, Store},
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::{controllers::Controllers, memory::Memory, reconcile::Reconciles, rounds::Rounds};
use crate::{
    args::Run,
    cluster::{
        self,
        events::Events,
        fence::Fence,
        left::Left,
        own_writes::OwnWrites,
        owned::Owned,
        port::{KubeCluster, Reporter},
        secret_cache::SecretCache,
        watched::WatchedCluster,
    },
    connect::{self, Connect},
    index::{Index, KindName},
    lease::{Election, LeaseRef},
    planes::{PlaneName, Planes},
    telemetry::{
        admin::{self, Addresses, Phase, Progress},
        logs,
        metrics::Metrics,
    },
};

/// How long Events that are under way may take when the operator ends.
const EVENTS_END_WITHIN: Duration = Duration::from_secs(3);

/// What controllers share.
pub(crate) struct Shared {
    /// Whether writes may be sent.
    fence: Fence,
    planes: Planes,
    /// Whom a change of something wakes.
    index: Arc<Index>,
    /// The manifests of control planes, once their controller runs.
    control_planes: Arc<OnceLock<Store<CoderControlPlane>>>,
    owned: Arc<Owned>,
    /// Versions of manifests that the watch has yet to show.
    own_writes: Arc<OwnWrites>,
    /// What deletions at the same time share.
    rounds: Rounds,
    secrets: Arc<SecretCache>,
    reconciles: Arc<Reconciles>,
    memory: Arc<Memory>,
    metrics: Arc<Metrics>,
    /// The cluster, as the engine sees it.
    cluster: Arc<WatchedCluster>,
    /// What is remembered of provisioner keys.
    keys: Arc<KeyMemory>,
    /// How deployments are reached.
    connect: Connect,
    /// Where deployments may be.
    addresses: AddressPolicy,
    /// How archives of templates are read. `None` where HTTP cannot be used.
    downloads: Option<Downloads>,
    /// What `extraRules` of control planes may grant.
    allowed_rules: Arc<[PolicyRule]>,
    stop: CancellationToken,
}

/// What whoever starts the operator says of what it may do.
#[derive(Default)]
struct Limits {
    addresses: AddressPolicy,
    allowed_rules: Vec<PolicyRule>,
}

/// What the controllers work with: the same controllers for a cluster and deployments in memory.
struct Outside {
    cluster: Arc<dyn Cluster>,
    connect: Connect,
    /// Whether writes may be sent.
    fence: Fence,
}

impl Shared {
    fn new(outside: Outside, limits: Limits, metrics: Arc<Metrics>) -> Arc<Self> {
        let Outside { cluster, connect, fence } = outside;
        let Limits { addresses, allowed_rules } = limits;
        let (memory, stop) = (Arc::new(Memory::default()), CancellationToken::new());
        let index = Arc::<Index>::default();
        let secrets = Arc::new(SecretCache::new(Arc::clone(&index)));
        let owned = Arc::new(Owned::new(Arc::clone(&index)));
        let own_writes = Arc::default();
        let control_planes = Arc::default();
        let watched = WatchedCluster {
            behind: cluster,
            secrets: Arc::clone(&secrets),
            owned: Arc::clone(&owned),
            control_planes: Arc::clone(&control_planes),
            own_writes: Arc::clone(&own_writes),
            metrics: Arc::clone(&metrics),
            left: Left::default(),
        };
        Arc::new(Self {
            cluster: Arc::new(watched),
            connect,
            keys: Arc::default(),
            secrets,
            fence,
            planes: Planes::new(Arc::clone(&index)),
            index,
            control_planes,
            owned,
            own_writes,
            rounds: Rounds::default(),
            reconciles: Arc::new(Reconciles::new(Arc::clone(&metrics), Arc::clone(&memory), stop.clone())),
            memory,
            metrics,
            addresses,
            downloads: Downloads::new(addresses).ok(),
            allowed_rules: allowed_rules.into(),
            stop,
        })
    }

    /// A client for a declared deployment, without a token. Writes pass the fence once they are `guarded_by` it.
    fn reach(&self, endpoint: &Endpoint) -> Result<Client, Blocked> {
        let invalid = |message| Blocked { reason: Reason::Invalid, message };
        let transport = (self.connect)(endpoint).map_err(invalid)?;
        let options = ClientOptions { url: endpoint.url.clone(), token: None, transport };
        Client::new(options).map_err(|error| invalid(error.to_string()))
    }

    /// The address of a control plane by its status, as the watch has shown it.
    fn known_url(&self, name: &PlaneName) -> Option<String> {
        self.known_control_plane(name)?.status.as_ref()?.url.clone()
    }

    /// The manifest of a control plane as the watch has shown it. `None` until it has.
    fn known_control_plane(&self, name: &PlaneName) -> Option<Arc<CoderControlPlane>> {
        self.control_planes.get()?.get(&ObjectRef::new(&name.1).within(&name.0))
    }

    /// The same; a control plane that the watch has not shown is asked for.
    async fn control_plane(&self, name: &PlaneName) -> Result<Option<CoderControlPlane>, Unreadable> {
        match self.known_control_plane(name) {
            Some(known) => Ok(Some((*known).clone())),
            None => self.read_control_plane(name).await,
        }
    }

    /// The manifest of a control plane as it is now. `None` where it does not exist.
    async fn read_control_plane(&self, name: &PlaneName) -> Result<Option<CoderControlPlane>, Unreadable> {
        let cluster: &dyn Cluster = &*self.cluster;
        Ok(cluster.read(&name.0, &name.1, Reading::Now).await?)
    }

    /// What deployments have beside them.
    fn beside(&self) -> Beside {
        Beside {
            cluster: Arc::clone(&self.cluster) as _,
            references: Arc::clone(&self.cluster) as _,
            memory: Arc::clone(&self.keys),
            writes_status: true,
            fingerprints: Some(Arc::clone(&self.planes.fingerprints)),
            allowed_rules: Some(Arc::clone(&self.allowed_rules)),
            tokens: Arc::clone(&self.planes.tokens),
        }
    }

    /// The same, and how archives of templates are read.
    fn around(&self) -> (Beside, Option<Downloads>) {
        (self.beside(), self.downloads.clone())
    }

    /// Where provisioner keys are kept.
    fn key_store(&self) -> KeyStore<'_> {
        KeyStore { cluster: &*self.cluster, memory: &self.keys, writes_status: true }
    }

    /// Forgets an object that is gone.
    fn forget(&self, kind: KindName, namespace: &str, name: &str) {
        self.keys.forget(&kind, namespace, name);
        self.memory.forget(kind, namespace, name);
    }

    /// What the objects of control planes are made with.
    fn plane_context(&self) -> PlaneContext<'_> {
        PlaneContext {
            cluster: &*self.cluster,
            allowed_rules: &self.allowed_rules,
            fingerprints: Some(&self.planes.fingerprints),
        }
    }

    /// What tokens of control planes are acquired with.
    fn access_context(&self) -> AccessContext<'_> {
        AccessContext { objects: self.plane_context(), tokens: &self.planes.tokens }
    }
}

/// The Pod that this runs in, as its manifest tells it.
fn own_pod() -> Option<ObjectReference> {
    let told = |variable: &str| std::env::var(variable).ok().filter(|it| !it.is_empty());
    Some(ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(told("POD_NAME")?),
        namespace: Some(told("POD_NAMESPACE")?),
        ..ObjectReference::default()
    })
}

/// Runs until told to end, and returns whether that was the reason. Any other reason is in the log.
pub(crate) async fn run(args: Run) -> bool {
    logs::begin(args.log_format);
    let ended = act(args).await;
    if let Err(error) = &ended {
        tracing::error!("{error:#}");
    }
    ended.is_ok()
}

async fn act(args: Run) -> Result<()> {
    let allowed_rules = allowed::read(args.allow_rules.as_deref())?;
    let fence = if args.leader_elect { Fence::closed() } else { Fence::open() };
    let clients = cluster::clients(fence).await?;
    let mut told = Box::pin(told_to_end(signal(SignalKind::terminate()).context("listen for SIGTERM")?));
    let (metrics, progress) = (Arc::new(Metrics::default()), Progress::default());
    let addresses = Addresses { health: args.health_address, metrics: args.metrics_address };
    // Answers until the very end.
    let _servers = admin::serve(addresses, progress.clone(), Arc::clone(&metrics)).await?;
    let mut election = args.leader_elect.then(|| {
        let client = clients.electing.clone();
        let lease = lease_of(&args, client.default_namespace());
        progress.set(Phase::StandingBy);
        Election::begin(client, lease, progress.clone(), clients.fence.clone())
    });
    let leads = tokio::select! {
        won = won(&mut election) => {
            anyhow::ensure!(won, "leader election stopped before this process became the leader; restart to rejoin");
            true
        }
        () = &mut told => false,
    };
    if leads {
        metrics.lead(true);
        let addresses = if args.allow_local_addresses { AddressPolicy::Any } else { AddressPolicy::NotLocal };
        let limits = Limits { addresses, allowed_rules };
        let events = Arc::new(Events::new(clients.acting.clone()));
        let reporter = Reporter::Events { events: Arc::clone(&events), own_pod: own_pod() };
        let outside = Outside {
            cluster: Arc::new(KubeCluster::new(&clients, args.namespace, reporter)),
            connect: Arc::new(move |endpoint| connect::http(endpoint, addresses)),
            fence: clients.fence,
        };
        let shared = Shared::new(outside, limits, Arc::clone(&metrics));
        let mut controllers = Controllers::start(&shared);
        progress.set(Phase::Acting);
        tracing::info!("running");
        tokio::select! {
            () = &mut told => {}
            // What is under way is dropped and not waited for: another one may act soon.
            () = lost(&mut election) => return Err(no_longer_leads()),
            error = controllers.failed() => return Err(error),
        }
        progress.set(Phase::Ending);
        tracing::info!("ending");
        tokio::select! {
            () = end(controllers, &events) => {}
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

/// Ends the controllers, and gives Events that are under way a moment.
async fn end(controllers: Controllers, events: &Events) {
    controllers.end().await;
    tokio::time::timeout(EVENTS_END_WITHIN, events.flush()).await.ok();
}

/// The Lease that the arguments name; in the namespace of the pod when they name none.
fn lease_of(args: &Run, own_namespace: &str) -> LeaseRef {
    let namespace = args.lease_namespace.as_deref().or(args.namespace.as_deref()).unwrap_or(own_namespace);
    LeaseRef { namespace: namespace.to_owned(), name: args.lease_name.clone() }
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
        "leadership was lost: the Lease was not renewed in time, or another operator holds it; restart to rejoin the election"
    )
}

async fn told_to_end(mut terminated: Signal) {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}

/// What a controller would do about an error of a reconcile. There is none: [`reconcile`] deals with all of them.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "kube's signature")]
fn no_error<K, C>(_: Arc<K>, never: &Infallible, _: Arc<C>) -> Action {
    match *never {}
}
