//! A node agent for which pods are local processes.
//!
//! It registers a Node and keeps its lease, binds pods to it, runs their containers and keeps their status true, shows their
//! logs, and serves a proxy that knows the names of Services. The files below have one of these subjects each; `pod` and
//! `container` hold the life cycle, everything that decides something is a function without IO.

mod account;
mod container;
mod environment;
mod events;
mod image;
mod logs;
mod objects;
mod place;
mod pod;
mod probe;
mod proxy;
mod registration;
mod rewrite;
mod scheduler;
mod services;
mod status;
mod view;
mod volumes;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Api, ResourceExt as _,
    runtime::{WatchStreamExt as _, reflector, watcher},
};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    coderd::licensed_arguments,
    kubernetes::Kubernetes,
    loopback::{Block, proxy_variables},
    parts::Parts,
    run::Run,
};
use events::Events;
use image::{Image, Images};
use services::Services;

/// What a node is made of.
pub(crate) struct AgentOptions {
    pub(crate) name: String,
    pub(crate) client: kube::Client,
    /// Where the API server answers, for pods that look for it.
    pub(crate) api_server: SocketAddr,
    /// The cluster's authority: who asks for logs has a certificate of it.
    pub(crate) authority: PathBuf,
    /// Where the folders of pods are made.
    pub(crate) folder: PathBuf,
    pub(crate) addresses: Arc<Block>,
    /// The mark of the run that the processes belong to.
    pub(crate) run: String,
    pub(crate) images: Images,
    /// The PATH of containers.
    pub(crate) path: String,
    /// The settings of Terraform in containers.
    pub(crate) terraform_settings: PathBuf,
    /// How long a container that crashed twice stays down; doubled from crash to crash.
    pub(crate) restart_delay: Duration,
}

/// A running agent. Dropping it, or stopping it, is a node's loss of power: its processes go on unwatched.
#[derive(Debug)]
pub(crate) struct Agent {
    proxy: SocketAddr,
    images: PathBuf,
    cancel: CancellationToken,
    tasks: TaskTracker,
}

/// What the parts of an agent share.
struct Node {
    options: AgentOptions,
    events: Events,
    proxy: SocketAddr,
    /// Where the API server asks for logs.
    logs: SocketAddr,
}

impl Agent {
    /// Registers the node and starts to run pods.
    pub(crate) async fn start(options: AgentOptions) -> Result<Self> {
        let listener =
            TcpListener::bind((options.addresses.server_address(), 0)).await.context("bind the proxy")?;
        let proxy = listener.local_addr().context("ask for the proxy's port")?;
        let asked = logs::Listener::bind(&options).await?;
        let events = Events::new(options.client.clone(), &options.name);
        let node = Arc::new(Node { options, events, proxy, logs: asked.address });
        registration::register(&node).await?;

        let images = node.options.images.added().to_owned();
        let agent = Self { proxy, images, cancel: CancellationToken::new(), tasks: TaskTracker::new() };
        let (pod_store, pods) = reflector::store();
        let (service_store, services) = reflector::store();
        agent.spawn(asked.serve(Arc::clone(&node), pod_store.clone()));
        let known = Services { known: service_store, pods: pod_store, turns: Mutex::default() };
        agent.spawn(registration::keep_lease(Arc::clone(&node)));
        agent.spawn(scheduler::run(Arc::clone(&node)));
        agent.spawn(watch_services(Arc::clone(&node), services));
        agent.spawn(watch_pods(Arc::clone(&node), pods, agent.cancel.clone(), agent.tasks.clone()));
        agent.spawn(proxy::serve(listener, Arc::new(known)));
        Ok(agent)
    }

    /// Where images are added while the node runs.
    pub(crate) fn images(&self) -> &Path {
        &self.images
    }

    /// The address of the proxy that knows the names of Services.
    pub(crate) fn proxy_url(&self) -> String {
        format!("http://{}", self.proxy)
    }

    /// Stops the agent and waits until it does nothing any more.
    pub(crate) async fn stop(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.cancel.clone();
        self.tasks.spawn(async move { cancel.run_until_cancelled(task).await });
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl AgentOptions {
    /// The node of a bed, with the images that its parts are.
    pub(crate) async fn of_bed(run: &Run, parts: &Parts, kubernetes: &Kubernetes) -> Result<Self> {
        let machine = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
        let terraform = parts.terraform.parent().unwrap_or_else(|| Path::new("/usr/bin")).display();
        // Templates start agents with the image's own program.
        let coder = parts.coder.parent().unwrap_or_else(|| Path::new("/usr/bin")).display();
        Ok(Self {
            name: "bed".to_owned(),
            client: crate::kubernetes::client(&kubernetes.kubeconfig).await?,
            api_server: kubernetes.address,
            authority: kubernetes.authority().to_owned(),
            folder: run.folder("pods")?,
            addresses: run.addresses(),
            run: run.id().to_owned(),
            images: images(run, parts)?,
            path: format!("{terraform}:{coder}:{machine}"),
            terraform_settings: parts.terraform_settings.clone(),
            restart_delay: Duration::from_secs(2),
        })
    }
}

impl Node {
    fn address(&self) -> String {
        self.options.addresses.server_address().to_string()
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let labels = [
            ("kubernetes.io/hostname", self.options.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
        ];
        labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    /// The variables that every container has before its own.
    fn variables(&self, pod: &Pod, home: &Path) -> BTreeMap<String, String> {
        let mut variables: BTreeMap<String, String> =
            proxy_variables(&format!("http://{}", self.proxy)).into_iter().collect();
        let sockets = self.options.folder.parent().unwrap_or(&self.options.folder);
        let more = [
            ("PATH", self.options.path.clone()),
            ("HOME", home.display().to_string()),
            ("TMPDIR", home.display().to_string()),
            ("HOSTNAME", pod.name_any()),
            ("KUBERNETES_SERVICE_HOST", self.options.api_server.ip().to_string()),
            ("KUBERNETES_SERVICE_PORT", self.options.api_server.port().to_string()),
            // Terraform must not read the settings of whoever runs the bed, nor ask for updates.
            ("TF_CLI_CONFIG_FILE", self.options.terraform_settings.display().to_string()),
            ("CHECKPOINT_DISABLE", "1".to_owned()),
            // Providers answer on sockets, whose paths must be short.
            ("PLUGIN_UNIX_SOCKET_DIR", sockets.display().to_string()),
        ];
        variables.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
        variables
    }
}

/// The images of a bed: Coder's own, the licensed harness under Coder's commands, and the machine itself.
fn images(run: &Run, parts: &Parts) -> Result<Images> {
    let entrypoint = vec!["/opt/coder".to_owned(), "server".to_owned()];
    let coder = |program: &Path| Image {
        programs: BTreeMap::from([("coder".to_owned(), program.to_owned())]),
        entrypoint: entrypoint.clone(),
    };
    // The harness knows no flags; the one that says where to listen is what every Deployment gives.
    let listens = "for word in \"$@\"; do case \"$word\" in --http-address=*) \
                   export CODER_HTTP_ADDRESS=\"${CODER_HTTP_ADDRESS:-${word#*=}}\";; esac; done";
    // Whatever is not the server itself, as `server create-admin-user`, is Coder's own.
    let launcher = run.file(
        "coder-licensed",
        &format!(
            "#!/bin/sh\ncase \"$1 $2\" in 'server '|'server -'*) ;; *) exec '{}' \"$@\";; esac\n{listens}\nexec '{}' {}\n",
            parts.coder.display(),
            parts.coder_licensed.display(),
            licensed_arguments().map(|word| format!("'{word}'")).join(" "),
        ),
    )?;
    std::fs::set_permissions(&launcher, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .context("make the launcher of the licensed image executable")?;
    let mut images = Images::new(run.folder("images")?);
    images.insert("coder/coder", coder(&parts.coder));
    images.insert("bed/coder", coder(&parts.coder));
    images.insert("bed/coder-licensed", coder(&launcher));
    images.insert("bed/host", Image { programs: BTreeMap::new(), entrypoint: vec!["sh".to_owned()] });
    Ok(images)
}

async fn watch_services(node: Arc<Node>, writer: reflector::store::Writer<Service>) {
    let services = Api::<Service>::all(node.options.client.clone());
    let stream = watcher(services, watcher::Config::default()).default_backoff().reflect(writer);
    let mut stream = pin!(stream);
    // Errors are the stream's to recover from; the store keeps what it knew.
    while !matches!(stream.try_next().await, Ok(None)) {}
}

/// Hands each pod of this node to a task of its own.
async fn watch_pods(
    node: Arc<Node>,
    writer: reflector::store::Writer<Pod>,
    cancel: CancellationToken,
    tasks: TaskTracker,
) {
    let mine = watcher::Config::default().fields(&format!("spec.nodeName={}", node.options.name));
    let pods = Api::<Pod>::all(node.options.client.clone());
    let mut stream = pin!(watcher(pods, mine).default_backoff().reflect(writer));
    let mut workers: HashMap<String, watch::Sender<Arc<Pod>>> = HashMap::new();
    let mut listed = HashSet::new();
    loop {
        let pod = match stream.try_next().await {
            Ok(Some(watcher::Event::Apply(pod))) => pod,
            Ok(Some(watcher::Event::InitApply(pod))) => {
                listed.insert(pod.uid().unwrap_or_default());
                pod
            }
            Ok(Some(watcher::Event::Delete(pod))) => {
                workers.remove(&pod.uid().unwrap_or_default());
                continue;
            }
            Ok(Some(watcher::Event::Init)) => {
                listed.clear();
                continue;
            }
            Ok(Some(watcher::Event::InitDone)) => {
                // What went while the watch was down is told by its absence only.
                workers.retain(|uid, _| listed.contains(uid));
                continue;
            }
            Err(_) => continue,
            Ok(None) => return,
        };
        let uid = pod.uid().unwrap_or_default();
        let pod = Arc::new(pod);
        if let Some(worker) = workers.get(&uid) {
            worker.send_replace(pod);
            continue;
        }
        let (sender, receiver) = watch::channel(pod);
        workers.insert(uid, sender);
        let (cancel, run) = (cancel.clone(), pod::run(Arc::clone(&node), receiver));
        tasks.spawn(async move { cancel.run_until_cancelled(Box::pin(run)).await });
    }
}
