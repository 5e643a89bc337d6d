//! Clients of the deployments that manifests declare.

use std::sync::Arc;

use client::{AddressPolicy, Client, ClientOptions, HttpOptions, HttpTransport};
use engine::Endpoint;
use secrecy::{ExposeSecret as _, SecretString};

/// A client for a declared deployment, with a token or, to create one, without. The error reports what is wrong with the
/// declaration.
pub(crate) fn reach(
    endpoint: &Endpoint,
    token: Option<SecretString>,
    addresses: AddressPolicy,
) -> Result<Client, String> {
    let authority = endpoint.authority.as_ref().map(|it| it.expose_secret().to_vec());
    let transport =
        HttpTransport::new(HttpOptions { authority, addresses }).map_err(|error| error.to_string())?;
    let options = ClientOptions { url: endpoint.url.clone(), token, transport: Arc::new(transport) };
    Client::new(options).map_err(|error| error.to_string())
}
