//! Requests to the deployment from inside the process, subject to the same rules as any other request.

use std::fmt;

use axum::body::Bytes;
use axum::http::{Method, Request, header};
use client::Transport as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use sim::Coder;

const TOKEN_HEADER: &str = "coder-session-token";

/// An account that calls the deployment under the name of a program.
pub(super) struct Caller<'a> {
    pub(super) coder: &'a Coder,
    /// `None` for anonymous routes.
    pub(super) token: Option<SecretString>,
    pub(super) user_agent: &'static str,
}

/// An answer that is no success, in the deployment's words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) words: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the deployment answered {}: {}", self.status, self.words)
    }
}

impl std::error::Error for Refused {}

impl Caller<'_> {
    /// Sends a request and returns the body of its answer. `Null` is no body.
    pub(super) async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Value, Refused> {
        let failed = |words: String| Refused { status: 0, words };
        let mut request =
            Request::builder().method(method).uri(path).header(header::USER_AGENT, self.user_agent);
        if let Some(token) = &self.token {
            request = request.header(TOKEN_HEADER, token.expose_secret());
        }
        let bytes = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = request.body(bytes).map_err(|error| failed(error.to_string()))?;
        let answer = self.coder.send(request).await.map_err(|error| failed(error.to_string()))?;
        let value: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
        if answer.status().is_success() {
            return Ok(value);
        }
        let words = value["message"].as_str().unwrap_or_default().to_owned();
        Err(Refused { status: answer.status().as_u16(), words })
    }
}
