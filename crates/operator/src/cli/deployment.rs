//! Clients of deployments: of the address that is given beside the manifests, and of those that manifests declare.

use std::{fmt, fs, sync::Arc};

use anyhow::{Context as _, Result};
use client::{Client, ClientOptions, HttpOptions, HttpTransport};
use secrecy::SecretString;
use serde::Serialize;
use url::Url;
use uuid::Uuid;

use crate::{
    args::AccessArgs,
    cli::{exit::Failure, manifests::Named},
};

/// The variable that holds a session token. A token is never an argument: every user of the machine can read those.
const TOKEN_VARIABLE: &str = "CODER_SESSION_TOKEN";

/// A deployment as plans, questions and results name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeploymentRef {
    /// The namespace of the CoderControlPlane.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// The name of the CoderControlPlane; `None` where the address was given beside the manifests.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    url: String,
    /// The version of Coder; `None` while the deployment does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(rename = "deploymentID", skip_serializing_if = "Option::is_none")]
    id: Option<Uuid>,
}

impl DeploymentRef {
    pub(crate) fn given(url: String) -> Self {
        Self { namespace: None, name: None, url, version: None, id: None }
    }

    pub(crate) fn declared(plane: &Named, url: &Url) -> Self {
        let namespace = Some(plane.namespace.clone()).filter(|it| !it.is_empty());
        Self { namespace, name: Some(plane.name.clone()), ..Self::given(url.to_string()) }
    }

    pub(crate) fn id(&self) -> Option<Uuid> {
        self.id
    }

    /// Reads which Coder answers, unless that is known; no token is sent. A failure is not reported here: whatever is asked
    /// next meets it again.
    pub(crate) async fn identify(&mut self, client: &Client) {
        if self.id.is_none()
            && let Ok(build) = client.build_info().await
        {
            self.version = Some(build.version);
            self.id = Some(build.deployment_id);
        }
    }

    /// The CoderControlPlane that declares the deployment, as `NAMESPACE/NAME`.
    pub(crate) fn control_plane(&self) -> Option<String> {
        let name = self.name.as_ref()?;
        Some(self.namespace.as_ref().map_or_else(|| name.clone(), |it| format!("{it}/{name}")))
    }
}

impl fmt::Display for DeploymentRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, version, id, .. } = self;
        match (version, id) {
            (Some(version), Some(id)) => write!(formatter, "{url} (Coder {version}, deployment id {id})"),
            _ => write!(formatter, "{url} (version and deployment id unknown: no answer)"),
        }
    }
}

/// A client for the given address, with the token that goes with it.
pub(crate) fn client(input: &AccessArgs, url: &Url) -> Result<Client, Failure> {
    let token = token(input)?;
    let authority = match &input.ca_file {
        None => None,
        Some(path) => {
            Some(fs::read(path).with_context(|| format!("read the CA certificates in {}", path.display()))?)
        }
    };
    let transport = HttpTransport::new(HttpOptions { authority, ..HttpOptions::default() })
        .context("use the CA certificates of --ca-file")
        .map_err(|error| Failure { error, exit: crate::cli::exit::Exit::Usage })?;
    let options = ClientOptions { url: url.clone(), token: Some(token), transport: Arc::new(transport) };
    Client::new(options).map_err(|error| Failure::usage(error.to_string()))
}

fn token(input: &AccessArgs) -> Result<SecretString, Failure> {
    let text = match &input.token_file {
        Some(path) => {
            fs::read_to_string(path).with_context(|| format!("read the token in {}", path.display()))?
        }
        None => std::env::var(TOKEN_VARIABLE)
            .map_err(|_| Failure::usage(format!("no token: set {TOKEN_VARIABLE}, or give --token-file")))?,
    };
    Ok(SecretString::from(text.trim().to_owned()))
}
