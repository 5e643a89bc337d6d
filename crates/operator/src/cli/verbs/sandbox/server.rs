//! The HTTP side: the API of the deployment, and the page.

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use anyhow::Result;
use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use client::Transport as _;
use serde_json::{Value, json};
use sim::Coder;
use tokio::sync::Notify;

use super::{
    guard::Hosts,
    page::{self, Change},
    state_file::StateFile,
};
use crate::cli::terminal::{WARNING, say_as};

/// No request of a client is longer.
const LONGEST_BODY: usize = 1024 * 1024;

/// Headers of the page: nothing from elsewhere is loaded, and nobody else shows or reads the page.
const PAGE_HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// A deployment that is served. Clones share it.
#[derive(Clone)]
pub(super) struct Served(Arc<Inner>);

struct Inner {
    coder: Coder,
    hosts: Hosts,
    /// `None` where no state is loaded or saved.
    file: Option<StateFile>,
    /// Notified after every request that may have changed the state.
    changed: Notify,
}

impl Served {
    pub(super) fn new(coder: Coder, address: &SocketAddr, file: Option<StateFile>) -> Self {
        Self(Arc::new(Inner { coder, hosts: Hosts::of(address), file, changed: Notify::new() }))
    }

    /// Saves the state, where it is to be saved.
    pub(super) fn save(&self) -> Result<()> {
        let Inner { coder, file, .. } = &*self.0;
        file.as_ref().map_or(Ok(()), |it| it.save(|| coder.state()))
    }

    /// Saves the state after every change, for a process that is killed.
    pub(super) async fn keep_saving(self) -> Infallible {
        loop {
            self.0.changed.notified().await;
            let served = self.clone();
            let saved = tokio::task::spawn_blocking(move || served.save()).await;
            if let Ok(Err(error)) = saved {
                say_as(WARNING, "warning", &format!("{error:#}"));
            }
        }
    }
}

pub(super) fn router(served: Served) -> Router {
    let page = Router::new()
        .route("/", get(async || page_part("text/html; charset=utf-8", page::HTML)))
        .route("/sandbox/page.js", get(async || page_part("text/javascript; charset=utf-8", page::SCRIPT)))
        .route("/sandbox/page.css", get(async || page_part("text/css; charset=utf-8", page::STYLE)))
        .route("/sandbox/state", get(state))
        .route("/sandbox/change", post(change))
        .layer(middleware::map_response(with_page_headers));
    let guarded = middleware::from_fn_with_state(served.clone(), check_host);
    page.fallback(api).layer(guarded).with_state(served)
}

async fn check_host(State(served): State<Served>, request: Request, next: Next) -> Response {
    match served.0.hosts.refusal(request.headers()) {
        Some(refusal) => message(StatusCode::MISDIRECTED_REQUEST, refusal),
        None => next.run(request).await,
    }
}

fn page_part(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn with_page_headers(mut response: Response) -> Response {
    for (name, value) in PAGE_HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn json_answer(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json; charset=utf-8")], value.to_string()).into_response()
}

fn message(status: StatusCode, words: &str) -> Response {
    json_answer(status, &json!({"message": words}))
}

async fn state(State(served): State<Served>) -> Response {
    json_answer(StatusCode::OK, &served.0.coder.read(page::view))
}

/// Changes something as a person would in the dashboard.
async fn change(State(served): State<Served>, headers: HeaderMap, body: Bytes) -> Response {
    let Inner { coder, hosts, .. } = &*served.0;
    if let Some(refusal) = hosts.refusal_of_change(&headers) {
        return message(StatusCode::FORBIDDEN, refusal);
    }
    let change: Change = match serde_json::from_slice(&body) {
        Ok(change) => change,
        Err(error) => return message(StatusCode::BAD_REQUEST, &format!("not a change: {error}")),
    };
    let done = change.carry_out(coder).await;
    served.0.changed.notify_one();
    match done {
        Ok(()) => message(StatusCode::OK, "changed"),
        Err(error) => message(StatusCode::CONFLICT, &format!("{error:#}")),
    }
}

/// Everything else is the deployment's.
async fn api(State(served): State<Served>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, LONGEST_BODY).await else {
        return message(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long for the sandbox");
    };
    // A daemon connects with a GET.
    let is_read = parts.method.is_safe() && !parts.uri.path().ends_with("/provisionerdaemons/serve");
    let answer = served.0.coder.send(axum::http::Request::from_parts(parts, body)).await;
    if !is_read {
        served.0.changed.notify_one();
    }
    match answer {
        Ok(answer) => answer.map(Body::from),
        Err(error) => message(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}
