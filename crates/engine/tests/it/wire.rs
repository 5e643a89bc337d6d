//! The way to a deployment in memory: it writes down what is asked, and is where tests break requests and answers.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use client::{Client, Transport, TransportError, transport::BoxFuture};
use engine::{Coder, coder::Promises};
use http::{Method, Request, Response};
use serde_json::Value;
use sim::state::State;

use crate::memory;

pub(crate) type Answered = Result<Response<Bytes>, TransportError>;

/// What becomes of a request that does not go its way.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It never arrives, and this is the answer.
    Instead(Answered),
    /// It takes effect, and this is the answer.
    Lost(Answered),
}

type Faults = Box<dyn Fn(&Request<Bytes>) -> Option<Fault> + Send + Sync>;

/// A write as it was sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Write {
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// A deployment, and everything that it was asked.
pub(crate) struct Wire {
    pub(crate) deployment: sim::Coder,
    faults: Faults,
    asked: Mutex<Vec<String>>,
    writes: Mutex<Vec<Write>>,
}

impl Wire {
    /// To a deployment that goes on from a state.
    pub(crate) fn new(state: State) -> Arc<Self> {
        Self::to(memory::coder(Arc::new(memory::start), state))
    }

    pub(crate) fn to(deployment: sim::Coder) -> Arc<Self> {
        Self::failing(deployment, |_| None)
    }

    /// The same with a fault in some requests.
    pub(crate) fn failing(
        deployment: sim::Coder,
        faults: impl Fn(&Request<Bytes>) -> Option<Fault> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (asked, writes) = (Mutex::default(), Mutex::default());
        Arc::new(Self { deployment, faults: Box::new(faults), asked, writes })
    }

    pub(crate) fn client(self: &Arc<Self>) -> Client {
        memory::owner(Arc::clone(self) as _)
    }

    /// The deployment as a reconcile has it that begins now.
    pub(crate) fn coder(self: &Arc<Self>) -> Coder {
        Coder::new(self.client(), Promises::default())
    }

    /// What was asked since the last call, as `METHOD path`.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// Everything that was written.
    pub(crate) fn writes(&self) -> Vec<Write> {
        self.writes.lock().unwrap().clone()
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Wire").field("deployment", &self.deployment).finish_non_exhaustive()
    }
}

impl Transport for Wire {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Answered> {
        let path = request.uri().path().to_owned();
        self.asked.lock().unwrap().push(format!("{} {path}", request.method()));
        if request.method() != Method::GET {
            let body = serde_json::from_slice(request.body()).unwrap_or_default();
            self.writes.lock().unwrap().push(Write { path, body });
        }
        let fault = (self.faults)(&request);
        Box::pin(async move {
            match fault {
                Some(Fault::Instead(answer)) => answer,
                Some(Fault::Lost(answer)) => self.deployment.send(request).await.and(answer),
                None => self.deployment.send(request).await,
            }
        })
    }
}

/// An answer of coderd.
pub(crate) fn answer(status: u16, body: &Value) -> Response<Bytes> {
    let answer = Response::builder().status(status).header("x-coder-build-version", "v2.36.1");
    answer.body(body.to_string().into()).unwrap()
}
