//! What the operator tells those who look after it: whether it lives, whether it acts, and its counts.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
    routing::get,
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

use super::metrics::Metrics;
use crate::terminal::say;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How far the process is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// It does not act: it starts, or another one leads.
    #[default]
    Waiting,
    /// Its controllers run.
    Acting,
    /// It was told to end.
    Ending,
}

/// The phase, shared with whoever asks.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(watch::Sender<Phase>);

impl Progress {
    pub(super) fn set(&self, phase: Phase) {
        self.0.send_replace(phase);
    }

    fn answer(&self) -> (StatusCode, &'static str) {
        match *self.0.borrow() {
            Phase::Waiting => (StatusCode::SERVICE_UNAVAILABLE, "waits to act\n"),
            Phase::Acting => (StatusCode::OK, "acts\n"),
            Phase::Ending => (StatusCode::SERVICE_UNAVAILABLE, "ends\n"),
        }
    }
}

/// Where to answer; nowhere when absent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    pub(super) health: Option<SocketAddr>,
    pub(super) metrics: Option<SocketAddr>,
}

/// Answers at these addresses for as long as the result is kept. One address for both is one listener.
pub(super) async fn serve(
    addresses: Addresses,
    progress: Progress,
    metrics: Arc<Metrics>,
) -> Result<JoinSet<()>> {
    let mut servers = JoinSet::new();
    let Addresses { health, metrics: counts } = addresses;
    let (health_router, counts_router) = (health_routes(progress), metrics_routes(metrics));
    if let (Some(address), true) = (health, health == counts) {
        listen(&mut servers, "health and metrics", address, health_router.merge(counts_router)).await?;
        return Ok(servers);
    }
    if let Some(address) = health {
        listen(&mut servers, "health", address, health_router).await?;
    }
    if let Some(address) = counts {
        listen(&mut servers, "metrics", address, counts_router).await?;
    }
    Ok(servers)
}

async fn listen(servers: &mut JoinSet<()>, what: &str, address: SocketAddr, router: Router) -> Result<()> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("listen at {address} for {what}"))?;
    // A port that was left to the system is known only now.
    say(&format!("{what} at http://{}", listener.local_addr().unwrap_or(address)));
    servers.spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            say(&format!("the listener at {address} ended: {error}"));
        }
    });
    Ok(())
}

fn health_routes(progress: Progress) -> Router {
    Router::new()
        .route("/healthz", get(|| std::future::ready("lives\n")))
        .route("/readyz", get(move || std::future::ready(progress.answer())))
}

fn metrics_routes(metrics: Arc<Metrics>) -> Router {
    Router::new().route("/metrics", get(move || std::future::ready(counts(&metrics))))
}

fn counts(metrics: &Metrics) -> Response {
    match metrics.text() {
        Ok(text) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
