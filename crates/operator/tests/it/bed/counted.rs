//! A proxy in front of a coderd that writes down what passes.

use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Bytes, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use reqwest::Method;
use tokio::net::TcpListener;

/// What has passed so far.
type Requests = Arc<Mutex<Vec<(Method, String)>>>;

pub(crate) struct Counted {
    pub(crate) url: String,
    requests: Requests,
}

impl Counted {
    pub(crate) async fn start(coderd: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Requests::default();
        let (coderd, written) = (coderd.to_owned(), Arc::clone(&requests));
        tokio::spawn(async move {
            let http = reqwest::Client::builder().no_proxy().build().unwrap();
            while let Ok((connection, _)) = listener.accept().await {
                let (http, coderd, written) = (http.clone(), coderd.clone(), Arc::clone(&written));
                let service = service_fn(move |request| {
                    pass(request, http.clone(), coderd.clone(), Arc::clone(&written))
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(connection), service));
            }
        });
        Self { url, requests }
    }

    pub(crate) fn requests(&self) -> Vec<(Method, String)> {
        self.requests.lock().unwrap().clone()
    }

    /// How many requests may have changed something.
    pub(crate) fn writes(&self) -> usize {
        self.requests().iter().filter(|(method, _)| method != Method::GET).count()
    }
}

async fn pass(
    request: Request<Incoming>,
    http: reqwest::Client,
    coderd: String,
    written: Requests,
) -> Result<Response<Full<Bytes>>, reqwest::Error> {
    let (parts, body) = request.into_parts();
    written.lock().unwrap().push((parts.method.clone(), parts.uri.path().to_owned()));
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let url = format!("{coderd}{}", parts.uri.path_and_query().map_or("/", |it| it.as_str()));
    let mut headers = parts.headers;
    headers.remove("host");
    let answer = http.request(parts.method, url).headers(headers).body(body).send().await?;
    let mut response = Response::new(Full::default());
    *response.status_mut() = answer.status();
    for (name, value) in
        answer.headers().iter().filter(|(name, _)| *name != "content-length" && *name != "transfer-encoding")
    {
        response.headers_mut().append(name, value.clone());
    }
    *response.body_mut() = Full::from(answer.bytes().await?);
    Ok(response)
}
