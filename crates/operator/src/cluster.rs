//! The cluster as a door sees it: a client of it, and the objects that manifests refer to.

use std::time::Duration;

use anyhow::{Context as _, Result};
use api::CoderControlPlane;
use engine::lookup::{Answer, Lookup, Unreadable, Values};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Config, config::Kubeconfig};

/// How long a request may take. Without a limit an API server that takes one and never answers would hold whoever asks for ever.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// How long a watch may hear nothing: the server ends one after 290 seconds.
const SILENT_FOR: Duration = Duration::from_secs(330);

/// Two clients of one cluster.
pub(crate) struct Clients {
    /// For requests, each with an end.
    pub(crate) acting: Client,
    /// For watches, which may hear nothing for minutes.
    pub(crate) watching: Client,
}

/// Clients of the cluster of the pod or of the kubeconfig.
pub(crate) async fn clients() -> Result<Clients> {
    let mut config = config().await?;
    config.reset_reader_on_write = true;
    let client = |limit: Duration| {
        let mut config = config.clone();
        config.read_timeout = Some(limit);
        Client::try_from(config).context("make a client of the cluster")
    };
    Ok(Clients { acting: client(ANSWERS_WITHIN)?, watching: client(SILENT_FOR)? })
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

/// Follows references in a cluster.
pub(crate) struct Cluster(pub(crate) Client);

impl Lookup for Cluster {
    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str) -> Answer<'a, Values> {
        async {
            let found = Api::<Secret>::namespaced(self.0.clone(), namespace).get_opt(name).await;
            let values = |it: Secret| it.data.into_iter().flatten().map(|(key, value)| (key, value.0));
            Ok(found.map_err(unreadable)?.map(|it| Values::new(values(it))))
        }
        .boxed()
    }

    fn control_plane<'a>(&'a self, namespace: &'a str, name: &'a str) -> Answer<'a, CoderControlPlane> {
        async { Api::namespaced(self.0.clone(), namespace).get_opt(name).await.map_err(unreadable) }.boxed()
    }
}

fn unreadable(error: kube::Error) -> Unreadable {
    Unreadable(match error {
        // What is not there is no error: then the whole kind is not.
        kube::Error::Api(status) if status.code == 404 => "the cluster does not know this kind: install the \
            definitions with `coder-operator crds | kubectl apply -f -`"
            .to_owned(),
        // What the server says of itself; the rest of the answer is for programs.
        kube::Error::Api(status) => status.message.clone(),
        other => format!("{:#}", anyhow::Error::from(other)),
    })
}
