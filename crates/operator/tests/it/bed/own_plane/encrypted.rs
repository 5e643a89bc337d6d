//! A Coder of ours that speaks HTTPS with a certificate from a Secret.

use k8s_openapi::api::core::v1::Secret;
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair, SanType};
use serde_json::{Value, json};

use super::ground::{Ground, TOKEN_SECRET, ready, shipped, stage};
use crate::bed::{
    stage::{is_held_up, words},
    tls::authority,
};

/// The values of a Secret with a certificate for that name.
fn pair(name: &str, authority: &CertifiedIssuer<'static, KeyPair>) -> Value {
    let mut params = CertificateParams::default();
    params.subject_alt_names.push(SanType::DnsName(name.try_into().unwrap()));
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    json!({"tls.crt": certificate.pem(), "tls.key": key.serialize_pem(), "ca.crt": authority.pem()})
}

/// Whether the operator has come to a token.
async fn has_token(stage: &Ground) -> bool {
    let secret = stage.api::<Secret>().get_opt(TOKEN_SECRET).await.unwrap();
    secret.and_then(|it| it.data).is_some_and(|it| it.contains_key("token"))
}

#[tokio::test]
async fn operator_uses_https_where_certificates_are_declared() {
    let stage = stage().await;
    let authority = authority();
    let host = format!("main.{}.svc.cluster.local", stage.namespace);
    let mut pair = pair(&host, &authority);
    let ca = pair.as_object_mut().unwrap().remove("ca.crt").unwrap();
    stage.write_secret("coder-tls", &pair).await;
    let mut plane = shipped();
    plane["spec"]["tls"] = json!({"secretNames": ["coder-tls"]});
    stage.apply(&plane).await;
    let is_unknown = |it: &Value| {
        is_held_up("Unreachable")(it) && words(it).contains("UnknownIssuer") && words(it).contains("ca.crt")
    };
    stage.wait_for("CoderControlPlane", "main", "signed by an unknown authority", is_unknown).await;
    assert!(!has_token(&stage).await);
    pair["ca.crt"] = ca;
    stage.write_secret("coder-tls", &pair).await;
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

#[tokio::test]
async fn certificate_without_the_services_name_is_reported_and_not_bypassed() {
    let stage = stage().await;
    let authority = authority();
    let host = format!("main.{}.svc.cluster.local", stage.namespace);
    stage.write_secret("coder-tls", &pair("coder.example.com", &authority)).await;
    let mut plane = shipped();
    plane["spec"]["tls"] = json!({"secretNames": ["coder-tls"]});
    stage.apply(&plane).await;
    let is_reported =
        |it: &Value| is_held_up("Unreachable")(it) && words(it).contains("spec.tls.secretNames");
    let reported = stage.wait_for("CoderControlPlane", "main", "without a certificate", is_reported).await;
    assert!(words(&reported).contains(&host), "{}", words(&reported));
    assert!(!has_token(&stage).await);

    // People keep their certificate, and a second one is for the Service.
    stage.write_secret("coder-internal", &pair(&host, &authority)).await;
    plane["spec"]["tls"] = json!({"secretNames": ["coder-tls", "coder-internal"]});
    ready(&stage, &plane).await;
    assert!(has_token(&stage).await);
}
