//! What the tests of a Coder that we run stand on: an operator, a namespace with a database, and a way to look inside.

use api::CoderControlPlane;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{ResourceExt as _, api::ListParams};
use reqwest::Method;
use serde_json::{Value, json};
use testbed::Session;

use crate::bed::{
    operator::Operator,
    stage::{self, Stage, eventually, image, is_ready, says},
};

pub(super) const PASSWORD: &str = "Correct-Horse-Battery-9";
pub(super) const EMAIL: &str = "owner@example.com";
/// The Secret with the operator's own token.
pub(super) const TOKEN_SECRET: &str = "main-operator-token";

/// The only coderds are those that the operator runs.
pub(super) type Ground = Stage<()>;

/// An operator that reaches Services by their names, in a namespace with a database.
pub(super) async fn stage() -> Ground {
    let database = testbed::shared().unwrap().database().await.unwrap();
    stage_with(&database).await
}

/// The same with an operator whose rights outlive the namespace, for tests that delete it.
pub(super) async fn cluster_wide() -> Ground {
    let bed = testbed::shared().unwrap();
    let database = bed.database().await.unwrap();
    stage_of(&database, |it| Operator::start_cluster_wide(it, bed.proxy_variables())).await
}

/// The same with that database.
pub(super) async fn stage_with(database: &str) -> Ground {
    stage_of(database, operator).await
}

async fn stage_of(database: &str, operator: impl FnOnce(&str) -> Operator) -> Ground {
    let bed = testbed::shared().unwrap();
    let client = bed.client().await.unwrap();
    stage::install(&client).await;
    let namespace = bed.namespace("own").await.unwrap();
    let operator = operator(&namespace);
    let stage = Stage { client, namespace, coderd: (), operator };
    stage.write_secret("coder-db", &json!({"url": database})).await;
    let owner = json!({"email": EMAIL, "username": "owner", "password": PASSWORD});
    stage.write_secret("coder-first-user", &owner).await;
    stage
}

pub(super) fn operator(namespace: &str) -> Operator {
    Operator::start_with(namespace, &[], testbed::shared().unwrap().proxy_variables())
}

/// One that takes licences that it signed itself since it was started.
pub(super) fn licensed() -> Value {
    let mut plane = super::plane();
    plane["spec"]["operatorAccess"].as_object_mut().unwrap().remove("adminCredentialsSecretRef");
    plane
}

/// The shipped Coder, without a licence: one that may be started again and is the same.
pub(super) fn shipped() -> Value {
    let mut plane = licensed();
    let spec = plane["spec"].as_object_mut().unwrap();
    spec.remove("licenseSecretRef");
    spec["image"] = json!(image("bed/coder"));
    spec["extraEnv"].as_array_mut().unwrap().retain(|it| it["name"] != "BED_LICENSES_ADDRESS");
    plane
}

pub(super) fn add_variable(plane: &mut Value, name: &str, value: &str) {
    plane["spec"]["extraEnv"].as_array_mut().unwrap().push(json!({"name": name, "value": value}));
}

/// Applies a manifest and waits until it is ready.
pub(super) async fn ready(stage: &Ground, plane: &Value) -> Value {
    stage.apply(plane).await;
    let name = plane["metadata"]["name"].as_str().unwrap();
    stage.wait::<CoderControlPlane>(name, "ready", is_ready).await
}

/// The pods of a control plane.
pub(super) async fn pods<C>(stage: &Stage<C>, plane: &str) -> Vec<Pod> {
    let of_plane = ListParams::default().labels(&format!("app.kubernetes.io/instance={plane}"));
    let mut pods = stage.api::<Pod>().list(&of_plane).await.unwrap().items;
    for pod in &mut pods {
        // Too long for somebody who reads why a test failed.
        pod.metadata.managed_fields = None;
    }
    pods
}

/// Every pod with how often it was started again: what is the same twice was left alone.
pub(super) async fn running(stage: &Ground, plane: &str) -> Vec<(String, i32)> {
    let restarts = |it: &Pod| {
        let containers = it.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
        containers.map(|it| it.restart_count).sum::<i32>()
    };
    let mut found: Vec<_> = pods(stage, plane).await.iter().map(|it| (it.name_any(), restarts(it))).collect();
    found.sort();
    found
}

/// The process of a control plane's only pod.
pub(super) async fn process(stage: &Ground, plane: &str) -> String {
    let pods = pods(stage, plane).await;
    let statuses =
        pods.iter().flat_map(|it| &it.status).flat_map(|it| it.container_statuses.iter().flatten());
    let mut running = statuses.filter(|it| it.state.as_ref().is_some_and(|it| it.running.is_some()));
    let id = running.next().unwrap().container_id.clone().unwrap();
    id.strip_prefix("bed://").unwrap().to_owned()
}

/// Ends a process at once, as the kernel does when there is no memory left.
pub(super) fn kill(process: &str) {
    assert!(std::process::Command::new("kill").args(["-9", process]).status().unwrap().success());
}

/// Sends a signal to a process and everything that it started.
pub(super) fn tell_group(signal: &str, process: &str) {
    let group = format!("-{process}");
    assert!(std::process::Command::new("kill").args([signal, "--", &group]).status().unwrap().success());
}

/// The human owner of a control plane, signed in.
pub(super) async fn owner(stage: &Ground, plane: &str) -> Session {
    let url = format!("http://{plane}.{}.svc.cluster.local", stage.namespace);
    let http = testbed::shared().unwrap().http_by_name().unwrap();
    Session::sign_in(http, &url, EMAIL, PASSWORD).await.unwrap()
}

/// What coderd has of us: the accounts that we made, and our tokens by their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ours {
    pub(super) accounts: Vec<String>,
    pub(super) tokens: Vec<String>,
}

pub(super) async fn ours(owner: &Session) -> Ours {
    let list = async |path: &str| owner.request(Method::GET, path, None).await.unwrap().1;
    let is_ours = |it: &&Value| it["username"].as_str().unwrap().starts_with("coder-operator-");
    let users = list("/api/v2/users?limit=100").await;
    let users: Vec<&Value> = users["users"].as_array().unwrap().iter().filter(is_ours).collect();
    let (mut accounts, mut tokens) = (Vec::new(), Vec::new());
    for user in users {
        let id = user["id"].as_str().unwrap();
        accounts.push(id.to_owned());
        let listed = list(&format!("/api/v2/users/{id}/keys/tokens?include_expired=true")).await;
        tokens
            .extend(listed.as_array().into_iter().flatten().map(|it| it["id"].as_str().unwrap().to_owned()));
    }
    Ours { accounts, tokens }
}

/// The token in our Secret; nothing while there is none.
pub(super) async fn token(stage: &Ground) -> Option<String> {
    let secret = stage.api::<Secret>().get_opt(TOKEN_SECRET).await.unwrap()?;
    Some(String::from_utf8(secret.data?.remove("token")?.0).unwrap())
}

/// Waits until a control plane lacks nothing but its licence, and gives it one.
pub(super) async fn license<C>(stage: &Stage<C>) -> (Value, String) {
    let waits = |it: &Value| says(it, "LicenseApplied", "False", "SecretMissing");
    let waiting = stage.wait::<CoderControlPlane>("main", "without a licence", waits).await;
    (waiting, give_licence(stage).await)
}

/// Signs a licence with the only pod that is there, and puts it where the manifest says.
pub(super) async fn give_licence<C>(stage: &Stage<C>) -> String {
    eventually("one pod", || pods(stage, "main"), |it| it.len() == 1).await;
    let license = super::sign(stage).await;
    stage.write_secret("coder-license", &json!({"license": license})).await;
    license
}

/// What a database says. Coder may be gone by then, so nobody else can be asked.
pub(super) async fn ask(stage: &Ground, question: &str) -> String {
    let secret = stage.api::<Secret>().get("coder-db").await.unwrap().data.unwrap().remove("url").unwrap();
    let url = String::from_utf8(secret.0).unwrap();
    let psql = testbed::shared::parts().unwrap().postgres.program("psql");
    let output =
        tokio::process::Command::new(psql).args(["-qAt", "-c", question, &url]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
