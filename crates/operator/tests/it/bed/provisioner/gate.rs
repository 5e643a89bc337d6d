//! What has to come first: a control plane, credentials, a licence, an organization. Each is said in its condition, and what
//! waits goes on when it comes, not when its time is up: the interval here is an hour.

use std::time::{Duration, Instant};

use api::{CoderControlPlane, CoderProvisioner};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Secret},
};
use kube::api::ListParams;
use reqwest::Method;
use serde_json::{Value, json};
use testbed::{Flavour, coderd::sign_license};

use super::{
    super::{
        get, licensed,
        proxy::Proxy,
        stage::{CREDENTIALS, LIMIT, Stage, is_held_up, is_ready, plane, says, until, words},
    },
    keys, provisioner,
};

/// A provisioner without daemons that nobody looks at by the clock.
pub(super) fn patient(name: &str, spec: &Value) -> Value {
    let mut whole = json!({"interval": "1h", "replicas": 0});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    provisioner(name, &whole)
}

/// A coderd without a licence behind a proxy, and a control plane that takes one from the Secret `license`.
pub(super) async fn unlicensed() -> (Stage, Proxy) {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap();
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::bare(coderd).await;
    stage.write_token(&stage.coderd.owner.token).await;
    let mut main = plane("main", &proxy.url);
    main["spec"]["licenseSecretRef"] = json!({"name": "license"});
    stage.apply(&main).await;
    (stage, proxy)
}

pub(super) async fn write_license(stage: &Stage, wanted: &Value) {
    let license = sign_license(stage.coderd.licenses.as_ref().unwrap(), wanted).await.unwrap();
    stage.write_secret("license", &json!({"license": license})).await;
}

/// What was asked of coderd since, as far as its path has this in it.
fn asked(proxy: &Proxy, since: usize, what: &str) -> Vec<String> {
    let requests = proxy.requests().into_iter().skip(since).filter(|it| it.path.contains(what));
    requests.map(|it| format!("{} {}", it.method, it.path)).collect()
}

#[tokio::test]
async fn without_a_licence_nothing_is_made_nobody_is_asked_and_the_licence_opens_every_gate_at_once() {
    let (stage, proxy) = unlicensed().await;
    let names: Vec<String> = (0..10).map(|it| format!("gated-{it}")).collect();
    for name in &names {
        stage.apply(&patient(name, &json!({"interval": "10s"}))).await;
    }
    for name in &names {
        let held = stage.wait::<CoderProvisioner>(name, "gated", is_held_up("NotEntitled")).await;
        assert!(says(&held, "ExternalProvisionersEntitled", "False", "NotEntitled"), "{held:#}");
        assert!(says(&held, "OperatorAccessReady", "True", "OperatorAccessReady"), "{held:#}");
        assert!(says(&held, "ProvisionerKeyReady", "Unknown", "NotObserved"), "{held:#}");
    }
    // Two intervals of the control plane, and of every provisioner.
    let since = proxy.requests().len();
    let seen = proxy.reads("/buildinfo");
    until("two intervals", || proxy.reads("/buildinfo") >= seen + 2).await;
    assert_eq!(asked(&proxy, since, "provisionerkeys"), Vec::<String>::new());
    // However long it took: four questions of the control plane's own in each of its passes, one of which is under way.
    let passes = asked(&proxy, since, "buildinfo").len() + 1;
    assert!(asked(&proxy, since, "entitlements").len() <= passes, "{:?}", asked(&proxy, since, ""));
    assert!(asked(&proxy, since, "").len() <= 4 * passes, "{:?}", asked(&proxy, since, ""));
    let deployments = stage.api::<Deployment>().list(&ListParams::default()).await.unwrap();
    assert!(deployments.items.is_empty());

    for name in &names {
        stage.apply(&patient(name, &json!({}))).await;
        stage.wait::<CoderProvisioner>(name, "gated", is_held_up("NotEntitled")).await;
    }
    let since = proxy.requests().len();
    write_license(&stage, &json!({"feature_set": "premium"})).await;
    for name in &names {
        let made = stage.is_noticed("CoderProvisioner", name, "ready", is_ready).await;
        assert!(says(&made, "ExternalProvisionersEntitled", "True", "Entitled"), "{made:#}");
    }
    let entitlements = asked(&proxy, since, "entitlements");
    assert!(entitlements.len() < names.len(), "not one for each: {entitlements:?}");
    assert_eq!(keys(&stage.coderd).await.len(), 10);
}

#[tokio::test]
async fn a_licence_that_is_lost_leaves_the_daemons_or_takes_them_away_until_it_comes_back() {
    let stage = Stage::new(licensed().await).await;
    let one = json!({"replicas": 1});
    let leaving = json!({"replicas": 1, "entitlementLossPolicy": "ScaleToZero"});
    stage.apply(&patient("stays", &one)).await;
    stage.apply(&patient("goes", &leaving)).await;
    for name in ["stays", "goes"] {
        stage.wait::<CoderProvisioner>(name, "ready", is_ready).await;
    }
    let installed = get(&stage.coderd, "/api/v2/licenses").await[0]["id"].clone();
    let path = format!("/api/v2/licenses/{installed}");
    stage.coderd.owner.request(Method::DELETE, &path, None).await.unwrap();
    stage.look_again("CoderControlPlane", "main").await;
    for name in ["stays", "goes"] {
        let lost = stage.wait::<CoderProvisioner>(name, "gated", is_held_up("NotEntitled")).await;
        assert!(says(&lost, "DaemonsConnected", "Unknown", "NotObserved"), "{lost:#}");
    }
    let pods = async |name: &str| {
        let ours = ListParams::default().labels(&format!("app.kubernetes.io/instance={name}"));
        stage.api::<Pod>().list(&ours).await.unwrap().items.len()
    };
    let since = Instant::now();
    while pods("goes").await > 0 {
        assert!(since.elapsed() < LIMIT, "the pods stay");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(pods("stays").await, 1);
    assert_eq!(
        stage.api::<Deployment>().get("provisioner-stays").await.unwrap().spec.unwrap().replicas,
        Some(1)
    );

    write_license(&stage, &json!({"feature_set": "premium"})).await;
    let mut main = plane("main", &stage.coderd.owner.url);
    main["spec"]["licenseSecretRef"] = json!({"name": "license"});
    stage.apply(&main).await;
    for name in ["stays", "goes"] {
        stage.wait::<CoderProvisioner>(name, "ready again", is_ready).await;
    }
    assert_eq!((pods("goes").await, pods("stays").await), (1, 1));
    let mut keys = keys(&stage.coderd).await;
    keys.sort();
    assert_eq!(keys, ["goes", "stays"], "with the keys that they had");
}

#[tokio::test]
async fn a_control_plane_that_is_missing_has_no_address_or_goes_is_told_and_nothing_else_is_claimed() {
    let stage = Stage::bare(licensed().await).await;
    stage.write_token(&stage.coderd.owner.token).await;
    stage.apply(&patient("alpha", &json!({}))).await;
    let unavailable = |it: &Value| {
        says(it, "ControlPlaneReady", "False", "ControlPlaneUnavailable")
            && says(it, "OperatorAccessReady", "Unknown", "NotObserved")
            && says(it, "DaemonsConnected", "Unknown", "NotObserved")
            && says(it, "Ready", "False", "ControlPlaneUnavailable")
    };
    let alone = stage.wait::<CoderProvisioner>("alpha", "alone", unavailable).await;
    assert!(words(&alone).contains("create it"), "{alone:#}");
    let mut main = plane("main", &stage.coderd.owner.url);
    main["spec"]["suspend"] = json!(true);
    stage.apply(&main).await;
    stage
        .wait::<CoderProvisioner>("alpha", "without an address", |it| {
            unavailable(it) && words(it).contains("has no address yet")
        })
        .await;
    main["spec"]["suspend"] = json!(false);
    stage.apply(&main).await;
    let made = stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    assert_eq!(made["status"]["provisionerKeyName"], "alpha");
    let plane = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    stage.delete("CoderControlPlane", "main").await;
    stage.gone(&plane).await;
    let left = stage.wait::<CoderProvisioner>("alpha", "alone again", unavailable).await;
    assert_eq!(left["status"]["provisionerKeyName"], "alpha", "what is known of the key stays");
}

/// A user who may do everything, and a token of theirs.
pub(super) async fn somebody(stage: &Stage, name: &str) -> String {
    let owner = &stage.coderd.owner;
    let organization = get(&stage.coderd, "/api/v2/organizations/default").await["id"].clone();
    let body = json!({"email": format!("{name}@example.com"), "username": name, "password": "Correct-Horse-9!",
        "user_status": "active", "organization_ids": [organization]});
    let (status, user) = owner.request(Method::POST, "/api/v2/users", Some(&body)).await.unwrap();
    assert_eq!(status, 201, "{user}");
    let roles = json!({"roles": ["owner"]});
    let (status, said) =
        owner.request(Method::PUT, &format!("/api/v2/users/{name}/roles"), Some(&roles)).await.unwrap();
    assert_eq!(status, 200, "{said}");
    let body = json!({"lifetime": 3_600_000_000_000_i64, "token_name": "mine"});
    let path = format!("/api/v2/users/{name}/keys/tokens");
    let (status, token) = owner.request(Method::POST, &path, Some(&body)).await.unwrap();
    assert_eq!(status, 201, "{token}");
    token["key"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn credentials_of_ones_own_work_when_those_of_the_control_plane_do_not() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::bare(coderd).await;
    stage.write_secret(CREDENTIALS, &json!({"token": "0123456789-0123456789012345678901"})).await;
    stage.apply(&plane("main", &proxy.url)).await;
    stage.apply(&patient("theirs", &json!({}))).await;
    stage.apply(&patient("own", &json!({"bootstrap": {"credentialsSecretRef": {"name": "mine"}}}))).await;
    let refused =
        stage.wait::<CoderProvisioner>("theirs", "held up", is_held_up("OperatorAccessNotReady")).await;
    assert!(says(&refused, "OperatorAccessReady", "False", "OperatorAccessNotReady"), "{refused:#}");
    let missing = stage
        .wait::<CoderProvisioner>("own", "without a Secret", |it| {
            says(it, "BootstrapSecretReady", "False", "SecretNotFound")
        })
        .await;
    assert!(!missing.to_string().contains("OperatorAccessReady"), "{missing:#}");
    let token = somebody(&stage, "somebody").await;
    stage.write_secret("mine", &json!({"token": token})).await;
    let made = stage.wait::<CoderProvisioner>("own", "ready", is_ready).await;
    assert!(says(&made, "BootstrapSecretReady", "True", "SecretReady"), "{made:#}");
    let minted = proxy.requests().into_iter().find(|it| it.method == Method::POST).unwrap();
    assert_eq!(minted.token.as_deref(), Some(token.as_str()), "with the token that was brought");
    assert!(!format!("{made} {:?}", stage.operator.said()).contains(&token));
    // The Secret goes together with what needs it.
    let secrets = stage.api::<Secret>();
    secrets.delete("mine", &kube::api::DeleteParams::default()).await.unwrap();
    stage.delete("CoderProvisioner", "own").await;
    stage.gone(&made).await;
    assert_eq!(keys(&stage.coderd).await, [""; 0]);
}

#[tokio::test]
async fn an_organization_that_comes_later_is_waited_for_and_not_by_the_clock() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&patient("alpha", &json!({"organizationName": "team"}))).await;
    let held = stage.wait::<CoderProvisioner>("alpha", "held up", is_held_up("ReferenceNotFound")).await;
    assert!(says(&held, "ProvisionerKeyReady", "False", "ReferenceNotFound"), "{held:#}");
    assert!(words(&held).contains("organization team"), "{held:#}");
    let team = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderOrganization",
        "metadata": {"name": "team"}, "spec": {"controlPlaneRef": {"name": "main"}}});
    stage.apply(&team).await;
    let made = stage.is_noticed("CoderProvisioner", "alpha", "ready", is_ready).await;
    let organization = get(&stage.coderd, "/api/v2/organizations/team").await;
    assert_eq!(made["status"]["organizationID"], organization["id"]);
}
