//! A deployment as it is asked: its address, the token for it, and the manners that all calls to it share.

mod call;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Semaphore;
use url::Url;

use self::call::Call;
use crate::{
    circuit::Circuit,
    observer::{Nobody, Observer},
    rate_limiter::{LONGEST_WAIT, RateLimiter, Share},
    route::Route,
    transport::Transport,
};

/// How many requests a deployment is sent at once.
const AT_ONCE: usize = 16;

/// What a client is made of.
pub struct ClientOptions {
    /// Where the deployment is; a path is kept and put before every route.
    pub url: Url,
    /// Without one only the anonymous routes work.
    pub token: Option<SecretString>,
    pub transport: Arc<dyn Transport>,
}

/// An address or a token that cannot be used. The words hold neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientOptionsError {
    #[error("the address of a deployment begins with http:// or https://")]
    Scheme,
    #[error("the address of a deployment must not hold a user or a password: use a Secret")]
    Userinfo,
    #[error("the address of a deployment has no query and no fragment")]
    QueryOrFragment,
    #[error("the token is empty or holds characters that no token has")]
    Token,
}

/// A client of one deployment. Clones are cheap and share connections, rate limiter and circuit; clients of one account
/// share a rate limiter by [`Client::with_rate_limiter`].
#[derive(Clone)]
pub struct Client {
    deployment: Arc<Deployment>,
    token: Option<Token>,
    observer: Arc<dyn Observer>,
    guards: Vec<Arc<dyn Guard>>,
    rate_limiter: Arc<RateLimiter>,
    share: Share,
    /// The longest wait for the rate limiter.
    longest_wait: Duration,
}

/// Asked before each request, also before one that has waited for its turn, whether it may still be sent.
pub trait Guard: Send + Sync + fmt::Debug {
    /// Returns why the request must not be sent. `None` while it may.
    fn refusal(&self, route: &Route) -> Option<&'static str>;
}

struct Deployment {
    url: Url,
    host: String,
    transport: Arc<dyn Transport>,
    /// Taken after the rate limiter, so that a call that waits there holds no permit.
    concurrency: Semaphore,
    circuit: Mutex<Circuit>,
}

#[derive(Clone)]
struct Token {
    secret: SecretString,
    /// The same, marked as sensitive, which is how it travels.
    header: HeaderValue,
}

impl Client {
    pub fn new(options: ClientOptions) -> Result<Self, ClientOptionsError> {
        let ClientOptions { url, token, transport } = options;
        check(&url)?;
        let host = match (url.host_str().unwrap_or_default(), url.port()) {
            (host, Some(port)) => format!("{host}:{port}"),
            (host, None) => host.to_owned(),
        };
        let circuit = Mutex::new(Circuit::new());
        let concurrency = Semaphore::new(AT_ONCE);
        let deployment = Arc::new(Deployment { url, host, transport, concurrency, circuit });
        Ok(Self {
            deployment,
            token: token.map(Token::new).transpose()?,
            observer: Arc::new(Nobody),
            guards: Vec::new(),
            rate_limiter: Arc::default(),
            share: Share::default(),
            longest_wait: LONGEST_WAIT,
        })
    }

    /// The same deployment with another token. Rate limiter and circuit stay shared.
    pub fn with_token(&self, token: SecretString) -> Result<Self, ClientOptionsError> {
        Ok(Self { token: Some(Token::new(token)?), ..self.clone() })
    }

    /// The same deployment without a token and without guards. Rate limiter and circuit stay shared.
    #[must_use]
    pub fn anonymous(&self) -> Self {
        Self { token: None, guards: Vec::new(), ..self.clone() }
    }

    /// The same deployment, with one more guard that every request has to pass. Clones share the guards.
    #[must_use]
    pub fn guarded_by(&self, guard: Arc<dyn Guard>) -> Self {
        let mut guarded = self.clone();
        guarded.guards.push(guard);
        guarded
    }

    /// The same deployment, with the requests of all clients counted that have this rate limiter: coderd counts by account,
    /// whichever address and connection a request comes by.
    #[must_use]
    pub fn with_rate_limiter(&self, rate_limiter: Arc<RateLimiter>) -> Self {
        Self { rate_limiter, ..self.clone() }
    }

    /// The same deployment, of whose limits this client may use another share.
    #[must_use]
    pub fn with_share(&self, share: Share) -> Self {
        Self { share, ..self.clone() }
    }

    /// The same deployment, for a caller that waits longer for the rate limiter before a call is an error.
    #[must_use]
    pub fn waiting_up_to(&self, longest_wait: Duration) -> Self {
        Self { longest_wait, ..self.clone() }
    }

    /// The same deployment, with somebody who sees every attempt.
    #[must_use]
    pub fn observed_by(&self, observer: Arc<dyn Observer>) -> Self {
        let circuit = self.deployment.circuit.lock().unwrap_or_else(PoisonError::into_inner);
        observer.circuit(circuit.state());
        Self { observer, ..self.clone() }
    }

    /// Where the deployment is.
    pub fn url(&self) -> &Url {
        &self.deployment.url
    }

    /// Whether calls carry a token.
    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub(crate) fn call(&self, route: &'static Route) -> Call<'_> {
        Call::new(self, route)
    }
}

impl Token {
    fn new(secret: SecretString) -> Result<Self, ClientOptionsError> {
        let text = secret.expose_secret();
        if text.is_empty() || !text.bytes().all(|it| it.is_ascii_graphic()) {
            return Err(ClientOptionsError::Token);
        }
        let mut header = HeaderValue::from_str(text).map_err(|_| ClientOptionsError::Token)?;
        header.set_sensitive(true);
        Ok(Self { secret, header })
    }
}

fn check(url: &Url) -> Result<(), ClientOptionsError> {
    if !matches!(url.scheme(), "http" | "https") {
        Err(ClientOptionsError::Scheme)
    } else if !url.username().is_empty() || url.password().is_some() {
        Err(ClientOptionsError::Userinfo)
    } else if url.query().is_some() || url.fragment().is_some() {
        Err(ClientOptionsError::QueryOrFragment)
    } else {
        Ok(())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Client")
            .field("url", &self.deployment.url.as_str())
            .field("has_token", &self.has_token())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not checked yet: the address may still hold a password.
        formatter.debug_struct("ClientOptions").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
