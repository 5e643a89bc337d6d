use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{Router, body, extract::State, http::Method, response::IntoResponse as _};
use futures::{StreamExt as _, stream};
use http_body_util::{Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::{Config, core::DynamicObject};
use serde_json::json;
use tokio::time::Instant;

use super::*;
use crate::cluster::{clients_of, fence::Fence};

/// The methods that a server has seen.
type Seen = Arc<Mutex<Vec<Method>>>;

fn count(seen: &Seen, method: &Method) -> usize {
    seen.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|it| *it == method).count()
}

fn request(method: Method) -> Request<Vec<u8>> {
    Request::builder().method(method).uri("/api/v1/namespaces/n/secrets/s").body(Vec::new()).unwrap()
}

/// A client of a server that gives every request the same answer.
fn client(seen: &Seen, status: u16, retry_after: &'static str) -> Client {
    let seen = Arc::clone(seen);
    let answer = service_fn(move |request: Request<Body>| {
        seen.lock().unwrap().push(request.method().clone());
        let answer = Response::builder().status(status).header(RETRY_AFTER, retry_after);
        let answer = answer.body(Full::<Bytes>::default()).unwrap();
        async { Ok::<_, Infallible>(answer) }
    });
    Client::new(answer, "n")
}

#[tokio::test]
async fn write_is_sent_once_and_read_thrice_to_a_server_that_is_busy() {
    let (seen, fence) = (Seen::default(), Fence::open());
    // The Lease is lost while the first write is answered.
    let answer = |State((seen, fence)): State<(Seen, Fence)>, method: Method| async move {
        if !method.is_safe() {
            fence.open_until(Instant::now());
        }
        seen.lock().unwrap().push(method);
        (axum::http::StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "0")], body::Body::empty())
            .into_response()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state((Arc::clone(&seen), fence.clone()));
    tokio::spawn(axum::serve(listener, router).into_future());
    let clients = clients_of(Config::new(url.parse().unwrap()), fence).unwrap();

    let refused = clients.acting.request::<DynamicObject>(request(Method::GET)).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 503), "{refused}");
    assert_eq!(count(&seen, &Method::GET), 3);
    clients.acting.request::<DynamicObject>(request(Method::PATCH)).await.unwrap_err();
    assert_eq!(count(&seen, &Method::PATCH), 1);
    let refused = clients.acting.request::<DynamicObject>(request(Method::DELETE)).await.unwrap_err();
    assert!(refused.to_string().contains("not sent"), "{refused}");
    assert_eq!(count(&seen, &Method::DELETE), 0);
    clients.electing.request::<DynamicObject>(request(Method::PUT)).await.unwrap_err();
    assert_eq!(count(&seen, &Method::PUT), 1, "the Lease is written also behind a closed fence");
    clients.electing.request::<DynamicObject>(request(Method::GET)).await.unwrap_err();
    assert_eq!(count(&seen, &Method::GET), 4, "the election repeats its reads itself");
}

#[tokio::test(start_paused = true)]
async fn read_is_repeated_after_the_pause_that_the_server_asks_for() {
    let cases = [("1", 3, 2), ("5", 3, 10), ("6", 1, 0), ("3600", 1, 0), ("18446744073709551615", 1, 0)];
    for (retry_after, attempts, seconds) in cases {
        let (seen, begun) = (Seen::default(), Instant::now());
        let client = bounded(client(&seen, 429, retry_after), Repeats::Twice);
        client.request_text(request(Method::GET)).await.unwrap_err();
        assert_eq!(count(&seen, &Method::GET), attempts, "{retry_after}");
        assert_eq!(begun.elapsed().as_secs(), seconds, "{retry_after}");
    }
    let seen = Seen::default();
    let client = bounded(client(&seen, 500, "1"), Repeats::Twice);
    client.request_text(request(Method::GET)).await.unwrap_err();
    assert_eq!(count(&seen, &Method::GET), 1, "an answer that another attempt does not change");
}

#[tokio::test(start_paused = true)]
async fn answer_that_never_ends_fails_after_thirty_seconds() {
    let trickle = || {
        let frame = |()| Ok::<_, Infallible>(Frame::data(Bytes::from_static(b" ")));
        let bytes = stream::unfold((), |()| async { Some((sleep(Duration::from_secs(1)).await, ())) });
        StreamBody::new(bytes.map(frame).boxed())
    };
    let inner =
        service_fn(move |_: Request<Body>| async move { Ok::<_, Infallible>(Response::new(trickle())) });
    let client = bounded(Client::new(inner, "n"), Repeats::Twice);
    let begun = Instant::now();
    let failed = client.request_text(request(Method::GET)).await.unwrap_err();
    assert!(failed.to_string().contains("no complete answer within 30s"), "{failed}");
    assert_eq!(begun.elapsed().as_secs(), 30);
    assert_eq!(client.default_namespace(), "n");
    let list = json!({"items": []}).to_string();
    let whole = service_fn(move |_: Request<Body>| {
        let list = Full::<Bytes>::from(list.clone());
        async { Ok::<_, Infallible>(Response::new(list)) }
    });
    let client = bounded(Client::new(whole, "n"), Repeats::Twice);
    assert_eq!(client.request_text(request(Method::GET)).await.unwrap(), r#"{"items":[]}"#);
}
