//! The one seam of the client: a request goes in, an answer or a failure of the wire comes out.
//!
//! What is behind it knows no route, no token and no retry; tests put scripts there, production puts HTTP.

mod reqwest;
mod resolver;

use std::{fmt::Debug, pin::Pin};

use bytes::Bytes;

pub use self::reqwest::{BODY_LIMIT, HttpOptions, HttpTransport};

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Sends one request, once, to exactly the address that it names.
///
/// An implementation follows no redirect, keeps no cookie and repeats nothing: a token goes only where it belongs,
/// and whether a call may be repeated is known one level up.
pub trait Transport: Send + Sync + Debug {
    fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> BoxFuture<'_, Result<http::Response<Bytes>, TransportError>>;
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// There was no connection, so nothing of the request has left this process.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The server's certificate was refused, so nothing of the request has left this process.
    #[error("cannot connect: {words}")]
    Certificate { words: String, problem: CertificateProblem },
    /// The policy of the transport refuses the address, so nothing of the request has left this process.
    #[error("the address is not allowed: {0}")]
    NotAllowed(String),
    /// The request may have been carried out.
    #[error("no complete answer in time")]
    TimedOut,
    /// The request may have been carried out.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The answer is larger than anything that is expected here.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge { limit: usize },
}

/// What is wrong with the certificate of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateProblem {
    /// It is for other names than the one that was connected to.
    OtherNames,
    /// It was not signed by an authority that is trusted, or is not valid now.
    Untrusted,
}

impl TransportError {
    /// Whether nothing of the request has left this process.
    pub(crate) fn sent_nothing(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Certificate { .. } | Self::NotAllowed(_))
    }

    /// The same failure with other words for its cause.
    pub(crate) fn reworded(self, words: impl FnOnce(&str) -> String) -> Self {
        match self {
            Self::Connect(cause) => Self::Connect(words(&cause)),
            Self::Certificate { words: cause, problem } => {
                Self::Certificate { words: words(&cause), problem }
            }
            Self::Broken(cause) => Self::Broken(words(&cause)),
            Self::NotAllowed(why) => Self::NotAllowed(words(&why)),
            Self::TimedOut | Self::TooLarge { limit: _ } => self,
        }
    }
}

/// The transport of a deployment that is not reached.
#[derive(Debug, Clone, Copy)]
pub struct Unreached;

impl Transport for Unreached {
    fn send(&self, _: http::Request<Bytes>) -> BoxFuture<'_, Result<http::Response<Bytes>, TransportError>> {
        let why = "the deployment is not reached for this";
        Box::pin(std::future::ready(Err(TransportError::Connect(why.to_owned()))))
    }
}

/// What cannot be turned into a transport.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportOptionsError {
    #[error("the certificates of the authority are no PEM: {0}")]
    Certificates(String),
    #[error("the HTTP client cannot be built: {0}")]
    Client(String),
}
