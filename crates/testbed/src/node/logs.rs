//! What containers have written, for whoever asks by way of the API server.
//!
//! The API server asks a node over TLS and shows a certificate of the cluster's authority; nobody else is answered. The node's own
//! certificate is checked by nobody, as with a kubelet that made its own.

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{
    ResourceExt as _,
    runtime::reflector::{ObjectRef, Store},
};
use rcgen::{CertificateParams, KeyPair};
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
        server::WebPkiClientVerifier,
    },
};

use super::{AgentOptions, Node};

/// Which life of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// The one that runs, or ended last.
    Last,
    /// The one before that.
    Before,
}

/// The file with what a container wrote, in the folder of its pod.
pub(super) fn file(pod: &Path, container: &str, life: Life) -> PathBuf {
    let name = match life {
        Life::Last => "output.log",
        Life::Before => "output-before.log",
    };
    pod.join("containers").join(container).join(name)
}

/// Where logs are asked for.
pub(super) struct Listener {
    pub(super) address: SocketAddr,
    socket: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener {
    pub(super) async fn bind(options: &AgentOptions) -> Result<Self> {
        let address = options.addresses.server_address();
        let socket = TcpListener::bind((address, 0)).await.context("bind the node's port for logs")?;
        let acceptor = TlsAcceptor::from(Arc::new(tls(&options.authority)?));
        let address = socket.local_addr().context("ask for the node's port for logs")?;
        Ok(Self { address, socket, acceptor })
    }

    /// Serves until it is dropped.
    pub(super) async fn serve(self, node: Arc<Node>, pods: Store<Pod>) {
        loop {
            let Ok((connection, _)) = self.socket.accept().await else { continue };
            let (acceptor, node, pods) = (self.acceptor.clone(), Arc::clone(&node), pods.clone());
            tokio::spawn(async move {
                let Ok(connection) = acceptor.accept(connection).await else { return };
                let answer = service_fn(move |request| {
                    let answer = answer(&request, &node, &pods);
                    async move { Ok::<_, Infallible>(answer) }
                });
                // A connection that breaks is the peer's business.
                http1::Builder::new().serve_connection(TokioIo::new(connection), answer).await.ok();
            });
        }
    }
}

fn tls(authority: &Path) -> Result<ServerConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut trusted = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(authority).context("read the cluster's authority")?;
    trusted.add(authority).context("trust the cluster's authority")?;
    let askers = WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), Arc::clone(&provider));
    let key = KeyPair::generate().context("make the node's key")?;
    let certificate =
        CertificateParams::default().self_signed(&key).context("make the node's certificate")?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("agree on a version of TLS")?
        .with_client_cert_verifier(askers.build().context("know who may ask the node")?)
        .with_single_cert(vec![CertificateDer::from(certificate)], key)
        .context("use the node's certificate")
}

fn answer(request: &Request<Incoming>, node: &Node, pods: &Store<Pod>) -> Response<Full<Bytes>> {
    let query = request.uri().query().unwrap_or_default();
    let found = read(request.uri().path(), query, &node.options.folder, pods);
    let (status, body) =
        found.map_or_else(|(status, words)| (status, words.into_bytes()), |it| (StatusCode::OK, it));
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
}

/// `/containerLogs/<namespace>/<pod>/<container>`.
fn read(path: &str, query: &str, folder: &Path, pods: &Store<Pod>) -> Result<Vec<u8>, (StatusCode, String)> {
    let missing = |words: String| (StatusCode::NOT_FOUND, words);
    let mut words = path.trim_start_matches('/').split('/');
    let [Some("containerLogs"), Some(namespace), Some(name), Some(container), None] =
        [(); 5].map(|()| words.next())
    else {
        return Err(missing("404 page not found".to_owned()));
    };
    let pod = pods.get(&ObjectRef::new(name).within(namespace));
    let pod = pod.ok_or_else(|| missing(format!("pod \"{name}\" not found")))?;
    let status = pod.status.iter().flat_map(|it| {
        let init = it.init_container_statuses.iter().flatten();
        init.chain(it.container_statuses.iter().flatten())
    });
    let status = status.into_iter().find(|it| it.name == container);
    let status = status.ok_or_else(|| missing(format!("container {container} not found in pod {name}")))?;
    let asked = Asked::parse(query).map_err(|it| (StatusCode::BAD_REQUEST, it))?;
    let life = life(status, asked.is_previous).map_err(|it| (StatusCode::BAD_REQUEST, it))?;
    let file = file(&folder.join(pod.uid().unwrap_or_default()), container, life);
    let text =
        std::fs::read(&file).map_err(|error| missing(format!("read the log of {container}: {error}")))?;
    Ok(asked.part(&text).to_vec())
}

/// Which life somebody means. While a container waits to be started again, its last life is the previous one too.
fn life(status: &ContainerStatus, is_previous: bool) -> Result<Life, String> {
    let name = &status.name;
    let has_ended_before = status.last_state.as_ref().is_some_and(|it| it.terminated.is_some());
    let waits = status.state.as_ref().and_then(|it| it.waiting.as_ref());
    match waits {
        _ if is_previous && !has_ended_before => {
            Err(format!("previous terminated container \"{name}\" not found"))
        }
        Some(waiting) if !has_ended_before => {
            let reason = waiting.reason.as_deref().unwrap_or_default();
            Err(format!("container \"{name}\" is waiting to start: {reason}"))
        }
        None if is_previous => Ok(Life::Before),
        Some(_) | None => Ok(Life::Last),
    }
}

/// How much somebody wants to see.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    is_previous: bool,
    tail: Option<usize>,
    limit: Option<usize>,
}

impl Asked {
    fn parse(query: &str) -> Result<Self, String> {
        let mut asked = Self::default();
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let number =
                || value.parse().map(Some).map_err(|_| format!("{key}: \"{value}\" is not a number"));
            match &*key {
                "previous" => asked.is_previous = value == "true",
                "tailLines" => asked.tail = number()?,
                "limitBytes" => asked.limit = number()?,
                "follow" if value == "true" => return Err("logs are not followed here".to_owned()),
                _ => {}
            }
        }
        Ok(asked)
    }

    /// The last lines, and of these the first bytes, as a kubelet has it.
    fn part<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        let lines = text.strip_suffix(b"\n").unwrap_or(text);
        let start = match self.tail {
            None => 0,
            Some(0) => text.len(),
            Some(wanted) => {
                let mut ends = (0..lines.len()).rev().filter(|at| lines.get(*at) == Some(&b'\n'));
                ends.nth(wanted - 1).map_or(0, |at| at + 1)
            }
        };
        let part = text.get(start..).unwrap_or_default();
        part.get(..self.limit.unwrap_or(part.len())).unwrap_or(part)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_lines_are_shown_and_of_them_the_first_bytes() {
        let part = |query: &str, text: &'static str| {
            String::from_utf8(Asked::parse(query).unwrap().part(text.as_bytes()).to_vec()).unwrap()
        };
        assert_eq!(part("", "a\nb\n"), "a\nb\n");
        assert_eq!(part("tailLines=1", "a\nb\n"), "b\n");
        assert_eq!(part("tailLines=1", "a\nb"), "b");
        assert_eq!(part("tailLines=9", "a\nb\n"), "a\nb\n");
        assert_eq!(part("tailLines=0", "a\nb\n"), "");
        assert_eq!(part("tailLines=2&limitBytes=3", "a\nb\nc\n"), "b\nc");
        assert!(Asked::parse("tailLines=x").is_err() && Asked::parse("follow=true").is_err());
    }

    #[test]
    fn the_life_before_is_another_one_while_a_container_runs_and_the_last_one_while_it_waits() {
        let status = |state: serde_json::Value, last: serde_json::Value| -> ContainerStatus {
            let status = json!({"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": state, "lastState": last});
            serde_json::from_value(status).unwrap()
        };
        let ended = json!({"terminated": {"exitCode": 1}});
        let (running, waiting) = (json!({"running": {}}), json!({"waiting": {"reason": "CrashLoopBackOff"}}));
        assert_eq!(life(&status(running.clone(), ended.clone()), true), Ok(Life::Before));
        assert_eq!(life(&status(running.clone(), ended.clone()), false), Ok(Life::Last));
        assert_eq!(life(&status(waiting.clone(), ended.clone()), true), Ok(Life::Last));
        assert_eq!(life(&status(waiting.clone(), ended), false), Ok(Life::Last));
        assert!(life(&status(running, json!({})), true).is_err());
        assert!(life(&status(waiting, json!({})), false).unwrap_err().contains("CrashLoopBackOff"));
    }
}
