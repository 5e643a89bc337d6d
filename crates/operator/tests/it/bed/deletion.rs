//! Deletions that end: with a namespace, with a control plane, with everything at once.

use api::{CoderControlPlane, CoderGroup};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{
    get, licensed,
    operator::Operator,
    proxy::{Mood, Proxy},
    stage::{CREDENTIALS, Stage, group, group_named, is_held_up, is_ready, says},
};

/// Groups of the default organization, by name.
async fn groups(stage: &Stage) -> Vec<String> {
    let groups = get(&stage.coderd, "/api/v2/organizations/default/groups").await;
    let names = groups.as_array().unwrap().iter().filter_map(|it| it["name"].as_str());
    names.filter(|it| *it != "Everyone").map(str::to_owned).collect()
}

fn going(name: &str) -> Value {
    group_named(name, &json!({"deletionPolicy": "Delete"}))
}

async fn made(stage: &Stage, name: &str) -> Value {
    stage.apply(&going(name)).await;
    stage.wait_for("CoderGroup", name, "ready", is_ready).await
}

#[tokio::test]
async fn a_namespace_with_objects_that_hold_finalizers_goes() {
    let coderd = licensed().await;
    let url = coderd.owner.url.clone();
    let stage = Stage::cluster_wide(coderd, &url).await;
    for name in ["a", "b"] {
        made(&stage, name).await;
    }
    stage.delete_namespace().await;
}

#[tokio::test]
async fn a_namespace_whose_coderd_does_not_answer_goes_and_what_was_left_is_named() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::cluster_wide(coderd, &proxy.url).await;
    made(&stage, "a").await;
    proxy.set(Mood::Down);
    stage.delete_namespace().await;
    stage.operator.says(&["group default/a", "left behind"]).await;
}

#[tokio::test]
async fn objects_whose_control_plane_was_deleted_first_go_at_once_and_are_named() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    let group = made(&stage, "a").await;
    let plane = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    stage.delete("CoderControlPlane", "main").await;
    stage.gone(&plane).await;
    stage
        .wait::<CoderGroup>("a", "told", |it| {
            is_held_up("ControlPlaneNotReady")(it) || is_held_up("ControlPlaneNotFound")(it)
        })
        .await;
    stage.delete("CoderGroup", "a").await;
    stage.gone(&group).await;
    stage.operator.says(&["group default/a", "left behind"]).await;
    assert_eq!(groups(&stage).await, ["a"], "nobody could be asked");
    let events = stage.api::<k8s_openapi::api::events::v1::Event>();
    let events = events.list(&ListParams::default()).await.unwrap();
    let is_named = |it: &k8s_openapi::api::events::v1::Event| {
        it.reason.as_deref() == Some("LeftBehind")
            && it.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some("a"))
    };
    assert!(events.items.iter().any(is_named), "{:#?}", events.items);
}

#[tokio::test]
async fn everything_deleted_at_once_leaves_nothing_in_coder() {
    let stage = Stage::new(licensed().await).await;
    let organization = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderOrganization",
        "metadata": {"name": "home"}, "spec": {"controlPlaneRef": {"name": "main"}, "deletionPolicy": "Delete"}});
    let inside = group_named("inside", &json!({"organization": "home", "deletionPolicy": "Delete"}));
    for manifest in [&organization, &inside] {
        stage.apply(manifest).await;
    }
    let mut all = vec![
        stage.wait_for("CoderOrganization", "home", "ready", is_ready).await,
        stage.wait_for("CoderGroup", "inside", "ready", is_ready).await,
        made(&stage, "outside").await,
        stage.wait_for("CoderControlPlane", "main", "ready", is_ready).await,
    ];
    // The worst order: what the others need goes first.
    all.reverse();
    let secrets = stage.api::<k8s_openapi::api::core::v1::Secret>();
    secrets.delete(CREDENTIALS, &DeleteParams::default()).await.unwrap();
    for object in &all {
        stage.delete(object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap()).await;
    }
    for object in &all {
        stage.gone(object).await;
    }
    assert_eq!(groups(&stage).await, Vec::<String>::new(), "{:#?}", stage.operator.said());
    let organizations = get(&stage.coderd, "/api/v2/organizations").await;
    assert_eq!(organizations.as_array().unwrap().len(), 1, "{organizations}");
}

#[tokio::test]
async fn an_object_whose_credentials_are_gone_goes_at_once_and_is_named() {
    let mut stage = Stage::new(licensed().await).await;
    let group = made(&stage, "a").await;
    // Nobody remembers them either.
    stage.operator.process.kill().unwrap();
    stage.operator.ended().await;
    let secrets = stage.api::<k8s_openapi::api::core::v1::Secret>();
    secrets.delete(CREDENTIALS, &DeleteParams::default()).await.unwrap();
    stage.operator = Operator::start(&stage.namespace, &[]);
    stage.wait::<CoderControlPlane>("main", "without a token", is_held_up("SecretNotFound")).await;
    stage.delete("CoderGroup", "a").await;
    stage.gone(&group).await;
    stage.operator.says(&["group default/a", "left behind"]).await;
    assert_eq!(groups(&stage).await, ["a"]);
}

#[tokio::test]
async fn a_coderd_that_does_not_answer_is_waited_for_unless_somebody_says_otherwise() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    let (patient, forced) = (made(&stage, "patient").await, made(&stage, "forced").await);
    proxy.set(Mood::Down);
    for name in ["patient", "forced"] {
        stage.delete("CoderGroup", name).await;
        stage.operator.says(&[name, "not deleted in Coder yet"]).await;
    }
    stage.annotate("CoderGroup", "forced", api::annotation::FORCE_FINALIZE, Some("true")).await;
    stage.gone(&forced).await;
    stage.operator.says(&["forced", "left behind"]).await;
    assert!(stage.api::<CoderGroup>().get_opt("patient").await.unwrap().is_some());
    proxy.set(Mood::Passing);
    stage.gone(&patient).await;
    assert_eq!(groups(&stage).await, ["forced"]);
}

#[tokio::test]
async fn what_is_only_observed_is_never_deleted() {
    let stage = Stage::new(licensed().await).await;
    made(&stage, "a").await;
    let mut manifest = going("a");
    manifest["spec"]["mode"] = json!("Observe");
    stage.apply(&manifest).await;
    let seen = stage.wait::<CoderGroup>("a", "observed", is_ready).await;
    stage.delete("CoderGroup", "a").await;
    stage.gone(&seen).await;
    assert_eq!(groups(&stage).await, ["a"]);
}

#[tokio::test]
async fn a_control_plane_that_is_gone_is_forgotten() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    let plane = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    stage.apply(&group(&json!({}))).await;
    stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    let name = format!("coder_operator_control_plane_up{{namespace=\"{}\",name=\"main\"}}", stage.namespace);
    stage.operator.shows("up", |text| text.contains(&format!("{name} 1"))).await;
    stage.delete("CoderControlPlane", "main").await;
    stage.gone(&plane).await;
    stage.operator.shows("forgotten", |text| !text.contains("name=\"main\"")).await;
    stage
        .wait::<CoderGroup>("developers", "told", |it| {
            is_held_up("ControlPlaneNotReady")(it) || is_held_up("ControlPlaneNotFound")(it)
        })
        .await;
    // Nobody has its client any more: what is asked for now is asked of nobody.
    let asked = proxy.requests().len();
    stage.look_again("CoderGroup", "developers").await;
    stage.delete("CoderGroup", "developers").await;
    assert_eq!(proxy.requests().len(), asked);
    // And one that comes under its name is another one.
    let other = licensed().await;
    stage.write_secret(CREDENTIALS, &json!({"token": other.owner.token})).await;
    stage.apply(&super::stage::plane("main", &other.owner.url)).await;
    let again = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    assert_ne!(again["status"]["deploymentID"], plane["status"]["deploymentID"]);
}

/// A suspended manifest that holds our finalizer and has that in its status, as a pass before may have left it.
async fn as_left_by_a_pass(stage: &Stage, name: &str, status: &Value) -> Value {
    let mut manifest = group_named(name, &json!({"deletionPolicy": "Delete", "suspend": true}));
    manifest["metadata"]["finalizers"] = json!([api::finalizer::FINALIZER]);
    stage.apply(&manifest).await;
    let is_suspended = |it: &Value| says(it, "Ready", "Unknown", "Suspended");
    let suspended = stage.wait_for("CoderGroup", name, "suspended", is_suspended).await;
    let patch = Patch::Merge(json!({"status": status}));
    stage.kind("CoderGroup").patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    suspended
}

#[tokio::test]
async fn what_another_manifest_holds_too_stays_when_one_of_the_two_goes() {
    let stage = Stage::new(licensed().await).await;
    let kept = made(&stage, "kept").await;
    let other = as_left_by_a_pass(&stage, "other", &json!({"id": kept["status"]["id"]})).await;
    stage.delete("CoderGroup", "other").await;
    stage.gone(&other).await;
    assert_eq!(groups(&stage).await, ["kept"]);
}

#[tokio::test]
async fn what_may_have_been_made_before_a_crash_is_named_when_its_manifest_goes() {
    let stage = Stage::new(licensed().await).await;
    let unknown = as_left_by_a_pass(&stage, "unknown", &json!({"creating": "0123456789abcdef"})).await;
    stage.delete("CoderGroup", "unknown").await;
    stage.gone(&unknown).await;
    stage.operator.says(&["group default/unknown is left behind"]).await;
}

#[tokio::test]
async fn object_that_is_renamed_before_its_deletion_is_named_by_its_id() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    let group = made(&stage, "a").await;
    proxy.set(Mood::Down);
    let mut renamed = going("a");
    renamed["spec"]["name"] = json!("b");
    stage.apply(&renamed).await;
    stage.delete("CoderGroup", "a").await;
    stage.annotate("CoderGroup", "a", api::annotation::FORCE_FINALIZE, Some("true")).await;
    stage.gone(&group).await;
    let left = stage.left_behind().await;
    let id = group["status"]["id"].as_str().unwrap();
    assert!(left.len() == 1 && left[0].contains(id), "{left:#?}");
}
