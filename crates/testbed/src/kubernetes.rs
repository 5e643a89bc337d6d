//! A Kubernetes control plane: etcd, kube-apiserver with RBAC and an audit log, kube-controller-manager.

mod certificates;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::{
    parts::Parts,
    process::{Launch, Process},
    run::Run,
};
use certificates::Authority;

/// Everything that happens, by whom and to what, without bodies: enough to count requests from outside.
const AUDIT_POLICY: &str = r#"{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}"#;

/// A running control plane.
#[derive(Debug)]
pub struct Kubernetes {
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// One JSON object a line for each request.
    pub audit_log: PathBuf,
    /// Where the API server answers.
    pub address: SocketAddr,
    authority: PathBuf,
    etcd: Process,
    apiserver: Process,
    _manager: Process,
}

impl Kubernetes {
    /// Starts the control plane and waits until it serves.
    pub async fn start(run: &Run, parts: &Parts) -> Result<Self> {
        let files = Files::write(run)?;
        let (etcd, etcd_url) = start_etcd(run, parts).await?;
        let audit_log = run.path().join("audit.jsonl");
        let apiserver = start_apiserver(run, parts, &files, &etcd_url, &audit_log).await?;
        let manager = start_controller_manager(run, parts, &files)?;
        Ok(Self {
            kubeconfig: files.kubeconfig,
            audit_log,
            address: files.address,
            authority: files.authority,
            etcd,
            apiserver,
            _manager: manager,
        })
    }

    /// The API server's certificate authority.
    pub fn authority(&self) -> &Path {
        &self.authority
    }

    /// The process id of etcd; `None` once it has ended.
    pub fn etcd_process_id(&self) -> Option<u32> {
        self.etcd.id()
    }

    /// The process id of kube-apiserver; `None` once it has ended.
    pub fn apiserver_process_id(&self) -> Option<u32> {
        self.apiserver.id()
    }
}

/// A client of the cluster that a kubeconfig names. Its connections belong to the runtime it is made on.
pub async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    let read = kube::config::Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("read the kubeconfig {}", kubeconfig.display()))?;
    let mut config = kube::Config::from_custom_kubeconfig(read, &kube::config::KubeConfigOptions::default())
        .await
        .context("understand the bed's kubeconfig")?;
    // A proxy variable that pods and operators need is not meant for the API server.
    config.proxy_url = None;
    kube::Client::try_from(config).context("make a client of the bed's API server")
}

/// The files that the parts read, written before any of them starts.
struct Files {
    address: SocketAddr,
    authority: PathBuf,
    server_certificate: PathBuf,
    server_key: PathBuf,
    /// With which the API server asks nodes.
    asker_certificate: PathBuf,
    asker_key: PathBuf,
    account_key: PathBuf,
    account_public_key: PathBuf,
    audit_policy: PathBuf,
    kubeconfig: PathBuf,
    manager_kubeconfig: PathBuf,
}

impl Files {
    fn write(run: &Run) -> Result<Self> {
        let address = run.addresses().free_port()?;
        let authority = Authority::new()?;
        let authority_file = run.file("authority.pem", &authority.certificate())?;
        let server = authority.server(address.ip())?;
        let asker = authority.client("kube-apiserver-kubelet-client", Some("system:masters"))?;
        let (account_key, account_public_key) = certificates::service_account_keys()?;
        let kubeconfig = |name: &str, user: &str, group: Option<&str>| -> Result<PathBuf> {
            let identity = authority.client(user, group)?;
            let certificate = run.file(&format!("{name}.pem"), &identity.certificate)?;
            let key = run.file(&format!("{name}-key.pem"), &identity.key)?;
            let content = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "bed",
                "clusters": [{"name": "bed", "cluster":
                    {"server": format!("https://{address}"), "certificate-authority": authority_file}}],
                "users": [{"name": user, "user": {"client-certificate": certificate, "client-key": key}}],
                "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": user}}],
            });
            run.file(&format!("{name}.kubeconfig"), &content.to_string())
        };
        Ok(Self {
            address,
            server_certificate: run.file("apiserver.pem", &server.certificate)?,
            server_key: run.file("apiserver-key.pem", &server.key)?,
            asker_certificate: run.file("node-asker.pem", &asker.certificate)?,
            asker_key: run.file("node-asker-key.pem", &asker.key)?,
            account_key: run.file("service-accounts-key.pem", &account_key)?,
            account_public_key: run.file("service-accounts.pem", &account_public_key)?,
            audit_policy: run.file("audit-policy.json", AUDIT_POLICY)?,
            kubeconfig: kubeconfig("admin", "bed-admin", Some("system:masters"))?,
            manager_kubeconfig: kubeconfig("controller-manager", "system:kube-controller-manager", None)?,
            authority: authority_file,
        })
    }
}

async fn start_etcd(run: &Run, parts: &Parts) -> Result<(Process, String)> {
    let address = run.addresses().free_port()?;
    let url = format!("http://{address}");
    let peer = format!("http://{}", run.addresses().free_port()?);
    let data = run.folder("etcd")?;
    let mut process = Process::start(
        run,
        Launch {
            name: "etcd",
            binary: &parts.etcd,
            args: vec![
                flag("data-dir", data.display()),
                flag("listen-client-urls", &url),
                flag("advertise-client-urls", &url),
                flag("listen-peer-urls", &peer),
                flag("initial-advertise-peer-urls", &peer),
                flag("initial-cluster", format!("default={peer}")),
                "--unsafe-no-fsync".to_owned(),
                flag("log-level", "warn"),
            ],
            env: Vec::new(),
            user: None,
            read_output: false,
        },
    )?;
    let health = format!("{url}/health");
    process.ready(|| answers(&health)).await?;
    Ok((process, url))
}

async fn start_apiserver(
    run: &Run,
    parts: &Parts,
    files: &Files,
    etcd_url: &str,
    audit_log: &Path,
) -> Result<Process> {
    let args = vec![
        flag("etcd-servers", etcd_url),
        flag("bind-address", files.address.ip()),
        // The address that the Service `kubernetes` shows must not be a loopback one; nobody connects to it.
        flag("advertise-address", "10.0.0.1"),
        flag("secure-port", files.address.port()),
        flag("tls-cert-file", files.server_certificate.display()),
        flag("tls-private-key-file", files.server_key.display()),
        flag("client-ca-file", files.authority.display()),
        // Logs are asked for at the node, whose name nobody but the node knows.
        flag("kubelet-client-certificate", files.asker_certificate.display()),
        flag("kubelet-client-key", files.asker_key.display()),
        flag("kubelet-preferred-address-types", "InternalIP"),
        flag("service-account-issuer", "https://kubernetes.default.svc"),
        flag("service-account-key-file", files.account_public_key.display()),
        flag("service-account-signing-key-file", files.account_key.display()),
        flag("authorization-mode", "RBAC"),
        // As OpenShift has it: an owner reference that blocks deletion needs rights on its owner.
        flag("enable-admission-plugins", "OwnerReferencesPermissionEnforcement"),
        flag("service-cluster-ip-range", "10.0.0.0/16"),
        flag("audit-policy-file", files.audit_policy.display()),
        flag("audit-log-path", audit_log.display()),
        // In megabytes: whoever counts from some line on must find the lines before it in the same file.
        flag("audit-log-maxsize", 100_000),
        // Nobody installs extensions of the API server here, and the default grace for requests slows its end.
        flag("shutdown-delay-duration", "0s"),
    ];
    let mut process = Process::start(
        run,
        Launch {
            name: "kube-apiserver",
            binary: &parts.kube_apiserver,
            args,
            env: Vec::new(),
            user: None,
            read_output: false,
        },
    )?;
    let client = client(&files.kubeconfig).await?;
    process
        .ready(|| async {
            let request = hyper::Request::get("/readyz").body(Vec::new());
            match request {
                Ok(request) => client.request_text(request).await.is_ok_and(|answer| answer == "ok"),
                Err(_) => false,
            }
        })
        .await?;
    Ok(process)
}

/// It is not awaited: nothing depends on it before the first object does, and then the object is awaited.
fn start_controller_manager(run: &Run, parts: &Parts, files: &Files) -> Result<Process> {
    let kubeconfig = files.manager_kubeconfig.display();
    Process::start(
        run,
        Launch {
            name: "kube-controller-manager",
            binary: &parts.kube_controller_manager,
            args: vec![
                flag("kubeconfig", &kubeconfig),
                flag("authentication-kubeconfig", &kubeconfig),
                flag("authorization-kubeconfig", &kubeconfig),
                flag("service-account-private-key-file", files.account_key.display()),
                flag("root-ca-file", files.authority.display()),
                "--use-service-account-credentials=true".to_owned(),
                "--leader-elect=false".to_owned(),
                flag("secure-port", 0),
                // A node whose agent stopped is noticed within seconds, not within a minute.
                flag("node-monitor-period", "1s"),
                flag("node-monitor-grace-period", "20s"),
                // They would only fail: an EndpointSlice refuses loopback addresses, which is what pods have here.
                flag(
                    "controllers",
                    "*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller",
                ),
                // The default of 20 requests a second is for clusters that share their API server.
                flag("kube-api-qps", 500),
                flag("kube-api-burst", 1000),
            ],
            env: Vec::new(),
            user: None,
            read_output: false,
        },
    )
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

/// Whether a URL on this machine answers with a success.
pub(crate) async fn answers(url: &str) -> bool {
    match http() {
        Ok(client) => client.get(url).send().await.is_ok_and(|answer| answer.status().is_success()),
        Err(_) => false,
    }
}

/// A client for this machine: no proxy, and the patience that a machine with too much to do asks for.
pub(crate) fn http() -> Result<reqwest::Client> {
    reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_mins(1))
        .build()
        .context("make an HTTP client")
}
