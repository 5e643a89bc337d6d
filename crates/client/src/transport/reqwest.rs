//! The production transport: HTTP by reqwest, with everything off that acts on its own.

use std::{io, time::Duration};

use bytes::{Bytes, BytesMut};
use rustls::CertificateError;

use super::{
    BoxFuture, CertificateProblem, Transport, TransportError, TransportOptionsError,
    resolver::{NotAllowed, Resolver},
};
use crate::address::AddressPolicy;

/// How much of an answer is read. The largest real ones are lists of groups with their members.
pub const BODY_LIMIT: usize = 8 * 1024 * 1024;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const USER_AGENT: &str = concat!("coder-operator/", env!("CARGO_PKG_VERSION"));

/// What a deployment may need to be reached.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// PEM certificates of an authority, trusted beside those of the platform.
    pub authority: Option<Vec<u8>>,
    /// Which addresses may be connected to.
    pub addresses: AddressPolicy,
}

/// HTTP over pooled connections. Proxies are taken from the environment, as every tool does.
#[derive(Debug, Clone)]
pub struct HttpTransport {
    http: reqwest::Client,
    limit: usize,
    addresses: AddressPolicy,
}

impl HttpTransport {
    pub fn new(options: HttpOptions) -> Result<Self, TransportOptionsError> {
        let HttpOptions { authority, addresses } = options;
        let mut builder = configured(reqwest::Client::builder(), addresses);
        if let Some(pem) = authority {
            let certificates = reqwest::Certificate::from_pem_bundle(&pem)
                .map_err(|error| TransportOptionsError::Certificates(cause(error)))?;
            if certificates.is_empty() {
                return Err(TransportOptionsError::Certificates("it holds no certificate".to_owned()));
            }
            builder = builder.tls_certs_merge(certificates);
        }
        let http = builder.build().map_err(|error| TransportOptionsError::Client(cause(error)))?;
        Ok(Self { http, limit: BODY_LIMIT, addresses })
    }

    async fn exchange(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, TransportError> {
        let request =
            reqwest::Request::try_from(request).map_err(|error| TransportError::Connect(cause(error)))?;
        // An address is not resolved, and behind a proxy nothing is.
        self.addresses.check_url(request.url()).map_err(TransportError::NotAllowed)?;
        let mut answer = self.http.execute(request).await.map_err(failure)?;
        let mut body = BytesMut::new();
        while let Some(chunk) = answer.chunk().await.map_err(failure)? {
            if body.len() + chunk.len() > self.limit {
                return Err(TransportError::TooLarge { limit: self.limit });
            }
            body.extend_from_slice(&chunk);
        }
        let mut response = http::Response::new(body.freeze());
        *response.status_mut() = answer.status();
        *response.headers_mut() = std::mem::take(answer.headers_mut());
        Ok(response)
    }
}

impl Transport for HttpTransport {
    fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> BoxFuture<'_, Result<http::Response<Bytes>, TransportError>> {
        Box::pin(self.exchange(request))
    }
}

/// Everything off that acts on its own.
fn configured(builder: reqwest::ClientBuilder, addresses: AddressPolicy) -> reqwest::ClientBuilder {
    let builder = match addresses {
        AddressPolicy::Any => builder,
        AddressPolicy::NotLocal => builder.dns_resolver(Resolver::new(addresses)),
    };
    builder
        // A redirect is an answer: following it would carry the token to whoever the answer names.
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        // Which calls may be repeated is known to the client, not to the wire.
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        .user_agent(USER_AGENT)
}

fn failure(error: reqwest::Error) -> TransportError {
    if let Some(NotAllowed(why)) = not_allowed(&error) {
        TransportError::NotAllowed(why.clone())
    } else if let Some(problem) = certificate(&error) {
        TransportError::Certificate { words: cause(error), problem }
    } else if error.is_connect() {
        let timed_out = error.is_timeout();
        TransportError::Connect(if timed_out { "no answer in time".to_owned() } else { cause(error) })
    } else if error.is_timeout() {
        TransportError::TimedOut
    } else {
        TransportError::Broken(cause(error))
    }
}

/// The refusal of our own resolver, if that is why there is no connection.
fn not_allowed(error: &reqwest::Error) -> Option<&NotAllowed> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(found) = cause.downcast_ref() {
            return Some(found);
        }
        source = cause.source();
    }
    None
}

/// What is wrong with the server's certificate, if that is why there is no connection.
fn certificate(error: &reqwest::Error) -> Option<CertificateProblem> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(rustls::Error::InvalidCertificate(problem)) = of_tls(cause) {
            let is_of_names = matches!(
                problem,
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            );
            return Some(if is_of_names {
                CertificateProblem::OtherNames
            } else {
                CertificateProblem::Untrusted
            });
        }
        source = cause.source();
    }
    None
}

/// The error of TLS that an error is, or is made of: an IO error leaves what it is made of out of its sources.
fn of_tls<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    match error.downcast_ref::<io::Error>() {
        Some(error) => of_tls(error.get_ref()?),
        None => error.downcast_ref(),
    }
}

/// The innermost reason, which is the one that a person can act on. The address is said elsewhere.
fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut innermost: &dyn std::error::Error = &error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests;
