//! The forward proxy by which pods and operators reach Services by name.
//!
//! A plain request comes in absolute form and goes on to a pod in origin form, upgrades (websockets) included; a
//! `CONNECT` becomes a tunnel. What is neither a Service nor this machine is refused: tests stay on loopback.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use http_body_util::{Either, Full};
use hyper::{
    Method, Request, Response, StatusCode, Uri, body::Bytes, body::Incoming, client::conn::http1 as client,
    header::HOST, server::conn::http1 as server, service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream, lookup_host};

use super::services::{Name, Services};

type Body = Either<Incoming, Full<Bytes>>;

/// Serves until it is dropped.
pub(super) async fn serve(listener: TcpListener, services: Arc<Services>) {
    loop {
        let Ok((connection, _)) = listener.accept().await else {
            continue;
        };
        let services = Arc::clone(&services);
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let services = Arc::clone(&services);
                async move { Ok::<_, Infallible>(answer(request, &services).await) }
            });
            // A connection that breaks is the peer's business.
            server::Builder::new()
                .serve_connection(TokioIo::new(connection), answer)
                .with_upgrades()
                .await
                .ok();
        });
    }
}

async fn answer(request: Request<Incoming>, services: &Services) -> Response<Body> {
    let target = match find(request.uri(), request.method() == Method::CONNECT, services).await {
        Ok(target) => target,
        Err((status, message)) => return refuse(status, &message),
    };
    let forwarded = if request.method() == Method::CONNECT {
        tunnel(request, target).await
    } else {
        forward(request, target).await
    };
    forwarded.unwrap_or_else(|error| refuse(StatusCode::BAD_GATEWAY, &format!("{target}: {error:#}")))
}

/// Where a request goes.
async fn find(uri: &Uri, is_tunnel: bool, services: &Services) -> Result<SocketAddr, (StatusCode, String)> {
    let host = uri.host().ok_or_else(|| (StatusCode::BAD_REQUEST, "this is a forward proxy".to_owned()))?;
    let default = if is_tunnel { 443 } else { 80 };
    let port = uri.port_u16().unwrap_or(default);
    if let Some(name) = Name::parse(host) {
        return services.resolve(&name, port).map_err(|message| (StatusCode::SERVICE_UNAVAILABLE, message));
    }
    let address = if host == "localhost" {
        lookup_host((host, port)).await.ok().and_then(|mut found| found.next())
    } else {
        host.trim_matches(['[', ']']).parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, port))
    };
    address.filter(|it| it.ip().is_loopback()).ok_or_else(|| {
        (StatusCode::FORBIDDEN, format!("{host} is neither a Service of this bed nor this machine"))
    })
}

async fn forward(mut request: Request<Incoming>, target: SocketAddr) -> Result<Response<Body>> {
    let connection = TcpStream::connect(target).await.context("connect")?;
    let (mut sender, driver) = client::handshake(TokioIo::new(connection)).await.context("speak HTTP")?;
    tokio::spawn(driver.with_upgrades());
    if let Some(authority) = request.uri().authority().cloned() {
        let host = authority.as_str().parse().context("name the host")?;
        request.headers_mut().entry(HOST).or_insert(host);
    }
    let path = request.uri().path_and_query().map_or("/", |it| it.as_str());
    *request.uri_mut() = path.parse().context("shorten the request to its path")?;
    request.headers_mut().remove("proxy-connection");
    let inward = hyper::upgrade::on(&mut request);
    let mut answer = sender.send_request(request).await.context("send the request")?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let outward = hyper::upgrade::on(&mut answer);
        tokio::spawn(async move {
            let (Ok(inward), Ok(outward)) = tokio::join!(inward, outward) else {
                return;
            };
            join(TokioIo::new(inward), TokioIo::new(outward)).await;
        });
    }
    Ok(answer.map(Either::Left))
}

async fn tunnel(request: Request<Incoming>, target: SocketAddr) -> Result<Response<Body>> {
    let connection = TcpStream::connect(target).await.context("connect")?;
    tokio::spawn(async move {
        if let Ok(inward) = hyper::upgrade::on(request).await {
            join(TokioIo::new(inward), connection).await;
        }
    });
    Ok(Response::new(Either::Right(Full::default())))
}

async fn join(
    mut one: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    mut other: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
) {
    // Either side may hang up whenever it likes.
    tokio::io::copy_bidirectional(&mut one, &mut other).await.ok();
}

fn refuse(status: StatusCode, message: &str) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::from(format!("bed proxy: {message}\n"))));
    *response.status_mut() = status;
    response
}
