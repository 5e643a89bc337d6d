//! A proxy in front of a coderd that writes down what passes, and can be told to misbehave.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use futures::stream;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Frame, Incoming},
    header::{
        CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER, TRANSFER_ENCODING,
    },
    http::request::Parts,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use reqwest::Method;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::watch,
    time::Instant,
};

/// What becomes of requests.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Mood {
    /// They are passed on.
    Passing,
    /// The connection ends without an answer.
    Down,
    /// The page of somebody else who listens here now.
    Html,
    /// The answer ends in its middle.
    Truncated,
    /// An answer that sends the caller to another host.
    RedirectTo(String),
    /// A failure whose text repeats the token, and is another one each time.
    RepeatingTheToken,
    /// Too many requests; come again in so many seconds.
    Busy(u32),
    /// Passed on, but the server says that it has this version.
    Version(&'static str),
    /// Requests of this method get this status; the others are passed on.
    Failing(Method, u16),
    /// The next request of this method gets this status; then all are passed on.
    FailingOnce(Method, u16),
    /// Passed on, but the answers say that the path has this limit a minute.
    Limit(u32),
    /// Answered with this JSON.
    Body(String),
    /// The next request of this method is passed on twice, and the second answer is given.
    Twice(Method),
    /// Passed on, but the answer to the next request of this method is kept until [`Proxy::release`].
    HoldingOnce(Method),
    /// Passed on, but the answers to writes are kept until the mood is another one.
    HoldingWrites,
}

/// A request as it came.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) token: Option<String>,
    /// The value of a provisioner key that was presented.
    pub(crate) key: Option<String>,
    pub(crate) at: Instant,
}

#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) url: String,
    shared: Arc<Shared>,
}

struct Shared {
    http: reqwest::Client,
    coderd: Mutex<String>,
    seen: Mutex<Vec<Seen>>,
    /// The mood, and how paths end that it is for.
    mood: watch::Sender<(Mood, &'static str)>,
    /// How many times answers that are kept were released.
    released: watch::Sender<u32>,
}

impl Shared {
    /// Whether this is the one request that the mood is for; the mood is over with that.
    fn is_first(&self, method: &Method, end: &'static str) -> bool {
        self.mood.send_if_modified(|(mood, on)| {
            let is_once = matches!(mood, Mood::FailingOnce(it, _) | Mood::HoldingOnce(it) | Mood::Twice(it) if it == method);
            let is_on = *on == end && is_once;
            if is_on {
                *mood = Mood::Passing;
            }
            is_on
        })
    }
}

type Answer = Response<BoxBody<Bytes, Gone>>;

/// The end of a connection before that of an answer.
#[derive(Debug)]
pub(crate) struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("gone")
    }
}

impl std::error::Error for Gone {}

impl Proxy {
    pub(crate) async fn start(coderd: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self::behind(coderd, format!("http://{}", listener.local_addr().unwrap()));
        let shared = Arc::clone(&proxy.shared);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, Arc::clone(&shared)));
            }
        });
        proxy
    }

    /// One that somebody else listens for.
    pub(super) fn behind(coderd: &str, url: String) -> Self {
        let shared = Shared {
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            coderd: Mutex::new(coderd.to_owned()),
            seen: Mutex::default(),
            mood: watch::Sender::new((Mood::Passing, "")),
            released: watch::Sender::new(0),
        };
        Self { url, shared: Arc::new(shared) }
    }

    /// Serves one connection.
    pub(super) fn serve<C>(&self, connection: C) -> impl Future<Output = ()> + use<C>
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        serve(connection, Arc::clone(&self.shared))
    }

    /// From now on, for every request.
    pub(crate) fn set(&self, mood: Mood) {
        self.set_on("", mood);
    }

    /// From now on, for requests whose path ends so; the others are passed on.
    pub(crate) fn set_on(&self, end: &'static str, mood: Mood) {
        self.shared.mood.send_replace((mood, end));
    }

    /// Lets the answer go that is kept.
    pub(crate) fn release(&self) {
        self.shared.released.send_modify(|it| *it += 1);
    }

    /// Passes on to another coderd from now on.
    pub(crate) fn turn_to(&self, coderd: &str) {
        coderd.clone_into(&mut self.shared.coderd.lock().unwrap());
    }

    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// How many times that was read.
    pub(crate) fn reads(&self, end: &str) -> usize {
        self.requests().iter().filter(|it| it.method == Method::GET && it.path.ends_with(end)).count()
    }

    /// The requests that may have changed something.
    pub(crate) fn writes(&self) -> Vec<String> {
        let writes = self.requests().into_iter().filter(|it| it.method != Method::GET);
        writes.map(|it| format!("{} {}", it.method, it.path)).collect()
    }
}

async fn serve<C>(connection: C, shared: Arc<Shared>)
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
    // A connection that ends early is what some moods are for.
    http1::Builder::new().serve_connection(TokioIo::new(connection), service).await.ok();
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Answer, Gone> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = parts.uri.path().to_owned();
    let sent = |name: &str| parts.headers.get(name).and_then(|it| it.to_str().ok()).map(str::to_owned);
    let (token, key) = (sent("coder-session-token"), sent("coder-provisioner-daemon-key"));
    let seen = Seen { method: parts.method.clone(), path: path.clone(), token, key, at: Instant::now() };
    let nth = {
        let mut all = shared.seen.lock().unwrap();
        all.push(seen.clone());
        all.len()
    };
    let (mood, end) = shared.mood.borrow().clone();
    if !path.ends_with(end) {
        return pass(parts, body, &shared).await.map(whole);
    }
    match mood {
        Mood::Down => Err(Gone),
        Mood::Html => Ok(said(200, "text/html", "<html><h1>Welcome to nginx</h1></html>")),
        Mood::Truncated => pass(parts, body, &shared).await.map(half),
        Mood::RedirectTo(url) => Ok(redirected(&format!("{url}{path}"))),
        Mood::RepeatingTheToken => {
            let token = seen.token.unwrap_or_default();
            let text = format!(r#"{{"message": "request failed", "detail": "session {token} is broken"}}"#);
            let mut answer = said(500, "application/json", &text);
            answer.headers_mut().insert("x-coder-request-id", format!("request-{nth}").parse().unwrap());
            Ok(answer)
        }
        Mood::Busy(seconds) => {
            let mut answer = said(429, "application/json", r#"{"message": "You've been rate limited"}"#);
            answer.headers_mut().insert(RETRY_AFTER, seconds.into());
            Ok(answer)
        }
        Mood::Version(version) => {
            let (status, headers, mut body) = pass(parts, body, &shared).await?;
            if path.ends_with("/buildinfo") {
                let mut build: Value = serde_json::from_slice(&body).unwrap();
                build["version"] = version.into();
                body = build.to_string().into();
            }
            Ok(whole((status, headers, body)))
        }
        Mood::Limit(limit) => {
            let (status, mut headers, body) = pass(parts, body, &shared).await?;
            headers.insert("x-ratelimit-limit", limit.into());
            headers.insert("x-ratelimit-remaining", limit.into());
            Ok(whole((status, headers, body)))
        }
        Mood::Body(text) => Ok(said(200, "application/json", &text)),
        Mood::Failing(method, status) if method == seen.method => {
            Ok(said(status, "application/json", r#"{"message": "not now"}"#))
        }
        Mood::FailingOnce(method, status) if method == seen.method && shared.is_first(&seen.method, end) => {
            Ok(said(status, "application/json", r#"{"message": "not now"}"#))
        }
        Mood::HoldingOnce(method) if method == seen.method && shared.is_first(&seen.method, end) => {
            let mut released = shared.released.subscribe();
            let passed = pass(parts, body, &shared).await?;
            released.changed().await.map_err(|_| Gone)?;
            Ok(whole(passed))
        }
        Mood::Twice(method) if method == seen.method && shared.is_first(&seen.method, end) => {
            pass(parts.clone(), body.clone(), &shared).await?;
            pass(parts, body, &shared).await.map(whole)
        }
        Mood::Passing | Mood::Failing(..) | Mood::FailingOnce(..) | Mood::HoldingOnce(_) | Mood::Twice(_) => {
            pass(parts, body, &shared).await.map(whole)
        }
        Mood::HoldingWrites => {
            let passed = pass(parts, body, &shared).await?;
            if seen.method != Method::GET {
                let mut mood = shared.mood.subscribe();
                mood.wait_for(|(mood, _)| *mood != Mood::HoldingWrites).await.map_err(|_| Gone)?;
            }
            Ok(whole(passed))
        }
    }
}

fn redirected(to: &str) -> Answer {
    let mut answer = said(307, "text/plain", "");
    answer.headers_mut().insert(LOCATION, to.parse().unwrap());
    answer
}

type Passed = (StatusCode, HeaderMap, Bytes);

async fn pass(parts: Parts, body: Bytes, shared: &Shared) -> Result<Passed, Gone> {
    let coderd = shared.coderd.lock().unwrap().clone();
    let url = format!("{coderd}{}", parts.uri.path_and_query().map_or("/", |it| it.as_str()));
    let mut headers = parts.headers;
    headers.remove("host");
    let answer = shared.http.request(parts.method, url).headers(headers).body(body).send().await;
    let answer = answer.map_err(|_| Gone)?;
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    headers.remove(CONTENT_LENGTH);
    headers.remove(TRANSFER_ENCODING);
    Ok((status, headers, answer.bytes().await.map_err(|_| Gone)?))
}

fn whole((status, headers, body): Passed) -> Answer {
    let mut answer = Response::new(full(body));
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer
}

fn half((status, mut headers, body): Passed) -> Answer {
    headers.insert(CONTENT_LENGTH, body.len().into());
    let frames = [Ok(Frame::data(body.slice(..body.len() / 2))), Err(Gone)];
    let mut answer = Response::new(StreamBody::new(stream::iter(frames)).boxed());
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer
}

fn said(status: u16, kind: &'static str, text: &str) -> Answer {
    let mut answer = Response::new(full(Bytes::copy_from_slice(text.as_bytes())));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
    answer.headers_mut().insert(CONTENT_TYPE, kind.parse().unwrap());
    if kind == "application/json" {
        // In coderd's name.
        answer.headers_mut().insert("x-coder-build-version", HeaderValue::from_static("v2.36.1"));
    }
    answer
}

fn full(body: Bytes) -> BoxBody<Bytes, Gone> {
    Full::new(body).map_err(|never: Infallible| match never {}).boxed()
}
