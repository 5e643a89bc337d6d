//! Access by the image's own command, where nobody gives us a way in.

use api::CoderControlPlane;
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job, core::v1::Secret};
use kube::{Api, ResourceExt as _, api::DeleteParams, runtime::wait::await_condition};
use reqwest::Method;
use serde_json::{Value, json};
use testbed::{Session, coderd::FIRST_USER_NAME};
use tokio::time::timeout;

use super::{
    operator::Operator,
    own_plane, secrecy,
    stage::{LIMIT, Stage, image, is_held_up, is_ready, says},
};

const NAME: &str = "main-create-admin-user";
const HUMAN: &str = "Human-Horse-Battery-9";

/// A manifest that gives us no way in, as one of coder-k8s.
fn plane() -> Value {
    let mut plane = own_plane::plane();
    plane["spec"]["image"] = json!(image("bed/coder"));
    let spec = plane["spec"].as_object_mut().unwrap();
    spec.remove("operatorAccess");
    spec.remove("licenseSecretRef");
    plane
}

/// A Coder that has its owner, and that we are not to have access to yet.
async fn deployed(stage: &Stage) -> Session {
    let mut plane = plane();
    plane["spec"]["operatorAccess"] = json!({"disabled": true});
    stage.apply(&plane).await;
    stage.wait::<CoderControlPlane>("main", "up", is_held_up("AccessDisabled")).await;
    let url = format!("http://main.{}.svc", stage.namespace);
    let http = testbed::shared().unwrap().http_by_name().unwrap();
    Session::first_user(http, &url, HUMAN).await.unwrap()
}

/// Users and their roles, as an owner sees them.
async fn users(owner: &Session) -> Vec<(String, Value)> {
    let (status, answer) = owner.request(Method::GET, "/api/v2/users", None).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let users = answer["users"].as_array().unwrap().iter();
    let mut users: Vec<_> =
        users.map(|it| (it["username"].as_str().unwrap().to_owned(), it["roles"].clone())).collect();
    users.sort_by(|one, other| one.0.cmp(&other.0));
    users
}

async fn tokens(owner: &Session, user: &str) -> usize {
    let path = format!("/api/v2/users/{user}/keys/tokens?include_expired=true");
    let (status, answer) = owner.request(Method::GET, &path, None).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    answer.as_array().unwrap().len()
}

/// What our account is called.
async fn our_name(stage: &Stage) -> String {
    let uid = stage.api::<CoderControlPlane>().get("main").await.unwrap().uid().unwrap();
    format!("coder-operator-{}", uid.split('-').next().unwrap())
}

async fn is_there<K>(objects: Api<K>)
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    let there = |it: Option<&K>| it.is_some();
    timeout(LIMIT, await_condition(objects, NAME, there)).await.unwrap().unwrap();
}

#[tokio::test]
async fn with_users_and_without_credentials_the_images_own_command_lets_us_in() {
    let stage = own_plane::stage().await;
    let owner = deployed(&stage).await;
    stage.apply(&plane()).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let ours = our_name(&stage).await;
    let owners = json!([{"name": "owner", "display_name": "Owner"}]);
    assert_eq!(users(&owner).await, [(FIRST_USER_NAME.to_owned(), owners.clone()), (ours.clone(), owners)]);
    stage.look_again("CoderControlPlane", "main").await;
    assert_eq!(tokens(&owner, &ours).await, 1);
    assert!(stage.api::<Job>().get_opt(NAME).await.unwrap().is_none(), "the Job is gone");
    assert!(stage.api::<Secret>().get_opt(NAME).await.unwrap().is_none(), "and its password with it");
}

#[tokio::test]
async fn a_manifest_of_coder_k8s_becomes_ready_on_an_empty_database() {
    let stage = own_plane::stage().await;
    stage.apply(&plane()).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let token =
        stage.api::<Secret>().get("main-operator-token").await.unwrap().data.unwrap()["token"].0.clone();
    let http = testbed::shared().unwrap().http_by_name().unwrap();
    let me = http
        .get(format!("http://main.{}.svc/api/v2/users/me", stage.namespace))
        .header("Coder-Session-Token", String::from_utf8(token).unwrap());
    let me: Value = serde_json::from_str(&me.send().await.unwrap().text().await.unwrap()).unwrap();
    assert_eq!(me["username"], our_name(&stage).await);
}

#[tokio::test]
async fn where_coder_takes_no_passwords_no_account_is_made_that_nobody_could_enter() {
    let stage = own_plane::stage().await;
    let mut plane = plane();
    let off = json!({"name": "CODER_DISABLE_PASSWORD_AUTH", "value": "true"});
    plane["spec"]["extraEnv"].as_array_mut().unwrap().push(off);
    stage.apply(&plane).await;
    let told = stage.wait::<CoderControlPlane>("main", "told", is_held_up("NoCredentials")).await;
    assert!(super::stage::words(&told).contains("token of an owner"), "{told:#}");
    assert!(stage.api::<Job>().get_opt(NAME).await.unwrap().is_none());
    assert!(stage.api::<Secret>().get_opt(NAME).await.unwrap().is_none());
}

#[tokio::test]
async fn a_job_that_fails_is_told_without_the_password_and_another_one_follows_what_was_mended() {
    let stage = own_plane::stage().await;
    let owner = deployed(&stage).await;
    let secrets = stage.api::<Secret>();
    let right = secrets.get("coder-db").await.unwrap().data.unwrap()["url"].0.clone();
    let wrong = "postgres://nobody:wr0ng-pass@127.0.0.1:1/nothing";
    stage.write_secret("coder-db", &json!({"url": wrong})).await;
    // The pods that are there go on with the database that they have.
    stage.apply(&plane()).await;
    let failed = stage
        .wait::<CoderControlPlane>("main", "told", |it| {
            says(it, "OperatorAccessReady", "False", "AdminJobFailed")
        })
        .await;
    let conditions = failed["status"]["conditions"].as_array().unwrap();
    let access = conditions.iter().find(|it| it["type"] == "OperatorAccessReady").unwrap();
    let words = access["message"].as_str().unwrap();
    assert!(words.contains(&format!("Job {NAME}, pod {NAME}-")) && words.contains("connect"), "{words}");
    assert!(words.contains("adminCredentialsSecretRef"), "what to do: {words}");
    let told = secrecy::told(&stage).await;
    assert!(!told.contains("wr0ng-pass"), "a secret was told");

    stage.write_secret("coder-db", &json!({"url": String::from_utf8(right).unwrap()})).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    assert_eq!(users(&owner).await.len(), 2);
}

#[tokio::test]
async fn an_operator_that_dies_while_the_job_runs_leaves_one_account_and_one_token() {
    let mut stage = own_plane::stage().await;
    let owner = deployed(&stage).await;
    // Both are there for a moment only: they are waited for from before that.
    let (secret, job) =
        (tokio::spawn(is_there(stage.api::<Secret>())), tokio::spawn(is_there(stage.api::<Job>())));
    stage.apply(&plane()).await;
    let variables = || testbed::shared().unwrap().proxy_variables();
    secret.await.unwrap();
    stage.operator.process.kill().unwrap();
    stage.operator.process.wait().unwrap();
    let before = stage.api::<Secret>().get(NAME).await.unwrap();
    stage.operator = Operator::start_with(&stage.namespace, &[], variables());
    job.await.unwrap();
    stage.operator.process.kill().unwrap();
    stage.operator.process.wait().unwrap();
    // The second one may have come to the end already.
    if let Some(kept) = stage.api::<Secret>().get_opt(NAME).await.unwrap() {
        assert_eq!((before.uid(), &before.data), (kept.uid(), &kept.data), "the same intent");
    }
    stage.operator = Operator::start_with(&stage.namespace, &[], variables());
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    stage.look_again("CoderControlPlane", "main").await;
    assert_eq!(users(&owner).await.len(), 2, "the human and ours");
    assert_eq!(tokens(&owner, &our_name(&stage).await).await, 1);
    assert!(stage.api::<Secret>().get_opt(NAME).await.unwrap().is_none());
    let told = secrecy::told(&stage).await;
    assert!(
        !told.contains(str::from_utf8(&before.data.unwrap()["password"].0).unwrap()),
        "a secret was told"
    );
    assert_eq!(stage.api::<Deployment>().get("main").await.unwrap().metadata.generation, Some(1));
}

#[tokio::test]
async fn an_account_of_our_name_is_neither_used_nor_promoted_and_a_secret_of_that_name_is_left_alone() {
    let stage = own_plane::stage().await;
    let owner = deployed(&stage).await;
    let ours = our_name(&stage).await;
    let (_, organizations) = owner.request(Method::GET, "/api/v2/organizations", None).await.unwrap();
    let theirs = json!({"username": ours, "email": "theirs@bed.test", "password": "Theirs-Horse-Battery-9",
        "login_type": "password", "organization_ids": [organizations[0]["id"]]});
    let (status, made) = owner.request(Method::POST, "/api/v2/users", Some(&theirs)).await.unwrap();
    assert_eq!(status, 201, "{made}");
    let before = users(&owner).await;
    stage.write_secret(NAME, &json!({"password": "somebody's"})).await;
    stage.apply(&plane()).await;
    stage.wait::<CoderControlPlane>("main", "in the way", is_held_up("NotOurs")).await;
    let kept = stage.api::<Secret>().get(NAME).await.unwrap();
    assert_eq!(kept.data.unwrap()["password"].0, b"somebody's");

    stage.api::<Secret>().delete(NAME, &DeleteParams::default()).await.unwrap();
    stage.look_again("CoderControlPlane", "main").await;
    let taken = stage.wait::<CoderControlPlane>("main", "taken", is_held_up("AccountTaken")).await;
    assert!(super::stage::words(&taken).contains("delete or rename"), "{taken:#}");
    assert_eq!(users(&owner).await, before, "nobody was promoted");

    let path = format!("/api/v2/users/{ours}");
    owner.request(Method::DELETE, &path, None).await.unwrap();
    // What Kubernetes would do after five minutes.
    stage.api::<Job>().delete(NAME, &DeleteParams::background()).await.unwrap();
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
}
