//! Clients of the deployments that manifests declare.

use std::sync::Arc;

use client::{AddressPolicy, Client, ClientOptions, HttpOptions, HttpTransport, Transport};
use engine::Endpoint;
use secrecy::{ExposeSecret as _, SecretString};

/// Makes the transport to a declared deployment. The error reports what is wrong with the declaration.
pub(crate) type Connect = Arc<dyn Fn(&Endpoint) -> Result<Arc<dyn Transport>, String> + Send + Sync>;

/// A client for a declared deployment, with a token or, to create one, without. The error reports what is wrong with the
/// declaration.
pub(crate) fn reach(
    endpoint: &Endpoint,
    token: Option<SecretString>,
    addresses: AddressPolicy,
) -> Result<Client, String> {
    let transport = http(endpoint, addresses)?;
    let options = ClientOptions { url: endpoint.url.clone(), token, transport };
    Client::new(options).map_err(|error| error.to_string())
}

/// HTTP, with the authority that the declaration names.
pub(crate) fn http(endpoint: &Endpoint, addresses: AddressPolicy) -> Result<Arc<dyn Transport>, String> {
    let authority = endpoint.authority.as_ref().map(|it| it.expose_secret().to_vec());
    let transport =
        HttpTransport::new(HttpOptions { authority, addresses }).map_err(|error| error.to_string())?;
    Ok(Arc::new(transport))
}
