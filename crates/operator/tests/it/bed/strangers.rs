//! Secrets of the operator's own, manifests that would have them sent elsewhere, and addresses that nobody should be sent to.

use api::{CoderControlPlane, CoderProvisioner, CoderProvisionerKey};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kube::{ResourceExt as _, api::PostParams};
use serde_json::{Value, json};
use testbed::coderd::FIRST_USER_EMAIL;

use super::{
    licensed,
    operator::Operator,
    provisioner::provisioner,
    proxy::Proxy,
    stage::{CREDENTIALS, Stage, install, is_held_up, is_ready, plane, says, words},
};

const TOKEN_SECRET: &str = "main-operator-token";
const KEY_SECRET: &str = "alpha-provisioner-key";
const REFUSED: &str = "SecretNotAllowed";
/// Credentials that the stranger may have.
const OPEN: &str = "open";

async fn value(stage: &Stage, secret: &str, key: &str) -> String {
    let found = stage.api::<Secret>().get(secret).await.unwrap();
    String::from_utf8(found.data.unwrap()[key].0.clone()).unwrap()
}

/// A control plane at a stranger's address, with credentials that may be sent there.
fn at(stranger: &Proxy, name: &str) -> Value {
    let mut plane = plane(name, &stranger.url);
    plane["spec"]["external"]["credentialsSecretRef"] = json!({"name": OPEN});
    plane
}

fn key(name: &str, spec: &Value) -> Value {
    let mut whole = json!({"controlPlaneRef": {"name": "main"}, "interval": "10s"});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisionerKey", "metadata": {"name": name},
        "spec": whole})
}

/// An environment variable from the operator's own token.
fn leaking() -> Value {
    json!([{"name": "LEAK", "valueFrom": {"secretKeyRef": {"name": TOKEN_SECRET, "key": "token"}}}])
}

/// A control plane `main` with a token of ours, a key of ours, and a proxy that says to be the same deployment.
async fn stage() -> (Stage, Proxy) {
    let stage = Stage::bare(licensed().await).await;
    let stranger = Proxy::start(&stage.coderd.owner.url).await;
    let account = json!({"email": FIRST_USER_EMAIL, "password": stage.coderd.password});
    stage.write_secret(CREDENTIALS, &account).await;
    stage.write_secret(OPEN, &json!({"token": stage.coderd.owner.token})).await;
    stage.apply(&plane("main", &stage.coderd.owner.url)).await;
    stage.apply(&key("alpha", &json!({}))).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    stage.wait::<CoderProvisionerKey>("alpha", "ready", is_ready).await;
    (stage, stranger)
}

#[tokio::test]
async fn no_manifest_can_have_the_operators_own_secrets_sent_or_mounted() {
    let (stage, stranger) = stage().await;
    let token = value(&stage, TOKEN_SECRET, "token").await;
    let provisioner_key = value(&stage, KEY_SECRET, "key").await;

    for (name, secret, entry) in [("thief", TOKEN_SECRET, "token"), ("burglar", KEY_SECRET, "key")] {
        let mut stealing = plane(name, &stranger.url);
        stealing["spec"]["external"]["credentialsSecretRef"] = json!({"name": secret, "key": entry});
        stage.apply(&stealing).await;
        let told = stage.wait::<CoderControlPlane>(name, "refused", is_held_up(REFUSED)).await;
        assert!(words(&told).contains(secret), "{}", words(&told));
    }
    let mut forging = at(&stranger, "forger");
    forging["spec"]["external"]["caSecretRef"] = json!({"name": TOKEN_SECRET, "key": "token"});
    stage.apply(&forging).await;
    stage.wait::<CoderControlPlane>("forger", "refused", is_held_up(REFUSED)).await;
    let asked: Vec<String> = stranger.requests().into_iter().map(|it| it.path).collect();
    assert_eq!(asked, Vec::<String>::new(), "refused before anything was sent");

    // What is wrong is one Secret alone, and the rest of these goes on.
    let mut licensing = at(&stranger, "open");
    licensing["spec"]["licenseSecretRef"] = json!({"name": TOKEN_SECRET, "key": "token"});
    stage.apply(&licensing).await;
    stage
        .wait::<CoderControlPlane>("open", "refused", |it| says(it, "LicenseApplied", "False", REFUSED))
        .await;
    let borrowed =
        json!({"controlPlaneRef": {"name": "open"}, "secretName": TOKEN_SECRET, "secretKey": "token"});
    stage.apply(&key("borrower", &borrowed)).await;
    stage.wait::<CoderProvisionerKey>("borrower", "refused", is_held_up(REFUSED)).await;
    let credentials = json!({"credentialsSecretRef": {"name": TOKEN_SECRET, "key": "token"}});
    let bootstrap = json!({"controlPlaneRef": {"name": "open"}, "bootstrap": credentials});
    stage.apply(&provisioner("bootstrap", &bootstrap)).await;
    let is_refused = |it: &Value| says(it, "BootstrapSecretReady", "False", REFUSED);
    stage.wait::<CoderProvisioner>("bootstrap", "refused", is_refused).await;

    // Nor does a pod get one.
    stage.apply(&provisioner("mounting", &json!({"extraEnv": leaking()}))).await;
    let is_refused = |it: &Value| says(it, "DeploymentReady", "False", REFUSED);
    stage.wait::<CoderProvisioner>("mounting", "refused", is_refused).await;
    let secret = json!([{"name": "v", "projected": {"sources": [{"secret": {"name": KEY_SECRET}}]}}]);
    stage.apply(&provisioner("projecting", &json!({"volumes": secret}))).await;
    stage.wait::<CoderProvisioner>("projecting", "refused", is_refused).await;
    let running = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
        "metadata": {"name": "running"}, "spec": {"image": super::stage::image("bed/coder"), "extraEnv": leaking()}});
    stage.apply(&running).await;
    stage.wait::<CoderControlPlane>("running", "refused", is_held_up(REFUSED)).await;
    let deployments = stage.api::<Deployment>().list(&kube::api::ListParams::default()).await.unwrap();
    assert_eq!(deployments.items.len(), 0, "{:#?}", deployments.items);

    let has = |it: &Option<String>, secret: &String| it.as_ref() == Some(secret);
    for seen in stranger.requests() {
        let what = format!("{} {}", seen.method, seen.path);
        assert!(!has(&seen.token, &token) && !has(&seen.key, &token), "the token was sent: {what}");
        assert!(!has(&seen.key, &provisioner_key) && !has(&seen.token, &provisioner_key), "the key: {what}");
    }
}

#[tokio::test]
async fn key_of_a_suspended_provisioner_is_not_sent_to_a_stranger() {
    let (stage, stranger) = stage().await;
    stage.apply(&at(&stranger, "open")).await;
    stage.wait::<CoderControlPlane>("open", "ready", is_ready).await;
    let mut suspended = provisioner("taken-over", &json!({"suspend": true}));
    suspended["spec"]["replicas"] = json!(0);
    stage.apply(&suspended).await;
    let owner = stage.api::<CoderProvisioner>().get("taken-over").await.unwrap();
    // As coder-k8s leaves it: an owner, and no record.
    let secret = "taken-over-provisioner-key";
    let owners = json!([{"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "name": "taken-over",
        "uid": owner.uid(), "controller": true, "blockOwnerDeletion": true}]);
    let left = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "ownerReferences": owners},
        "stringData": {"key": "key-of-the-suspended-provisioner-0123456789"}});
    stage
        .api::<Secret>()
        .create(&PostParams::default(), &serde_json::from_value(left).unwrap())
        .await
        .unwrap();
    let damaged = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "damaged", "annotations": {"coder.com/provisioner-key": "{"}},
        "stringData": {"key": "key-with-a-damaged-record-0123456789"}});
    stage
        .api::<Secret>()
        .create(&PostParams::default(), &serde_json::from_value(damaged).unwrap())
        .await
        .unwrap();
    for (name, secret, reason) in [("one", secret, "HeldByOther"), ("other", "damaged", REFUSED)] {
        let spec = json!({"controlPlaneRef": {"name": "open"}, "secretName": secret});
        stage.apply(&key(name, &spec)).await;
        let refused = stage.wait::<CoderProvisionerKey>(name, "refused", is_held_up(reason)).await;
        assert!(words(&refused).contains(secret), "{}", words(&refused));
        stage.look_again("CoderProvisionerKey", name).await;
    }
    let shown: Vec<String> = stranger.requests().into_iter().filter_map(|it| it.key).collect();
    assert_eq!(shown, [""; 0], "no key is sent to the stranger");
    // The objects are gone at once, and the Secrets stay.
    for name in ["one", "other"] {
        let made = stage.wait::<CoderProvisionerKey>(name, "there", |_| true).await;
        stage.delete("CoderProvisionerKey", name).await;
        stage.gone(&made).await;
    }
    assert!(stage.api::<Secret>().get_opt(secret).await.unwrap().is_some());
    assert!(stage.api::<Secret>().get_opt("damaged").await.unwrap().is_some());
}

#[tokio::test]
async fn a_minted_token_stays_at_the_address_that_it_was_minted_at() {
    let (stage, stranger) = stage().await;
    let token = value(&stage, TOKEN_SECRET, "token").await;
    // It answers with the id of the deployment that we know: anybody can read that.
    stage.apply(&plane("main", &stranger.url)).await;
    let is_moved = |it: &Value| is_ready(it) && it["status"]["url"] == stranger.url.as_str();
    stage.wait::<CoderControlPlane>("main", "at its new address", is_moved).await;
    let sent: Vec<String> = stranger.requests().into_iter().filter_map(|it| it.token).collect();
    assert!(!sent.is_empty() && !sent.contains(&token), "a token of another address was sent");
    assert_ne!(value(&stage, TOKEN_SECRET, "token").await, token, "another one was minted there");
}

#[tokio::test]
async fn local_addresses_are_refused_unless_the_operator_was_started_to_allow_them() {
    let bed = testbed::shared().unwrap();
    let client = bed.client().await.unwrap();
    install(&client).await;
    let namespace = bed.namespace("addresses").await.unwrap();
    let strict = vec![("CODER_OPERATOR_ALLOW_LOCAL_ADDRESSES".to_owned(), "false".to_owned())];
    let operator = Operator::start_with(&namespace, &[], strict);
    let stage = Stage { client, namespace, coderd: (), operator };
    let here = Proxy::start("http://127.0.0.1:1").await;
    stage.write_token("0123456789-0123456789012345678901").await;
    let port = here.url.rsplit(':').next().unwrap();
    let urls = [
        ("loopback", here.url.clone()),
        ("name", format!("http://localhost:{port}")),
        ("mapped", format!("http://[::ffff:127.0.0.1]:{port}")),
        ("metadata", "http://169.254.169.254/latest".to_owned()),
    ];
    for (name, url) in &urls {
        stage.apply(&plane(name, url)).await;
        let told = stage.wait::<CoderControlPlane>(name, "refused", is_held_up("AddressNotAllowed")).await;
        assert!(words(&told).contains("--allow-local-addresses"), "{}", words(&told));
        assert!(says(&told, "Stalled", "True", "AddressNotAllowed"), "{told:#}");
    }
    assert_eq!(here.requests().len(), 0, "nobody was asked anything");
}
