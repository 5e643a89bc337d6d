use std::sync::{Arc, Mutex};

use rcgen::{CertificateParams, KeyPair, SanType};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer},
    },
};

use super::*;

/// A server that gives every connection the same answer, and remembers what it was sent.
async fn server(answer: Vec<u8>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let written = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let length = connection.read(&mut request).await.unwrap();
            let text = String::from_utf8_lossy(&request[..length]).into_owned();
            written.lock().unwrap().push(text);
            connection.write_all(&answer).await.ok();
            connection.shutdown().await.ok();
        }
    });
    (url, heard)
}

fn transport(limit: usize) -> HttpTransport {
    transport_with(limit, AddressPolicy::Any)
}

fn transport_with(limit: usize, addresses: AddressPolicy) -> HttpTransport {
    // What the machine's environment says about proxies is not the subject here.
    let http = reqwest::Client::builder().no_proxy();
    HttpTransport { http: configured(http, addresses).build().unwrap(), limit, addresses }
}

fn get(url: &str) -> http::Request<Bytes> {
    http::Request::get(url).header("coder-session-token", "t").body(Bytes::new()).unwrap()
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        .into_bytes()
}

#[tokio::test]
async fn a_redirect_comes_back_as_an_answer_and_nobody_else_is_asked() {
    let (elsewhere, heard_elsewhere) = server(ok("stolen")).await;
    let redirect = format!(
        "HTTP/1.1 302 Found\r\nLocation: {elsewhere}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let (url, heard) = server(redirect.into_bytes()).await;
    let response = transport(BODY_LIMIT).send(get(&url)).await.unwrap();
    assert_eq!(response.status(), 302);
    assert_eq!(heard.lock().unwrap().len(), 1);
    assert!(heard_elsewhere.lock().unwrap().is_empty());
}

#[tokio::test]
async fn cookies_are_not_kept_and_the_user_agent_has_a_version() {
    let cookie = b"HTTP/1.1 200 OK\r\nSet-Cookie: coder_session_token=c\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (url, heard) = server(cookie.to_vec()).await;
    let transport = transport(BODY_LIMIT);
    transport.send(get(&url)).await.unwrap();
    transport.send(get(&url)).await.unwrap();
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 2);
    assert!(heard.iter().all(|it| !it.to_lowercase().contains("cookie:")), "{heard:?}");
    assert!(heard[0].contains(USER_AGENT), "{heard:?}");
}

#[tokio::test]
async fn an_answer_is_read_up_to_the_limit_and_not_beyond() {
    let (url, _) = server(ok("12345678")).await;
    assert_eq!(transport(8).send(get(&url)).await.unwrap().body().as_ref(), b"12345678");
    assert_eq!(transport(7).send(get(&url)).await.unwrap_err(), TransportError::TooLarge { limit: 7 });
}

#[tokio::test]
async fn what_was_never_sent_is_told_from_what_broke_on_the_way() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused = transport(BODY_LIMIT).send(get(&format!("http://{free}"))).await.unwrap_err();
    assert!(matches!(&refused, TransportError::Connect(why) if why.contains("refused")), "{refused}");
    let (url, _) = server(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort".to_vec()).await;
    let cut = transport(BODY_LIMIT).send(get(&url)).await.unwrap_err();
    assert!(matches!(cut, TransportError::Broken(_)), "{cut}");
}

#[test]
fn certificates_that_are_none_are_refused() {
    for pem in ["", "nonsense"] {
        let options = HttpOptions { authority: Some(pem.as_bytes().to_vec()), ..HttpOptions::default() };
        assert!(matches!(HttpTransport::new(options), Err(TransportOptionsError::Certificates(_))));
    }
    assert!(HttpTransport::new(HttpOptions::default()).is_ok());
}

#[test]
fn an_authority_of_ones_own_is_taken_beside_the_platforms() {
    let authority = rcgen::generate_simple_self_signed(["coder.test".to_owned()]).unwrap();
    let pem = authority.cert.pem().repeat(2);
    HttpTransport::new(HttpOptions { authority: Some(pem.into_bytes()), ..HttpOptions::default() }).unwrap();
}

#[tokio::test]
async fn a_policy_refuses_local_addresses_written_or_resolved_and_sends_nothing() {
    let (url, heard) = server(ok("hello")).await;
    let port = url.rsplit(':').next().unwrap();
    let policed = transport_with(BODY_LIMIT, AddressPolicy::NotLocal);
    for host in ["127.0.0.1", "localhost"] {
        let refused = policed.send(get(&format!("http://{host}:{port}"))).await.unwrap_err();
        assert!(matches!(refused, TransportError::NotAllowed(_)), "{host}: {refused}");
    }
    // A name that passes for itself, and is refused for what it resolves to.
    let resolved = policed.http.get(format!("http://localhost:{port}")).send().await.unwrap_err();
    assert!(matches!(failure(resolved), TransportError::NotAllowed(_)));
    assert!(heard.lock().unwrap().is_empty());
    assert_eq!(transport(BODY_LIMIT).send(get(&url)).await.unwrap().status(), 200);
}

/// A server with a certificate of its own for a name or an address. Returns its address and the certificate.
async fn encrypted(name: SanType) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names.push(name);
    let certificate = params.self_signed(&key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(certificate.der().to_vec())],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let (acceptor, listener) =
        (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            acceptor.accept(connection).await.ok();
        }
    });
    (url, certificate.pem())
}

#[tokio::test]
async fn refused_certificate_is_told_by_what_is_wrong_with_it() {
    let address = SanType::IpAddress([127, 0, 0, 1].into());
    let name = SanType::DnsName("coder.example.com".try_into().unwrap());
    for (name, is_trusted, expected) in
        [(address, false, CertificateProblem::Untrusted), (name, true, CertificateProblem::OtherNames)]
    {
        let (url, pem) = encrypted(name).await;
        let authority = is_trusted.then(|| pem.into_bytes());
        let transport = HttpTransport::new(HttpOptions { authority, addresses: AddressPolicy::Any }).unwrap();
        let error = transport.send(get(&url)).await.unwrap_err();
        assert!(error.sent_nothing(), "{error}");
        let TransportError::Certificate { problem, .. } = error else { panic!("{error}") };
        assert_eq!(problem, expected);
    }
}
