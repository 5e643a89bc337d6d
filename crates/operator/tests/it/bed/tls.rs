//! A coderd behind a certificate of an authority that only its users know.

use std::{net::IpAddr, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer},
    },
};

use super::{
    get, licensed,
    proxy::Proxy,
    stage::{Stage, group, group_named, is_held_up, is_ready, plane, words},
};

pub(super) fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "corporate authority of a test");
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Speaks TLS with a certificate for that address, signed by that authority.
fn acceptor(address: IpAddr, authority: &CertifiedIssuer<'static, KeyPair>) -> TlsAcceptor {
    let mut params = CertificateParams::default();
    params.subject_alt_names.push(SanType::IpAddress(address));
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(certificate)], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// A proxy that speaks TLS with a certificate for its address, signed by that authority.
async fn start(coderd: &str, authority: &CertifiedIssuer<'static, KeyPair>) -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = acceptor(address.ip(), authority);
    let proxy = Proxy::behind(coderd, format!("https://{address}"));
    let served = proxy.clone();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            // A client that does not trust us goes away in the middle of the greeting.
            if let Ok(connection) = acceptor.accept(connection).await {
                tokio::spawn(served.serve(connection));
            }
        }
    });
    proxy
}

/// The same for whoever keeps a connection and speaks something else on it, as daemons do. Gives its address.
pub(super) async fn tunnel(coderd: &str, authority: &CertifiedIssuer<'static, KeyPair>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = acceptor(address.ip(), authority);
    let coderd = coderd.strip_prefix("http://").unwrap().to_owned();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let (acceptor, coderd) = (acceptor.clone(), coderd.clone());
            tokio::spawn(async move {
                let mut outer = acceptor.accept(connection).await.ok()?;
                let mut inner = TcpStream::connect(coderd).await.ok()?;
                // Either side may hang up whenever it likes.
                tokio::io::copy_bidirectional(&mut outer, &mut inner).await.ok()
            });
        }
    });
    format!("https://{address}")
}

#[tokio::test]
async fn an_authority_that_is_named_is_trusted_and_one_that_is_not_is_told_what_to_do() {
    let coderd = licensed().await;
    let (ours, theirs) = (authority(), authority());
    let proxy = start(&coderd.owner.url, &ours).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.apply(&group(&json!({}))).await;
    let told = stage.wait_for("CoderControlPlane", "main", "not trusted", is_held_up("Unreachable")).await;
    assert!(words(&told).contains("certificate") && words(&told).contains("caSecretRef"), "{}", words(&told));

    let mut trusting = plane("main", &proxy.url);
    trusting["spec"]["external"]["caSecretRef"] = json!({"name": "corporate-ca"});
    stage.apply(&trusting).await;
    stage.wait_for("CoderControlPlane", "main", "without its authority", is_held_up("SecretNotFound")).await;
    stage.write_secret("corporate-ca", &json!({"ca.crt": theirs.pem()})).await;
    stage.wait_for("CoderControlPlane", "main", "not trusted", is_held_up("Unreachable")).await;
    assert_eq!(proxy.requests().len(), 0, "nothing was said to somebody unknown");
    stage.write_secret("corporate-ca", &json!({"ca.crt": ours.pem()})).await;
    stage.wait_for("CoderControlPlane", "main", "ready", is_ready).await;
    stage.wait_for("CoderGroup", "developers", "ready", is_ready).await;
}

#[tokio::test]
async fn certificates_swapped_behind_a_running_plane_stop_everything_until_the_right_ones_are_back() {
    let coderd = licensed().await;
    let (ours, theirs) = (authority(), authority());
    let proxy = start(&coderd.owner.url, &ours).await;
    let stage = Stage::bare(coderd).await;
    stage.write_token(&stage.coderd.owner.token).await;
    stage.write_secret("corporate-ca", &json!({"ca.crt": ours.pem()})).await;
    let mut trusting = plane("main", &proxy.url);
    trusting["spec"]["external"]["caSecretRef"] = json!({"name": "corporate-ca"});
    stage.apply(&trusting).await;
    stage.apply(&group(&json!({"quotaAllowance": 1}))).await;
    stage.apply(&group_named("temporary", &json!({"deletionPolicy": "Delete"}))).await;
    let made = stage.wait_for("CoderGroup", "developers", "ready", is_ready).await;
    let temporary = stage.wait_for("CoderGroup", "temporary", "ready", is_ready).await;

    stage.write_secret("corporate-ca", &json!({"ca.crt": theirs.pem()})).await;
    let told = stage.is_noticed("CoderControlPlane", "main", "not trusted", is_held_up("Unreachable")).await;
    assert!(words(&told).contains("those under ca.crt in Secret corporate-ca"), "{}", words(&told));
    assert!(!words(&told).contains("spec.external.caSecretRef"), "it is named there: {}", words(&told));
    let before = proxy.requests().len();
    stage.apply(&group(&json!({"quotaAllowance": 2}))).await;
    stage.delete("CoderGroup", "temporary").await;
    let blocked =
        stage.wait_for("CoderGroup", "developers", "blocked", is_held_up("ControlPlaneNotReady")).await;
    assert!(words(&blocked).contains("Unreachable"), "{}", words(&blocked));
    stage.look_again("CoderGroup", "developers").await;
    stage.wait_for("CoderGroup", "temporary", "held up", is_held_up("Unreachable")).await;
    let after: Vec<String> = proxy.requests().split_off(before).into_iter().map(|it| it.path).collect();
    assert_eq!(after, Vec::<String>::new(), "the client that trusts the old certificates is used no more");

    stage.write_secret("corporate-ca", &json!({"ca.crt": ours.pem()})).await;
    stage.is_noticed("CoderGroup", "developers", "ready again", is_ready).await;
    let path = format!("/api/v2/groups/{}", made["status"]["id"].as_str().unwrap());
    assert_eq!(get(&stage.coderd, &path).await["quota_allowance"], 2);
    stage.gone(&temporary).await;
}
