//! An account in place of a token: we mint and keep a token of our own, and give it up in the end.

use std::time::Duration;

use api::{CoderControlPlane, CoderOrganization};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testbed::coderd::FIRST_USER_EMAIL;

use super::{
    get, licensed,
    operator::Operator,
    proxy::{Mood, Proxy},
    stage::{CREDENTIALS, Stage, eventually, is_held_up, is_ready, plane, until, words},
};

async fn stage() -> Stage {
    let stage = Stage::bare(licensed().await).await;
    let account = json!({"email": FIRST_USER_EMAIL, "password": stage.coderd.password});
    stage.write_secret(CREDENTIALS, &account).await;
    stage.apply(&plane("main", &stage.coderd.owner.url)).await;
    stage
}

/// The tokens of the account that have our name.
async fn tokens(stage: &Stage) -> Vec<String> {
    let found = get(&stage.coderd, "/api/v2/users/me/keys/tokens?include_expired=true").await;
    let names =
        found.as_array().into_iter().flatten().map(|it| it["token_name"].as_str().unwrap().to_owned());
    names.filter(|it| it.starts_with("coder-operator-")).collect()
}

#[tokio::test]
async fn an_account_becomes_a_token_that_is_kept_and_given_up_with_everything_at_once() {
    let stage = stage().await;
    let ready = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let minted = tokens(&stage).await;
    assert_eq!(minted.len(), 1, "{minted:?}");
    let secret = stage.api::<Secret>().get("main-operator-token").await.unwrap();
    assert_eq!(secret.finalizers(), ["coder.com/operator-token"]);
    assert_eq!(secret.owner_references()[0].uid, ready["metadata"]["uid"].as_str().unwrap());
    // Further passes, and another operator after this one, keep it.
    stage.look_again("CoderControlPlane", "main").await;
    assert_eq!(tokens(&stage).await, minted);

    let alpha = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderOrganization", "metadata": {"name": "alpha"},
        "spec": {"controlPlaneRef": {"name": "main"}, "deletionPolicy": "Delete"}});
    stage.apply(&alpha).await;
    let alpha = stage.wait::<CoderOrganization>("alpha", "ready", is_ready).await;
    let secrets = stage.api::<Secret>();
    for secret in [CREDENTIALS, "main-operator-token"] {
        secrets.delete(secret, &DeleteParams::default()).await.unwrap();
    }
    stage.delete("CoderControlPlane", "main").await;
    stage.delete("CoderOrganization", "alpha").await;
    stage.gone(&alpha).await;
    stage.gone(&ready).await;
    let names = get(&stage.coderd, "/api/v2/organizations").await;
    assert!(names.as_array().unwrap().iter().all(|it| it["name"] != "alpha"), "{names}");
    assert_eq!(tokens(&stage).await, Vec::<String>::new());
    assert!(
        secrets.get_opt("main-operator-token").await.unwrap().is_none_or(|it| it.finalizers().is_empty())
    );
}

/// Takes our token away behind our back.
async fn revoke(stage: &Stage) {
    let listed = get(&stage.coderd, "/api/v2/users/me/keys/tokens").await;
    let ours = |it: &&Value| it["token_name"].as_str().unwrap().starts_with("coder-operator-");
    let id = listed.as_array().unwrap().iter().find(ours).unwrap()["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v2/users/me/keys/{id}");
    stage.coderd.owner.request(reqwest::Method::DELETE, &path, None).await.unwrap();
}

#[tokio::test]
async fn a_token_that_somebody_revokes_is_replaced_and_a_wrong_password_is_told_without_it() {
    let stage = stage().await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let before = tokens(&stage).await;
    revoke(&stage).await;
    stage.look_again("CoderControlPlane", "main").await;
    stage.wait::<CoderControlPlane>("main", "ready again", is_ready).await;
    let after = tokens(&stage).await;
    assert!(after.len() == 1 && after != before, "{before:?} -> {after:?}");

    // The password is needed only when there is no token.
    stage.write_secret(CREDENTIALS, &json!({"email": FIRST_USER_EMAIL, "password": "hunter2-hunter2"})).await;
    stage.look_again("CoderControlPlane", "main").await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    revoke(&stage).await;
    let told = stage.wait::<CoderControlPlane>("main", "refused", is_held_up("Unauthorized")).await;
    assert!(!told.to_string().contains("hunter2"), "{}", words(&told));
}

#[tokio::test]
async fn a_control_plane_whose_token_secret_got_another_name_goes_all_the_same() {
    let stage = stage().await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let mut renamed = plane("main", &stage.coderd.owner.url);
    renamed["spec"]["operatorAccess"] = json!({"generatedTokenSecretName": "other"});
    stage.apply(&renamed).await;
    let ready = stage.wait::<CoderControlPlane>("main", "ready again", is_ready).await;
    let secrets = stage.api::<Secret>();
    assert!(secrets.get_opt("other").await.unwrap().is_some(), "it is where the manifest says");
    stage.delete("CoderControlPlane", "main").await;
    stage.gone(&ready).await;
    assert_eq!(tokens(&stage).await, Vec::<String>::new());
    for name in ["main-operator-token", "other"] {
        let left = secrets.get_opt(name).await.unwrap();
        assert!(left.is_none_or(|it| it.finalizers().is_empty()), "{name} would hold up its namespace");
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_minted_is_not_tried_again_at_once() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::bare(coderd).await;
    let account = json!({"email": FIRST_USER_EMAIL, "password": stage.coderd.password});
    stage.write_secret(CREDENTIALS, &account).await;
    // Asked after the intent to mint one was written down: that is no reason to look again.
    proxy.set_on("/tokenconfig", Mood::RepeatingTheToken);
    stage.apply(&plane("main", &proxy.url)).await;
    stage.wait::<CoderControlPlane>("main", "told", is_held_up("Unreachable")).await;
    until("tried twice", || proxy.reads("/tokenconfig") >= 2).await;
    let tried = proxy.requests().into_iter().filter(|it| it.path.ends_with("/tokenconfig"));
    let times: Vec<_> = tried.map(|it| it.at).collect();
    assert!(times[1] - times[0] >= Duration::from_secs(20), "after {:?}", times[1] - times[0]);
    proxy.set(Mood::Passing);
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    assert_eq!(tokens(&stage).await.len(), 1);
}

/// A control plane with an account, behind a proxy.
async fn proxied(stage: Stage) -> (Stage, Proxy) {
    let proxy = Proxy::start(&stage.coderd.owner.url).await;
    let account = json!({"email": FIRST_USER_EMAIL, "password": stage.coderd.password});
    stage.write_secret(CREDENTIALS, &account).await;
    stage.apply(&plane("main", &proxy.url)).await;
    (stage, proxy)
}

#[tokio::test]
async fn token_is_revoked_though_coder_fails_for_a_while() {
    let (stage, proxy) = proxied(Stage::bare(licensed().await).await).await;
    let ready = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    proxy.set(Mood::Failing(reqwest::Method::DELETE, 500));
    stage.delete("CoderControlPlane", "main").await;
    let told = stage.wait::<CoderControlPlane>("main", "waiting", is_held_up("Unreachable")).await;
    assert!(words(&told).contains("the operator's token"), "{}", words(&told));
    let kept = stage.api::<Secret>().get("main-operator-token").await.unwrap();
    assert_eq!(kept.finalizers(), ["coder.com/operator-token"], "it is needed for the next try");
    assert_eq!(tokens(&stage).await.len(), 1);
    proxy.set(Mood::Passing);
    stage.gone(&ready).await;
    assert_eq!(tokens(&stage).await, Vec::<String>::new());
    assert_eq!(stage.left_behind().await, [""; 0]);
}

#[tokio::test]
async fn namespace_goes_though_a_token_cannot_be_revoked() {
    let (stage, proxy) = proxied(Stage::bare_cluster_wide(licensed().await).await).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    proxy.set(Mood::Down);
    stage.delete_namespace().await;
    stage.operator.says(&["the operator's token", "is left behind"]).await;
}

#[tokio::test]
async fn control_plane_without_a_token_of_ours_goes_though_coder_is_down() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    let ready = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    proxy.set(Mood::Down);
    stage.delete("CoderControlPlane", "main").await;
    stage.gone(&ready).await;
    assert_eq!(stage.left_behind().await, [""; 0]);
}

/// Removes the finalizers of the control plane, as a person does who does not want to wait.
async fn strip(stage: &Stage) {
    let stripped = json!({"metadata": {"finalizers": null}});
    let planes = stage.kind("CoderControlPlane");
    planes.patch("main", &PatchParams::default(), &Patch::Merge(stripped)).await.unwrap();
}

async fn token_secret(stage: &Stage) -> Option<Secret> {
    stage.api::<Secret>().get_opt("main-operator-token").await.unwrap()
}

#[tokio::test]
async fn token_secret_goes_though_its_control_plane_went_while_nobody_looked() {
    let mut stage = stage().await;
    let ready = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    stage.operator.process.kill().unwrap();
    stage.operator.ended().await;
    strip(&stage).await;
    stage.delete("CoderControlPlane", "main").await;
    stage.gone(&ready).await;
    let is_going =
        |it: &Option<Secret>| it.as_ref().is_some_and(|it| it.metadata.deletion_timestamp.is_some());
    eventually("deleted by Kubernetes", || token_secret(&stage), is_going).await;
    stage.operator = Operator::start(&stage.namespace, &[]);
    eventually("gone", || token_secret(&stage), Option::is_none).await;
    let left = stage.left_behind().await;
    assert!(left.len() == 1 && left[0].contains("Secret main-operator-token"), "{left:#?}");
}

#[tokio::test]
async fn token_secret_goes_when_somebody_strips_a_control_plane_that_waits() {
    let (stage, proxy) = proxied(Stage::bare(licensed().await).await).await;
    let ready = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    proxy.set(Mood::Failing(reqwest::Method::DELETE, 500));
    stage.api::<Secret>().delete("main-operator-token", &DeleteParams::default()).await.unwrap();
    stage.delete("CoderControlPlane", "main").await;
    stage.wait::<CoderControlPlane>("main", "waiting", is_held_up("Unreachable")).await;
    assert!(token_secret(&stage).await.is_some(), "it is needed for the next try");
    strip(&stage).await;
    stage.gone(&ready).await;
    eventually("gone", || token_secret(&stage), Option::is_none).await;
}
