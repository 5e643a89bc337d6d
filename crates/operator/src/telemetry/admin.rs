//! What the operator tells those who look after it: whether it lives, whether it acts, and its counts.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
    routing::get,
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time::Instant};

use super::metrics::Metrics;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How far the process is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    Starting,
    /// It would act if it led.
    StandingBy,
    /// Its controllers run.
    Acting,
    /// It was told to end.
    Ending,
}

/// The phase, and until when the last answer about the Lease counts.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    phase: Phase,
    in_touch_until: Option<Instant>,
}

/// How far the process is, shared with whoever asks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(watch::Sender<State>);

impl Progress {
    pub(crate) fn set(&self, phase: Phase) {
        self.0.send_modify(|it| it.phase = phase);
    }

    /// The Lease could be read or written, which counts until then.
    pub(crate) fn is_in_touch_until(&self, then: Instant) {
        self.0.send_modify(|it| it.in_touch_until = Some(then));
    }

    fn answer(&self, now: Instant) -> (StatusCode, &'static str) {
        answer(*self.0.borrow(), now)
    }
}

/// Who stands by is ready, too: it would act at once. A roll-out that waits for a new pod to be ready would otherwise wait
/// for the old one to go, which waits for the new one.
fn answer(State { phase, in_touch_until }: State, now: Instant) -> (StatusCode, &'static str) {
    let is_in_touch = in_touch_until.is_some_and(|it| now <= it);
    match phase {
        Phase::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starts\n"),
        Phase::StandingBy if is_in_touch => (StatusCode::OK, "stands by\n"),
        Phase::StandingBy => (StatusCode::SERVICE_UNAVAILABLE, "cannot reach the lease\n"),
        Phase::Acting => (StatusCode::OK, "acts\n"),
        Phase::Ending => (StatusCode::SERVICE_UNAVAILABLE, "ends\n"),
    }
}

/// Where to answer; nowhere when absent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) health: Option<SocketAddr>,
    pub(crate) metrics: Option<SocketAddr>,
}

/// Answers at these addresses for as long as the result is kept. One address for both is one listener.
pub(crate) async fn serve(
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
    let url = format!("http://{}", listener.local_addr().unwrap_or(address));
    tracing::info!(url, "listening for {what}");
    servers.spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(url, "stopped listening: {error}");
        }
    });
    Ok(())
}

fn health_routes(progress: Progress) -> Router {
    Router::new()
        .route("/healthz", get(|| std::future::ready("lives\n")))
        .route("/readyz", get(move || std::future::ready(progress.answer(Instant::now()))))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_acts_or_could_is_ready_and_who_starts_ends_or_is_out_of_touch_is_not() {
        let now = Instant::now();
        let (just, late) = (Duration::from_secs(15), Duration::from_secs(16));
        let table = [
            (Phase::Starting, None, 503, "starts\n"),
            (Phase::StandingBy, None, 503, "cannot reach the lease\n"),
            (Phase::StandingBy, Some(Duration::ZERO), 200, "stands by\n"),
            (Phase::StandingBy, Some(just), 200, "stands by\n"),
            (Phase::StandingBy, Some(late), 503, "cannot reach the lease\n"),
            (Phase::Acting, None, 200, "acts\n"),
            // A leader that is out of touch ends by itself, before that long.
            (Phase::Acting, Some(late), 200, "acts\n"),
            (Phase::Ending, Some(Duration::ZERO), 503, "ends\n"),
        ];
        for (phase, age, status, words) in table {
            let state = State { phase, in_touch_until: age.map(|_| now + just) };
            let (answered, said) = answer(state, now + age.unwrap_or_default());
            assert_eq!((answered.as_u16(), said), (status, words), "{phase:?} after {age:?}");
        }
    }
}
