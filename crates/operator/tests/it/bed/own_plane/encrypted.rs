//! A Coder of ours that speaks HTTPS with a certificate from a Secret.

use rcgen::{CertificateParams, KeyPair, SanType};
use serde_json::json;

use super::ground::{ready, shipped, stage};
use crate::bed::tls::authority;

#[tokio::test]
async fn with_certificates_coder_serves_https_and_we_reach_it_all_the_same() {
    let stage = stage().await;
    let authority = authority();
    let host = format!("main.{}.svc.cluster.local", stage.namespace);
    let mut params = CertificateParams::default();
    params.subject_alt_names.push(SanType::DnsName(host.as_str().try_into().unwrap()));
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let pair = json!({"tls.crt": certificate.pem(), "tls.key": key.serialize_pem()});
    stage.write_secret("coder-tls", &pair).await;
    stage.write_secret("corporate-ca", &json!({"ca.crt": authority.pem()})).await;
    let mut plane = shipped();
    plane["spec"]["tls"] = json!({"secretNames": ["coder-tls"]});
    plane["spec"]["certs"] = json!({"secrets": [{"name": "corporate-ca", "key": "ca.crt"}]});
    let ready = ready(&stage, &plane).await;
    assert_eq!(ready["status"]["url"], format!("https://{host}:443"));

    let bed = testbed::shared().unwrap();
    let trusting = |pem: &str| {
        let certificate = reqwest::Certificate::from_pem(pem.as_bytes()).unwrap();
        let proxy = reqwest::Proxy::all(&bed.proxy).unwrap();
        reqwest::Client::builder().proxy(proxy).tls_certs_only([certificate]).build().unwrap()
    };
    let url = format!("https://{host}/api/v2/buildinfo");
    let answer = trusting(&authority.pem()).get(&url).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let build: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(build["deployment_id"], ready["status"]["deploymentID"]);
    let stranger = crate::bed::tls::authority();
    assert!(trusting(&stranger.pem()).get(&url).send().await.is_err(), "it is that certificate and no other");
}
