//! A Coder that we run: pods, access, licence, from nothing to the end.

mod accounts;
mod daemons;
mod database;
mod departure;
mod encrypted;
mod gate;
mod ground;
mod identity;
mod neighbours;
mod outage;
mod policy;
mod renewal;
mod rollout;
mod secrets;
mod seeds;

use std::process::Command;

use api::{CoderControlPlane, CoderOrganization};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod, Secret},
};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::coderd::sign_license;

use self::ground::PASSWORD;
use super::{
    cluster_door::expect,
    secrecy,
    stage::{self, LIMIT, Stage, image, is_held_up, is_ready, says},
};
use crate::support::{Folder, bare};

const LICENSES_PORT: u16 = 8099;
const ADMIN_PASSWORD: &str = "Staple-Under-Glass-7";
const DATABASE_PASSWORD: &str = "Elephants-Never-Forget-3";

/// An operator that reaches Services by their names, in a namespace with a database.
pub(super) async fn stage() -> Stage {
    let bed = testbed::shared().unwrap();
    // The bed's database asks for no password; one that is given is still a secret.
    let database = bed.database().await.unwrap();
    let database = database.replacen("postgres@", &format!("postgres:{DATABASE_PASSWORD}@"), 1);
    assert!(database.contains(DATABASE_PASSWORD));
    let Stage { client, namespace, operator, .. } = ground::stage_with(&database).await;
    // The coderd of the stage is not used: this one is ours.
    let coderd = bed.coderd(testbed::Flavour::Shipped).await.unwrap();
    Stage { client, namespace, coderd, operator }
}

pub(super) fn plane() -> Value {
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main"}, "spec": {
        "image": image("bed/coder-licensed"), "replicas": 1, "interval": "10s",
        "extraEnv": [
            {"name": "CODER_PG_CONNECTION_URL", "valueFrom": {"secretKeyRef": {"name": "coder-db", "key": "url"}}},
            variable("CODER_TELEMETRY_ENABLE", "false"), variable("CODER_UPDATE_CHECK", "false"),
            variable("CODER_DERP_SERVER_STUN_ADDRESSES", "disable"), variable("CODER_PROVISIONER_DAEMONS", "0"),
            variable("BED_LICENSES_ADDRESS", &format!("0.0.0.0:{LICENSES_PORT}")),
        ],
        "licenseSecretRef": {"name": "coder-license"},
        "operatorAccess": {"generatedTokenSecretName": "main-operator-token",
            "firstUserSecretRef": {"name": "coder-first-user"},
            "adminCredentialsSecretRef": {"name": "coder-break-glass"}},
    }})
}

async fn address<C>(stage: &Stage<C>) -> String {
    let pods = stage.api::<Pod>().list(&ListParams::default()).await.unwrap();
    pods.items.iter().find_map(|it| it.status.as_ref()?.pod_ip.clone()).unwrap()
}

/// A licence from the Coder of the stage.
pub(super) async fn sign<C>(stage: &Stage<C>) -> String {
    let address = address(stage).await;
    sign_license(&format!("http://{address}:{LICENSES_PORT}"), &json!({"feature_set": "premium"}))
        .await
        .unwrap()
}

/// Signs the owner in and makes another one, for emergencies.
async fn make_break_glass(stage: &Stage) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}:8080/api/v2/users", address(stage).await);
    let login = json!({"email": "owner@example.com", "password": PASSWORD});
    let session: Value =
        http.post(format!("{url}/login")).json(&login).send().await.unwrap().json().await.unwrap();
    let token = session["session_token"].as_str().unwrap();
    let user = json!({"username": "breakglass", "email": "break@example.com", "password": ADMIN_PASSWORD,
        "roles": ["owner"], "organization_ids": [uuid::Uuid::nil()]});
    let made = http.post(url).header("Coder-Session-Token", token).json(&user).send().await.unwrap();
    assert_eq!(made.status(), 201);
    let admin = json!({"email": "break@example.com", "password": ADMIN_PASSWORD});
    stage.write_secret("coder-break-glass", &admin).await;
}

async fn value(stage: &Stage, secret: &str, key: &str) -> Vec<u8> {
    stage.api::<Secret>().get(secret).await.unwrap().data.unwrap()[key].0.clone()
}

/// Loses the operator's token, and gives the one that takes its place.
async fn next_token(stage: &Stage, before: &[u8]) -> Vec<u8> {
    let (secrets, name) = (stage.api::<Secret>(), "main-operator-token");
    let lost = json!({"data": {"token": null}});
    secrets.patch(name, &PatchParams::default(), &Patch::Merge(lost)).await.unwrap();
    let is_next = |it: Option<&Secret>| {
        it.and_then(|it| it.data.as_ref()?.get("token")).is_some_and(|it| !it.0.is_empty() && it.0 != before)
    };
    tokio::time::timeout(LIMIT, kube::runtime::wait::await_condition(secrets, name, is_next))
        .await
        .unwrap()
        .unwrap();
    value(stage, name, "token").await
}

fn alpha_manifest(namespace: &str) -> Value {
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderOrganization",
        "metadata": {"name": "alpha", "namespace": namespace},
        "spec": {"controlPlaneRef": {"name": "main"}, "deletionPolicy": "Delete"}})
}

/// The command line in a pod of the cluster.
fn job(args: &[&str]) -> Command {
    let bed = testbed::shared().unwrap();
    let mut command = bare(args);
    command.envs(bed.variables().into_iter().filter(|(name, _)| name == "KUBECONFIG"));
    command.envs(bed.proxy_variables());
    command
}

#[tokio::test]
async fn from_nothing_to_a_licensed_coder_and_to_nothing_again() {
    let stage = stage().await;
    stage.apply(&plane()).await;
    let (waits, license) = ground::license(&stage).await;
    assert!(says(&waits, "OperatorAccessReady", "True", "UpToDate"), "{waits:#}");
    let ready = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let status = &ready["status"];
    assert_eq!(status["licenseTier"], "premium");
    assert_eq!((&status["phase"], &status["readyReplicas"]), (&json!("Ready"), &json!(1)));
    let service = format!("http://main.{}.svc.cluster.local:80", stage.namespace);
    assert_eq!(status["url"], service);
    assert_eq!(status["operatorTokenSecretRef"], json!({"name": "main-operator-token", "key": "token"}));
    assert_eq!(
        status["version"].as_str().unwrap().split('+').next(),
        status["databaseVersion"].as_str().unwrap().split('+').next()
    );

    // What belongs to it is kept as anywhere else.
    stage.apply(&alpha_manifest(&stage.namespace)).await;
    let alpha = stage.wait::<CoderOrganization>("alpha", "ready", is_ready).await;

    // A Job beside it reaches the deployment with the operator's token.
    let folder = Folder::new("own-job");
    let mut bravo = alpha_manifest(&stage.namespace);
    bravo["metadata"]["name"] = "bravo".into();
    let file = folder.write("set.yaml", &format!("{}\n---\n{bravo}\n", alpha_manifest(&stage.namespace)));
    let told = expect(job(&["apply", "--wait", "--yes", "-f", &file]), 0).await;
    assert!(told.contains("1 applied, 1 equal in ") || told.contains("1 equal, 1 applied in "), "{told}");
    let token = value(&stage, "main-operator-token", "token").await;
    secrecy::hides(&told, "the token", &token);

    // Further passes write nothing.
    let before = stage.api::<CoderControlPlane>().get("main").await.unwrap().metadata.resource_version;
    stage.look_again("CoderControlPlane", "main").await;
    let now = stage.api::<CoderControlPlane>().get("main").await.unwrap();
    assert_ne!(now.metadata.resource_version, before, "the annotation and its echo");
    let deployment = stage.api::<Deployment>().get("main").await.unwrap();
    assert_eq!(deployment.metadata.generation, Some(1), "the Deployment was written once");

    // A token that is lost is minted again, by somebody else's rights.
    let first = value(&stage, "main-operator-token", "token").await;
    make_break_glass(&stage).await;
    let second = next_token(&stage, &first).await;
    stage.look_again("CoderControlPlane", "main").await;
    stage.wait::<CoderControlPlane>("main", "ready again", is_ready).await;
    let (told, database) = (secrecy::told(&stage).await, value(&stage, "coder-db", "url").await);
    for (what, secret) in [
        ("the licence", license.as_bytes()),
        ("the first user's password", PASSWORD.as_bytes()),
        ("the administrator's password", ADMIN_PASSWORD.as_bytes()),
        ("the token", second.as_slice()),
        ("the token before it", first.as_slice()),
        ("the database's address", database.as_slice()),
        ("the database's password", DATABASE_PASSWORD.as_bytes()),
        ("the key of fingerprints", value(&stage, "main-operator-token", "fingerprint-key").await.as_slice()),
    ] {
        secrecy::hides(&told, what, secret);
    }

    stage.delete("CoderControlPlane", "main").await;
    stage.delete("CoderOrganization", "alpha").await;
    stage.gone(&alpha).await;
    stage.gone(&ready).await;
    let pods = stage.api::<Pod>();
    let none = async {
        while !pods.list(&ListParams::default()).await.unwrap().items.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(LIMIT, none).await.unwrap();
}

#[tokio::test]
async fn pods_that_do_not_come_up_are_named_and_what_is_not_ours_is_left_alone() {
    let stage = stage().await;
    let mut broken = plane();
    broken["spec"]["image"] = json!(image("nobody/has-this"));
    broken["spec"].as_object_mut().unwrap().remove("licenseSecretRef");
    stage.apply(&broken).await;
    let stuck = stage.wait::<CoderControlPlane>("main", "stuck", is_held_up("RolloutStuck")).await;
    assert!(stage::words(&stuck).contains("pod main-"), "{}", stage::words(&stuck));

    let foreign = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "taken"}, "stringData": {"token": "theirs"}});
    stage
        .api::<Secret>()
        .patch("taken", &PatchParams::apply("somebody").force(), &Patch::Apply(foreign))
        .await
        .unwrap();
    broken["spec"]["operatorAccess"]["generatedTokenSecretName"] = json!("taken");
    stage.apply(&broken).await;
    stage.wait::<CoderControlPlane>("main", "refused", is_held_up("NotOurs")).await;
    let kept = stage.api::<Secret>().get("taken").await.unwrap();
    assert_eq!(kept.data.unwrap()["token"].0, b"theirs");
}

#[tokio::test]
async fn pods_roll_when_what_they_read_changes_and_an_older_image_is_refused() {
    let stage = stage().await;
    let map = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more"}, "data": {"MORE": value}});
    let maps = stage.api::<ConfigMap>();
    let apply = PatchParams::apply("test").force();
    maps.patch("more", &apply, &Patch::Apply(map("one"))).await.unwrap();
    let mut plane = plane();
    plane["spec"]["envFrom"] = json!([{"configMapRef": {"name": "more"}}]);
    plane["spec"].as_object_mut().unwrap().remove("licenseSecretRef");
    stage.apply(&plane).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let deployments = stage.api::<Deployment>();
    let before = deployments.get("main").await.unwrap().metadata.generation;
    maps.patch("more", &apply, &Patch::Apply(map("two"))).await.unwrap();
    let rolled = |it: Option<&Deployment>| it.is_some_and(|it| it.metadata.generation > before);
    tokio::time::timeout(LIMIT, kube::runtime::wait::await_condition(deployments.clone(), "main", rolled))
        .await
        .unwrap()
        .unwrap();
    stage.wait::<CoderControlPlane>("main", "ready again", is_ready).await;

    plane["spec"]["image"] = json!("bed/coder-licensed:v2.30.0");
    stage.apply(&plane).await;
    stage.wait::<CoderControlPlane>("main", "refused", is_held_up("DowngradeRefused")).await;
    let found = deployments.get("main").await.unwrap().spec.unwrap().template.spec.unwrap().containers[0]
        .image
        .clone();
    assert_eq!(found, Some(image("bed/coder-licensed")), "the pods that are there stay");
    stage.api::<CoderControlPlane>().delete("main", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn access_that_is_switched_off_is_given_up_and_the_pods_stay_as_they_are() {
    let stage = stage().await;
    let mut plane = plane();
    plane["spec"].as_object_mut().unwrap().remove("licenseSecretRef");
    stage.apply(&plane).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let deployments = stage.api::<Deployment>();
    let before = deployments.get("main").await.unwrap().metadata.generation;
    plane["spec"]["operatorAccess"]["disabled"] = json!(true);
    stage.apply(&plane).await;
    stage.wait::<CoderControlPlane>("main", "without access", is_held_up("AccessDisabled")).await;
    let secret = stage.api::<Secret>().get("main-operator-token").await.unwrap();
    assert!(!secret.data.unwrap().contains_key("token"));
    let given_up = stage.api::<CoderControlPlane>().get("main").await.unwrap().status.unwrap();
    assert_eq!(given_up.operator_token_secret_ref, None);
    let version = secret.metadata.resource_version;
    stage.look_again("CoderControlPlane", "main").await;
    stage.look_again("CoderControlPlane", "main").await;
    let again = stage.api::<Secret>().get("main-operator-token").await.unwrap();
    assert_eq!(again.metadata.resource_version, version, "it is written once");
    assert_eq!(deployments.get("main").await.unwrap().metadata.generation, before, "no pod was rolled");
}

#[tokio::test]
async fn access_that_cannot_be_given_up_now_is_given_up_when_coder_is_back() {
    let stage = stage().await;
    let mut plane = plane();
    plane["spec"].as_object_mut().unwrap().remove("licenseSecretRef");
    stage.apply(&plane).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let secrets = stage.api::<Secret>();
    let token = || async { secrets.get("main-operator-token").await.unwrap().data.unwrap().remove("token") };
    let held = token().await.unwrap();
    plane["spec"]["replicas"] = json!(0);
    stage.apply(&plane).await;
    let is_down = |it: &Value| it["status"]["operatorAccessReady"] == false;
    stage.wait::<CoderControlPlane>("main", "down", is_down).await;
    plane["spec"]["operatorAccess"]["disabled"] = json!(true);
    stage.apply(&plane).await;
    stage.look_again("CoderControlPlane", "main").await;
    assert_eq!(token().await, Some(held.clone()), "what is not revoked is not forgotten");
    plane["spec"]["replicas"] = json!(1);
    stage.apply(&plane).await;
    stage.wait::<CoderControlPlane>("main", "without access", is_held_up("AccessDisabled")).await;
    assert_eq!(token().await, None);
    let http = testbed::shared().unwrap().http_by_name().unwrap();
    let me = http
        .get(format!("http://main.{}.svc/api/v2/users/me", stage.namespace))
        .header("Coder-Session-Token", String::from_utf8(held.0).unwrap());
    assert_eq!(me.send().await.unwrap().status().as_u16(), 401);
}
