//! A transport for tests that answers from a script and remembers what it was asked.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use secrecy::SecretString;

use crate::{
    client::{Client, ClientOptions},
    transport::{BoxFuture, Transport, TransportError},
};

/// One line of a script.
#[derive(Debug)]
pub(crate) struct Scripted(pub(crate) Result<http::Response<Bytes>, TransportError>);

/// Answers in turn; when it has nothing left to say, the connection breaks.
#[derive(Debug, Default)]
pub(crate) struct Script {
    answers: Mutex<VecDeque<Scripted>>,
    asked: Mutex<Vec<http::Request<Bytes>>>,
}

impl Script {
    pub(crate) fn new(answers: impl IntoIterator<Item = Scripted>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), asked: Mutex::default() })
    }

    /// A signed-in client of the deployment at that address.
    pub(crate) fn client_at(self: &Arc<Self>, url: &str) -> Client {
        let transport: Arc<dyn Transport> = Arc::clone(self) as _;
        let url = url.parse().unwrap();
        Client::new(ClientOptions { url, token: Some(SecretString::from(token())), transport }).unwrap()
    }

    pub(crate) fn client(self: &Arc<Self>) -> Client {
        self.client_at("https://coder.test")
    }

    /// What was asked so far: `METHOD address`.
    pub(crate) fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|it| format!("{} {}", it.method(), it.uri())).collect()
    }

    pub(crate) fn last(&self) -> http::Request<Bytes> {
        self.asked.lock().unwrap().last().cloned().unwrap()
    }
}

impl Transport for Script {
    fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> BoxFuture<'_, Result<http::Response<Bytes>, TransportError>> {
        self.asked.lock().unwrap().push(request);
        let broken = || failure(TransportError::Broken("the script is at its end".to_owned()));
        let answer = self.answers.lock().unwrap().pop_front().unwrap_or_else(broken);
        Box::pin(async { answer.0 })
    }
}

/// Shaped like a session token; in pieces, so that nothing in this file looks like one.
pub(crate) fn token() -> String {
    ["Abcdefghi1", "Zyxwvutsrq9876543210AB"].join("-")
}

pub(crate) fn answer(status: u16, body: &str) -> Scripted {
    answer_with(status, &[], body)
}

/// An answer of coderd, which always says its version.
pub(crate) fn answer_with(status: u16, headers: &[(&str, &str)], body: &str) -> Scripted {
    const VERSION: &str = "x-coder-build-version";
    let is_told = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(VERSION));
    let version = [(VERSION, "v2.36.1")];
    let version = if is_told { &[][..] } else { &version[..] };
    stranger(status, &[headers, version].concat(), body)
}

/// An answer of somebody who is not Coder.
pub(crate) fn stranger(status: u16, headers: &[(&str, &str)], body: &str) -> Scripted {
    let mut response = http::Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    Scripted(Ok(response.body(Bytes::copy_from_slice(body.as_bytes())).unwrap()))
}

pub(crate) fn refused_connection() -> Scripted {
    failure(TransportError::Connect("connection refused".to_owned()))
}

pub(crate) fn failure(error: TransportError) -> Scripted {
    Scripted(Err(error))
}
