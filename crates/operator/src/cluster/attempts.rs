//! How often a request is sent to Kubernetes, and how long all attempts may take together.
//!
//! kube's own retries stand inside every layer that is added to a client, so a repeated write would not pass the fence again.
//! They are switched off; the attempts here are made outside the fence.

use std::time::Duration;

use http::{Request, Response, StatusCode, header::RETRY_AFTER};
use kube::{Client, client::Body};
use tokio::time::{sleep, timeout};
use tower::{BoxError, service_fn};

/// How long all attempts of a request may take together, up to the last byte of the answer.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest pause that the server may ask for. A longer one is the caller's error, and the caller's queue waits.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The pause when the server asks for none.
const PAUSE: Duration = Duration::from_millis(250);

/// How often a read that the server refused for now is repeated. Writes are never repeated: their callers decide that.
#[derive(Debug, Clone, Copy)]
pub(super) enum Repeats {
    Never,
    Twice,
}

/// Returns a client that sends its requests through `inner`, each within [`TIMEOUT`].
pub(super) fn bounded(inner: Client, repeats: Repeats) -> Client {
    let namespace = inner.default_namespace().to_owned();
    let valid_until = *inner.valid_until();
    let service = service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        async move {
            let answered = timeout(TIMEOUT, send(&inner, request, repeats)).await;
            answered.map_err(|_| BoxError::from(format!("no complete answer within {TIMEOUT:?}")))?
        }
    });
    Client::new(service, namespace).with_valid_until(valid_until)
}

/// Sends a request, and again while the answer is worth another attempt.
async fn send(client: &Client, request: Request<Body>, repeats: Repeats) -> Result<Response<Body>, BoxError> {
    let repeats = match repeats {
        Repeats::Twice if request.method().is_safe() => 2,
        Repeats::Twice | Repeats::Never => 0,
    };
    for _ in 0..repeats {
        let Some(attempt) = copy(&request) else { break };
        let answer = client.send(attempt).await?;
        match pause_before_repeat(&answer) {
            Some(pause) => sleep(pause).await,
            None => return complete(answer).await,
        }
    }
    complete(client.send(request).await?).await
}

/// Returns the pause before the request of this answer is worth another attempt. `None` where it is not.
fn pause_before_repeat(answer: &Response<Body>) -> Option<Duration> {
    let is_for_now = matches!(
        answer.status(),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    );
    let asked = answer.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
    let pause = asked.map_or(PAUSE, Duration::from_secs);
    (is_for_now && pause <= LONGEST_PAUSE).then_some(pause)
}

/// Returns the same request once more. `None` where the body is a stream.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// Reads the answer to its end: a body that comes byte by byte would outlast every timeout of the connection.
async fn complete(answer: Response<Body>) -> Result<Response<Body>, BoxError> {
    let (parts, body) = answer.into_parts();
    Ok(Response::from_parts(parts, Body::from(body.collect_bytes().await?)))
}

#[cfg(test)]
mod tests;
