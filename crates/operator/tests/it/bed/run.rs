//! `coder-operator run` in a cluster of real parts.

use api::{CoderControlPlane, CoderGroup, CoderOrganization};
use reqwest::Method;
use serde_json::{Value, json};
use testbed::Flavour;

use super::{
    MANIFESTS, get, license, licensed,
    operator::writes,
    proxy::Proxy,
    stage::{Stage, group, is_ready, says, until},
};

#[tokio::test]
async fn a_set_in_any_order_becomes_ready_and_heals() {
    let stage = Stage::new(licensed().await).await;
    let mut manifests = Vec::new();
    for text in MANIFESTS.split("---\n") {
        let mut manifest: Value = serde_saphyr::from_str(text).unwrap();
        manifest["metadata"].as_object_mut().unwrap().remove("namespace");
        manifest["spec"]["interval"] = json!("10s");
        manifests.push(manifest);
    }
    for manifest in &manifests {
        stage.apply(manifest).await;
    }
    for manifest in &manifests {
        let name = manifest["metadata"]["name"].as_str().unwrap();
        stage.wait_for(manifest["kind"].as_str().unwrap(), name, "ready", is_ready).await;
    }
    let id = stage.wait::<CoderGroup>("alpha-developers", "ready", is_ready).await["status"]["id"].clone();
    let before = stage.api::<CoderGroup>().get("alpha-developers").await.unwrap();
    let path = format!("/api/v2/groups/{}", id.as_str().unwrap());
    let by_hand = json!({"name": "", "quota_allowance": 3});
    stage.coderd.owner.request(Method::PATCH, &path, Some(&by_hand)).await.unwrap();
    let applied = serde_json::to_value(before).unwrap()["status"]["lastAppliedTime"].clone();
    stage
        .wait::<CoderGroup>("alpha-developers", "healed", |it| {
            is_ready(it) && it["status"]["lastAppliedTime"] != applied
        })
        .await;
    assert_eq!(get(&stage.coderd, &path).await["quota_allowance"], 20);
}

#[tokio::test]
async fn without_a_licence_an_object_waits_and_goes_on_by_itself_when_one_comes() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap();
    let stage = Stage::new(coderd).await;
    stage.apply(&group(&json!({}))).await;
    stage.wait::<CoderGroup>("developers", "waiting", |it| says(it, "Ready", "False", "NotEntitled")).await;
    license(&stage.coderd).await;
    stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
}

#[tokio::test]
async fn what_is_observed_is_shown_and_left_alone() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&group(&json!({"quotaAllowance": 7}))).await;
    let made = stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    stage.apply(&group(&json!({"quotaAllowance": 9, "mode": "Observe"}))).await;
    let seen =
        stage.wait::<CoderGroup>("developers", "observed", |it| says(it, "Ready", "False", "Observed")).await;
    assert_eq!(seen["status"]["drift"], json!([{"field": "quotaAllowance", "expected": "9", "found": "7"}]));
    assert!(says(&seen, "Drifted", "True", "DriftFound"));
    let path = format!("/api/v2/groups/{}", made["status"]["id"].as_str().unwrap());
    assert_eq!(get(&stage.coderd, &path).await["quota_allowance"], 7);
}

#[tokio::test]
async fn deleting_a_manifest_keeps_the_object_unless_its_policy_is_delete() {
    let stage = Stage::new(licensed().await).await;
    let organization = |name: &str, policy: &str| {
        json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderOrganization", "metadata": {"name": name},
            "spec": {"controlPlaneRef": {"name": "main"}, "deletionPolicy": policy}})
    };
    for (name, policy) in [("kept", "Retain"), ("gone", "Delete")] {
        stage.apply(&organization(name, policy)).await;
        let made = stage.wait::<CoderOrganization>(name, "ready", is_ready).await;
        stage.delete("CoderOrganization", name).await;
        stage.gone(&made).await;
    }
    let organizations = get(&stage.coderd, "/api/v2/organizations").await;
    let names: Vec<&str> =
        organizations.as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    assert!(names.contains(&"kept") && !names.contains(&"gone"), "{names:?}");
    let events = stage.api::<k8s_openapi::api::events::v1::Event>();
    let events = events.list(&kube::api::ListParams::default()).await.unwrap();
    let notes: Vec<String> = events
        .items
        .into_iter()
        .filter(|it| it.reason.as_deref() == Some("Deleted"))
        .filter_map(|it| it.note)
        .collect();
    assert!(notes.len() == 1 && notes[0].contains("organization gone"), "{notes:?}");
}

#[tokio::test]
async fn what_somebody_else_made_is_taken_over_only_when_it_is_equal() {
    let stage = Stage::new(licensed().await).await;
    let by_hand = json!({"name": "developers", "quota_allowance": 5});
    stage
        .coderd
        .owner
        .request(Method::POST, "/api/v2/organizations/default/groups", Some(&by_hand))
        .await
        .unwrap();
    stage.apply(&group(&json!({"quotaAllowance": 6}))).await;
    let refused = stage
        .wait::<CoderGroup>("developers", "refused", |it| says(it, "Ready", "False", "AdoptionRefused"))
        .await;
    assert!(says(&refused, "Stalled", "True", "AdoptionRefused"));
    assert_eq!(refused["status"]["plan"]["steps"][0]["field"], "quotaAllowance");
    assert_eq!(refused["status"]["id"], Value::Null);
    stage.apply(&group(&json!({"quotaAllowance": 5}))).await;
    stage.wait::<CoderGroup>("developers", "taken over", is_ready).await;
}

#[tokio::test]
async fn a_token_that_stops_working_is_told_and_a_new_one_acts_at_once() {
    let stage = Stage::new(licensed().await).await;
    let is_up = |it: &Value| says(it, "Ready", "True", "UpToDate");
    stage.wait::<CoderControlPlane>("main", "ready", is_up).await;
    stage.write_token("0123456789-0123456789012345678901").await;
    let told = stage
        .wait::<CoderControlPlane>("main", "signed out", |it| says(it, "Ready", "False", "Unauthorized"))
        .await;
    assert!(!told.to_string().contains("0123456789012345678901"), "{told}");
    stage.apply(&group(&json!({}))).await;
    stage
        .wait::<CoderGroup>("developers", "waiting", |it| says(it, "Ready", "False", "ControlPlaneNotReady"))
        .await;
    stage.write_token(&stage.coderd.owner.token).await;
    stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
}

#[tokio::test]
async fn an_object_of_a_control_plane_that_is_gone_is_let_go_and_one_of_a_silent_plane_is_not() {
    let stage = Stage::new(licensed().await).await;
    let organization = |name: &str, plane: &str| {
        json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderOrganization", "metadata": {"name": name},
            "spec": {"controlPlaneRef": {"name": plane}, "deletionPolicy": "Delete"}})
    };
    stage.apply(&organization("alpha", "main")).await;
    let made = stage.wait::<CoderOrganization>("alpha", "ready", is_ready).await;
    stage.write_token("0123456789-0123456789012345678901").await;
    stage
        .wait::<CoderControlPlane>("main", "signed out", |it| says(it, "Ready", "False", "Unauthorized"))
        .await;
    stage.delete("CoderOrganization", "alpha").await;
    // It goes only with its plane, or when that answers again: here the plane goes.
    stage.operator.says(&["organization alpha", "not deleted in Coder yet"]).await;
    let organizations = stage.api::<CoderOrganization>();
    assert!(organizations.get_opt("alpha").await.unwrap().is_some());
    stage.delete("CoderControlPlane", "main").await;
    stage.gone(&made).await;
    let names = get(&stage.coderd, "/api/v2/organizations").await;
    assert!(
        names.as_array().unwrap().iter().any(|it| it["name"] == "alpha"),
        "what could not be reached is left"
    );
}

#[tokio::test]
async fn of_two_manifests_for_one_object_the_older_keeps_it_and_the_other_says_who() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&group(&json!({"quotaAllowance": 1}))).await;
    stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    let mut second = group(&json!({"quotaAllowance": 2}));
    second["metadata"]["name"] = json!("pretender");
    stage.apply(&second).await;
    let told =
        stage.wait::<CoderGroup>("pretender", "told", |it| says(it, "Ready", "False", "HeldByOther")).await;
    assert!(
        told["status"]["conditions"][0]["message"].as_str().unwrap().starts_with("developers "),
        "{told}"
    );
}

#[tokio::test]
async fn what_is_converged_costs_no_write_to_either_side() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.apply(&group(&json!({"quotaAllowance": 7, "displayName": "Developers"}))).await;
    let appearance =
        json!({"controlPlaneRef": {"name": "main"}, "applicationName": "Mission Cloud", "interval": "10s"});
    stage
        .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderAppearance",
        "metadata": {"name": "appearance"}, "spec": appearance}))
        .await;
    stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    stage.wait::<api::CoderAppearance>("appearance", "ready", is_ready).await;
    stage.wait::<CoderControlPlane>("main", "ready", |it| says(it, "Ready", "True", "UpToDate")).await;
    // Events come beside the status; one more look at everything, and all that the changes caused has been sent.
    let (groups, appearances) = (proxy.reads("/groups"), proxy.reads("/appearance"));
    let passes = |more: usize| {
        proxy.reads("/groups") >= groups + more && proxy.reads("/appearance") >= appearances + more
    };
    until("looked at", || passes(1)).await;
    let (kubernetes, coder) = (writes(&stage.namespace).await.len(), proxy.writes());
    until("looked at four times", || passes(4)).await;
    assert_eq!(proxy.writes(), coder);
    let written = writes(&stage.namespace).await;
    assert_eq!(written.len(), kubernetes, "{:#?}", written.last());
}
