//! Coder itself in pods, reached by the name of its Service.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Secret, Service},
};
use kube::{ResourceExt as _, api::ListParams};
use reqwest::Method;
use serde_json::{Value, json};
use testbed::{Session, coderd::sign_license};

use crate::support::{Corner, ask, wait_for};

/// Where the licensed image signs licences, inside its pod.
pub(crate) const LICENSES_PORT: u16 = 8099;

/// Deploys coderd behind a Service and waits until it is available.
pub(crate) async fn deploy(corner: &Corner, image: &str, replicas: i32) {
    let database = corner.bed.database().await.unwrap();
    corner.create::<Secret>(json!({"metadata": {"name": "db"}, "stringData": {"url": database}})).await;
    let labels = json!({"app": "coder"});
    let container = json!({
        "name": "coder", "image": image, "args": ["--http-address=0.0.0.0:8080"],
        "env": [
            {"name": "CODER_PG_CONNECTION_URL", "valueFrom": {"secretKeyRef": {"name": "db", "key": "url"}}},
            {"name": "CODER_ACCESS_URL", "value": format!("http://coder.{}.svc", corner.namespace)},
            {"name": "CODER_HTTP_ADDRESS", "value": "0.0.0.0:8080"},
            {"name": "CODER_PROMETHEUS_ENABLE", "value": "true"},
            {"name": "CODER_PROMETHEUS_ADDRESS", "value": "0.0.0.0:2112"},
            {"name": "CODER_TELEMETRY_ENABLE", "value": "false"},
            {"name": "CODER_UPDATE_CHECK", "value": "false"},
            {"name": "CODER_DERP_SERVER_STUN_ADDRESSES", "value": "disable"},
            {"name": "CODER_PROVISIONER_DAEMONS", "value": "0"},
            {"name": "BED_LICENSES_ADDRESS", "value": format!("0.0.0.0:{LICENSES_PORT}")},
        ],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 1},
    });
    let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}});
    corner.create::<Deployment>(json!({"metadata": {"name": "coder"}, "spec": spec})).await;
    let ports = json!([{"port": 80, "targetPort": "http"}]);
    corner
        .create::<Service>(
            json!({"metadata": {"name": "coder"}, "spec": {"selector": labels, "ports": ports}}),
        )
        .await;
    wait_for(&corner.api::<Deployment>(), "coder", "available", |it| {
        it.status.as_ref().is_some_and(|it| it.ready_replicas == Some(replicas))
    })
    .await;
}

/// The first user of the coderd behind the Service.
pub(crate) async fn sign_in(corner: &Corner) -> Session {
    let url = format!("http://coder.{}.svc", corner.namespace);
    let http = corner.bed.http_by_name().unwrap();
    // The proxy learns of ready pods by a watch of its own.
    ask("an answer by the Service's name", || async {
        http.get(format!("{url}/healthz")).send().await.ok().filter(|it| it.status().is_success())
    })
    .await;
    Session::first_user(http.clone(), &url, "Correct-Horse-Battery-9").await.unwrap()
}

/// Gives the licensed coderd in a pod a premium licence.
pub(crate) async fn license(corner: &Corner, owner: &Session) {
    let pods = corner.api::<Pod>().list(&ListParams::default().labels("app=coder")).await.unwrap();
    let address = pods.items[0].status.as_ref().unwrap().pod_ip.clone().unwrap();
    let signer = format!("http://{address}:{LICENSES_PORT}");
    let license = sign_license(&signer, &json!({"feature_set": "premium"})).await.unwrap();
    let (status, answer) =
        owner.request(Method::POST, "/api/v2/licenses", Some(&json!({"license": license}))).await.unwrap();
    assert_eq!(status, 201, "{answer}");
}

/// How many API requests a pod's coderd has answered, by its own count.
async fn requests_answered(pod: &Pod) -> f64 {
    let address = pod.status.as_ref().unwrap().pod_ip.clone().unwrap();
    let metrics = reqwest::Client::builder().no_proxy().build().unwrap();
    let metrics =
        metrics.get(format!("http://{address}:2112/metrics")).send().await.unwrap().text().await.unwrap();
    let counts = metrics.lines().filter(|it| it.starts_with("coderd_api_requests_processed_total"));
    counts
        .filter(|it| it.contains("buildinfo"))
        .filter_map(|it| it.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

#[tokio::test]
async fn coder_answers_by_its_service_name_and_two_replicas_share_the_load() {
    let corner = Corner::new("coder").await;
    deploy(&corner, &testbed::shared().unwrap().image("coder/coder"), 2).await;
    let owner = sign_in(&corner).await;
    let services = format!("http://coder.{}.svc.cluster.local", corner.namespace);
    let http = corner.bed.http_by_name().unwrap();
    for _ in 0..10 {
        let answer: Value =
            http.get(format!("{services}/api/v2/buildinfo")).send().await.unwrap().json().await.unwrap();
        assert_eq!(answer["dashboard_url"], format!("http://coder.{}.svc", corner.namespace));
    }
    let (status, me) = owner.request(Method::GET, "/api/v2/users/me", None).await.unwrap();
    assert_eq!((status, me["username"].as_str()), (200, Some("admin")));
    let pods = corner.api::<Pod>().list(&ListParams::default()).await.unwrap();
    assert_eq!(pods.items.len(), 2);
    for pod in &pods.items {
        assert!(requests_answered(pod).await >= 4.0, "{} had hardly anything to do", pod.name_any());
    }
}

#[tokio::test]
async fn a_licensed_coder_in_a_pod_takes_the_licences_that_it_signs() {
    let corner = Corner::new("licensed").await;
    deploy(&corner, "bed/coder-licensed", 1).await;
    let owner = sign_in(&corner).await;
    license(&corner, &owner).await;
    let (_, entitlements) = owner.request(Method::GET, "/api/v2/entitlements", None).await.unwrap();
    assert_eq!(entitlements["has_license"], true);
}

#[tokio::test]
async fn the_proxy_knows_services_and_nobody_outside_this_machine() {
    let corner = Corner::new("names").await;
    let http = corner.bed.http_by_name().unwrap();
    let nobody = http.get(format!("http://nobody.{}.svc/", corner.namespace)).send().await.unwrap();
    assert_eq!(nobody.status().as_u16(), 503);
    assert!(nobody.text().await.unwrap().contains("no Service nobody"));
    let outside = http.get("http://outside.test/").send().await.unwrap();
    assert_eq!(outside.status().as_u16(), 403);
    let health = format!("{}/healthz", corner.bed.coder.as_ref().unwrap().url);
    assert_eq!(http.get(health).send().await.unwrap().text().await.unwrap(), "OK");
}

#[tokio::test]
async fn the_licensed_image_has_coders_own_commands() {
    let corner = Corner::new("command").await;
    let container =
        json!({"name": "main", "image": "bed/coder-licensed", "args": ["create-admin-user", "--help"]});
    let pod =
        json!({"metadata": {"name": "once"}, "spec": {"restartPolicy": "Never", "containers": [container]}});
    corner.create::<Pod>(pod).await;
    let has_ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
        phase == Some("Succeeded") || phase == Some("Failed")
    };
    let pod = corner.pod("once", "finished", has_ended).await;
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Succeeded"));
}
