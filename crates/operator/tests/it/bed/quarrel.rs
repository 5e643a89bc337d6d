//! Somebody else who wants something else: another manifest under another name, or a hand that keeps changing a field back.

use api::{CoderAppearance, CoderControlPlane, CoderGroup};
use kube::api::{Patch, PatchParams};
use reqwest::Method;
use serde_json::json;

use super::{
    get, licensed,
    proxy::Proxy,
    stage::{Stage, group, group_named, is_held_up, is_ready, plane, words},
};

#[tokio::test]
async fn an_object_with_two_names_has_one_keeper() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&group(&json!({"organization": "default", "quotaAllowance": 1}))).await;
    stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    let organizations = get(&stage.coderd, "/api/v2/organizations").await;
    let name = organizations[0]["name"].as_str().unwrap();
    let mut second = group(&json!({"organization": name, "quotaAllowance": 2}));
    second["metadata"]["name"] = json!("pretender");
    stage.apply(&second).await;
    let told = stage.wait::<CoderGroup>("pretender", "told", is_held_up("HeldByOther")).await;
    assert!(words(&told).starts_with("developers "), "{}", words(&told));
}

#[tokio::test]
async fn group_of_two_control_planes_for_one_coderd_has_one_holder() {
    let stage = Stage::new(licensed().await).await;
    let spec = json!({"quotaAllowance": 1, "deletionPolicy": "Delete"});
    stage.apply(&group(&spec)).await;
    let held = stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    let (id, deployment) = (&held["status"]["id"], &held["status"]["remoteDeploymentID"]);
    stage.apply(&plane("again", &stage.coderd.owner.url)).await;
    let again = stage.wait::<CoderControlPlane>("again", "ready", is_ready).await;
    assert_eq!(again["status"]["deploymentID"], *deployment);
    let mut second = group(&spec);
    second["metadata"]["name"] = json!("pretender");
    second["spec"]["controlPlaneRef"]["name"] = json!("again");
    stage.is_outlived(&held).await;
    stage.apply(&second).await;
    let told = stage.wait::<CoderGroup>("pretender", "told", is_held_up("HeldByOther")).await;
    assert!(words(&told).starts_with("developers declares "), "{}", words(&told));
    // A status from before the field, in which both hold the group: the older manifest keeps it.
    let both = Patch::Merge(json!({"status": {"id": id, "remoteDeploymentID": null}}));
    let groups = stage.kind("CoderGroup");
    groups.patch_status("pretender", &PatchParams::default(), &both).await.unwrap();
    let told = stage.look_again("CoderGroup", "pretender").await;
    assert!(is_held_up("HeldByOther")(&told), "{told:#}");
    stage.delete("CoderGroup", "pretender").await;
    stage.gone(&told).await;
    let path = format!("/api/v2/groups/{}", id.as_str().unwrap());
    assert_eq!(get(&stage.coderd, &path).await["name"], "developers", "the holder's group stays");
    stage.delete("CoderGroup", "developers").await;
    stage.gone(&held).await;
    assert_eq!(stage.coderd.owner.request(Method::GET, &path, None).await.unwrap().0, 404);
}

#[tokio::test]
async fn appearance_of_one_coderd_has_one_writer() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    // Another address of the same coderd.
    stage.apply(&plane("again", &proxy.url.replace("127.0.0.1", "localhost"))).await;
    let appearance = |name: &str, plane: &str| {
        json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderAppearance", "metadata": {"name": name},
            "spec": {"controlPlaneRef": {"name": plane}, "applicationName": name, "interval": "10s",
                "adoptionPolicy": "Adopt"}})
    };
    stage.apply(&appearance("first", "main")).await;
    stage.wait::<CoderAppearance>("first", "ready", is_ready).await;
    stage.wait::<CoderControlPlane>("again", "ready", is_ready).await;
    stage.apply(&appearance("second", "again")).await;
    let told = stage.wait::<CoderAppearance>("second", "told", is_held_up("HeldByOther")).await;
    assert!(words(&told).starts_with("first declares "), "{}", words(&told));
    stage.look_again("CoderAppearance", "second").await;
    stage.look_again("CoderAppearance", "first").await;
    assert_eq!(get(&stage.coderd, "/api/v2/appearance").await["application_name"], "first");
    assert_eq!(proxy.writes(), ["PUT /api/v2/appearance"]);
    // The next holder once there is none.
    stage.delete("CoderAppearance", "first").await;
    stage.wait::<CoderAppearance>("second", "ready", is_ready).await;
    assert_eq!(get(&stage.coderd, "/api/v2/appearance").await["application_name"], "second");
}

#[tokio::test]
async fn a_field_that_somebody_else_keeps_changing_is_left_alone_after_three_rounds() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&group_named("contended", &json!({"quotaAllowance": 20, "interval": "1h"}))).await;
    let made = stage.wait::<CoderGroup>("contended", "ready", is_ready).await;
    let path = format!("/api/v2/groups/{}", made["status"]["id"].as_str().unwrap());
    let quota = async || get(&stage.coderd, &path).await["quota_allowance"].clone();
    for round in 0..4 {
        let theirs = json!({"quota_allowance": 3});
        let (status, _) = stage.coderd.owner.request(Method::PATCH, &path, Some(&theirs)).await.unwrap();
        assert_eq!(status, 200);
        let seen = stage.look_again("CoderGroup", "contended").await;
        if round < 3 {
            assert_eq!(quota().await, 20, "round {round}");
            continue;
        }
        assert!(is_held_up("Contended")(&seen), "{seen:#}");
        assert!(words(&seen).contains("spec.quotaAllowance"), "{}", words(&seen));
        assert_eq!(seen["status"]["drift"][0]["field"], "quotaAllowance");
        assert_eq!(quota().await, 3, "we have stepped back");
    }
    // Another wish of the manifest is no quarrel.
    stage.apply(&group_named("contended", &json!({"quotaAllowance": 21, "interval": "1h"}))).await;
    stage.wait::<CoderGroup>("contended", "ready again", is_ready).await;
    assert_eq!(quota().await, 21);
}
