//! Clients of deployments: of the one that a person names on the command line, and of those that manifests declare.

use std::{fs, sync::Arc};

use anyhow::{Context as _, Result};
use client::{Client, ClientOptions, HttpOptions, HttpTransport};
use engine::Endpoint;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::{args::Input, exit::Failure};

/// The variable that holds a session token. It is never an argument: those are seen by everybody on the machine.
const TOKEN_VARIABLE: &str = "CODER_SESSION_TOKEN";

/// The deployment at an address that a person gave, with the token that goes with it.
pub(crate) fn client(input: &Input, url: &Url) -> Result<Client, Failure> {
    let token = token(input)?;
    let authority = match &input.ca_file {
        None => None,
        Some(path) => {
            Some(fs::read(path).with_context(|| format!("read the authorities in {}", path.display()))?)
        }
    };
    let transport = HttpTransport::new(HttpOptions { authority })
        .context("use the authorities of --ca-file")
        .map_err(|error| Failure { error, exit: crate::exit::Exit::Usage })?;
    let options = ClientOptions { url: url.clone(), token: Some(token), transport: Arc::new(transport) };
    Client::new(options).map_err(|error| Failure::usage(error.to_string()))
}

/// A client of a declared deployment, with a token or, to make one, without. The error says what is wrong with the declaration.
pub(crate) fn reach(endpoint: &Endpoint, token: Option<SecretString>) -> Result<Client, String> {
    let authority = endpoint.authority.as_ref().map(|it| it.expose_secret().to_vec());
    let transport = HttpTransport::new(HttpOptions { authority }).map_err(|error| error.to_string())?;
    let options = ClientOptions { url: endpoint.url.clone(), token, transport: Arc::new(transport) };
    Client::new(options).map_err(|error| error.to_string())
}

fn token(input: &Input) -> Result<SecretString, Failure> {
    let text = match &input.token_file {
        Some(path) => {
            fs::read_to_string(path).with_context(|| format!("read the token in {}", path.display()))?
        }
        None => std::env::var(TOKEN_VARIABLE)
            .map_err(|_| Failure::usage(format!("no token: set {TOKEN_VARIABLE}, or give --token-file")))?,
    };
    Ok(SecretString::from(text.trim().to_owned()))
}
