//! A whole bed: one control plane with a node, one PostgreSQL, a coderd of each flavour.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::{
    coderd::{Coderd, Flavour, Session},
    kubernetes::{self, Kubernetes},
    node::{Agent, AgentOptions},
    parts::Parts,
    postgres::Postgres,
    process::Process,
    run::Run,
};

/// The variable with the version of Coder that a bed runs.
pub const CODER_VERSION: &str = "BED_CODER_VERSION";

/// What a bed consists of.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether the two coderds are started; a test of the cluster alone does without.
    pub coderds: bool,
}

/// Where a bed's parts are. Plain data: it can be handed to other processes and outlives any runtime.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BedInfo {
    pub kubeconfig: PathBuf,
    pub kubectl: PathBuf,
    pub helm: PathBuf,
    /// Where images of one's own are added: see [`BedInfo::add_image`].
    pub images: PathBuf,
    pub coder: Option<CoderInfo>,
    pub licensed: Option<LicensedInfo>,
    /// The version of both, with its `v`.
    pub coder_version: String,
    /// The URL of PostgreSQL's maintenance database.
    pub postgres: String,
    /// The forward proxy that knows the names of Services.
    pub proxy: String,
    /// One JSON object a line for each request to the API server.
    pub audit_log: PathBuf,
    /// What tells this bed from others, and the mark on its processes.
    pub run: String,
}

/// Where the shipped coderd is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CoderInfo {
    pub url: String,
    pub token: String,
}

/// Where the licensed coderd is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LicensedInfo {
    pub url: String,
    pub token: String,
    pub licenses: String,
}

impl LicensedInfo {
    /// The owner's session.
    pub fn session(&self) -> Result<Session> {
        Ok(Session::new(kubernetes::http()?, &self.url, &self.token))
    }
}

/// A running bed. Dropping it ends everything that it started.
#[derive(Debug)]
pub struct Bed {
    // Fields drop in this order. The agent stops first, then the run ends every process in the right way; what the
    // other fields would still do is nothing.
    agent: Agent,
    run: Run,
    info: BedInfo,
    _coderds: Vec<Coderd>,
    kubernetes: Kubernetes,
    _postgres: Postgres,
}

impl Bed {
    /// Starts a bed of its own and waits until every part of it is ready.
    pub async fn start(parts: &Parts, options: Options) -> Result<Self> {
        let run = Run::start()?;
        match Self::start_in(run, parts, options).await {
            Ok(bed) => Ok(bed),
            Err((run, error)) => match run.keep_logs() {
                Ok(kept) => {
                    Err(error.context(format!("the bed did not start; its logs are in {}", kept.display())))
                }
                Err(_) => Err(error),
            },
        }
    }

    async fn start_in(run: Run, parts: &Parts, options: Options) -> Result<Self, (Run, anyhow::Error)> {
        let started = async {
            let cluster = async {
                let kubernetes = Kubernetes::start(&run, parts).await?;
                let agent = Agent::start(AgentOptions::of_bed(&run, parts, &kubernetes).await?).await?;
                anyhow::Ok((kubernetes, agent))
            };
            let servers = async {
                let postgres = Postgres::start(&run, parts).await?;
                let coderds = if options.coderds {
                    let server = postgres.url();
                    let (shipped, licensed) = tokio::try_join!(
                        Coderd::start(&run, parts, &server, Flavour::Shipped),
                        Coderd::start(&run, parts, &server, Flavour::Licensed),
                    )?;
                    vec![shipped, licensed]
                } else {
                    Vec::new()
                };
                anyhow::Ok((postgres, coderds))
            };
            tokio::try_join!(cluster, servers)
        }
        .await;
        let ((kubernetes, agent), (postgres, coderds)) = match started {
            Ok(parts) => parts,
            Err(error) => return Err((run, error)),
        };
        let info = BedInfo {
            kubeconfig: kubernetes.kubeconfig.clone(),
            kubectl: parts.kubectl.clone(),
            helm: parts.helm.clone(),
            images: agent.images().to_owned(),
            coder: coderds
                .first()
                .map(|it| CoderInfo { url: it.owner.url.clone(), token: it.owner.token.clone() }),
            licensed: coderds.get(1).map(|it| LicensedInfo {
                url: it.owner.url.clone(),
                token: it.owner.token.clone(),
                licenses: it.licenses.clone().unwrap_or_default(),
            }),
            coder_version: parts.coder_version.clone(),
            postgres: postgres.url(),
            proxy: agent.proxy_url(),
            audit_log: kubernetes.audit_log.clone(),
            run: run.id().to_owned(),
        };
        Ok(Self { agent, run, info, _coderds: coderds, kubernetes, _postgres: postgres })
    }

    /// Where everything is.
    pub fn info(&self) -> &BedInfo {
        &self.info
    }

    /// The bed's folder, for tests that look whether it is gone.
    pub fn folder(&self) -> PathBuf {
        self.run.path().to_owned()
    }

    /// Stops the node agent as a node that loses its power would: its processes go on, nobody reports them.
    pub async fn stop_agent(&mut self) {
        self.agent.stop().await;
    }

    /// Copies the logs to where they outlive the bed, and says where.
    pub fn keep_logs(&self) -> Result<PathBuf> {
        self.run.keep_logs()
    }

    /// Starts a process that ends with the bed.
    pub fn spawn(&self, launch: crate::process::Launch<'_>) -> Result<Process> {
        Process::start(&self.run, launch)
    }

    /// The control plane.
    pub fn kubernetes(&self) -> &Kubernetes {
        &self.kubernetes
    }
}

impl BedInfo {
    /// The variables that tell a command of the bed, under the names that scripts rely on.
    pub fn variables(&self) -> Vec<(String, String)> {
        let mut variables = vec![
            ("KUBECONFIG", self.kubeconfig.display().to_string()),
            ("KUBECTL", self.kubectl.display().to_string()),
            ("HELM", self.helm.display().to_string()),
            ("BED_IMAGES", self.images.display().to_string()),
            (CODER_VERSION, self.coder_version.clone()),
            ("BED_PG_URL", self.postgres.clone()),
            ("BED_PROXY_URL", self.proxy.clone()),
            ("BED_AUDIT_LOG", self.audit_log.display().to_string()),
            ("BED_ID", self.run.clone()),
        ];
        if let Some(CoderInfo { url, token }) = &self.coder {
            variables.extend([("BED_CODER_URL", url.clone()), ("BED_CODER_TOKEN", token.clone())]);
        }
        if let Some(LicensedInfo { url, token, licenses }) = &self.licensed {
            variables.extend([
                ("BED_LICENSED_URL", url.clone()),
                ("BED_LICENSED_TOKEN", token.clone()),
                ("BED_LICENSES_URL", licenses.clone()),
            ]);
        }
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The proxy variables that a command needs to reach Services by their names.
    pub fn proxy_variables(&self) -> Vec<(String, String)> {
        crate::loopback::proxy_variables(&self.proxy)
    }

    /// Reads what [`BedInfo::variables`] wrote; nothing when there is no bed around this process.
    pub fn from_environment() -> Option<Self> {
        let read = |name: &str| std::env::var(name).ok();
        Some(Self {
            coder_version: read(CODER_VERSION)?,
            postgres: read("BED_PG_URL")?,
            proxy: read("BED_PROXY_URL")?,
            audit_log: read("BED_AUDIT_LOG")?.into(),
            run: read("BED_ID")?,
            kubeconfig: read("KUBECONFIG")?.into(),
            kubectl: read("KUBECTL")?.into(),
            helm: read("HELM")?.into(),
            images: read("BED_IMAGES")?.into(),
            coder: Some(CoderInfo { url: read("BED_CODER_URL")?, token: read("BED_CODER_TOKEN")? }),
            licensed: Some(LicensedInfo {
                url: read("BED_LICENSED_URL")?,
                token: read("BED_LICENSED_TOKEN")?,
                licenses: read("BED_LICENSES_URL")?,
            }),
        })
    }

    /// Adds an image with one program, or replaces it: pods whose image is that repository run that local binary.
    /// The program has the name that the repository ends in, and is the image's entrypoint.
    pub fn add_image(&self, repository: &str, program: &Path) -> Result<()> {
        let image = self.images.join(repository);
        fs::create_dir_all(&image).with_context(|| format!("create {}", image.display()))?;
        let name = repository.rsplit('/').next().unwrap_or(repository);
        let (place, fresh) = (image.join(name), image.join(format!(".{}", uuid::Uuid::new_v4())));
        symlink(program, &fresh)
            .and_then(|()| fs::rename(&fresh, &place))
            .with_context(|| format!("link {} to {}", place.display(), program.display()))
    }

    /// A client of the cluster as its administrator, for the runtime that this is called on.
    pub async fn client(&self) -> Result<kube::Client> {
        kubernetes::client(&self.kubeconfig).await
    }

    /// An HTTP client that reaches Services by their names.
    pub fn http_by_name(&self) -> Result<reqwest::Client> {
        let proxy = reqwest::Proxy::all(&self.proxy).context("use the bed's proxy")?;
        reqwest::Client::builder().proxy(proxy).build().context("make an HTTP client")
    }
}
