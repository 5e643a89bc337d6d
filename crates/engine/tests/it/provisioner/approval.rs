//! Provisioners whose plans wait for a person.

use api::Reason;
use engine::{
    PlanView,
    ports::{ClusterError, Write},
};
use serde_json::json;

use super::{Scene, WORKLOAD};

/// A provisioner that is as declared, and then gets other tags and another number of daemons, which a person has to approve.
async fn to_be_approved() -> Scene {
    let scene = Scene::new(&json!({}));
    scene.reconcile().await;
    let changed = Scene::new(&json!({"approval": "Manual", "tags": {"site": "b"}, "replicas": 3})).manifest;
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["spec"] = changed["spec"].clone();
        it["metadata"]["generation"] = json!(2);
    });
    Scene { manifest: changed, ..scene }
}

/// The plan for which a reconcile needs an approval.
async fn held_back(scene: &Scene) -> PlanView {
    scene.reconcile().await.held_back().unwrap().clone()
}

fn approve(scene: &Scene, hash: &str) {
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["metadata"]["annotations"] = json!({api::annotation::APPROVED_PLAN: hash});
    });
}

#[tokio::test]
async fn status_holds_the_plan_that_the_command_line_shows_and_one_approval_does_all_of_it() {
    let scene = to_be_approved().await;
    let held = held_back(&scene).await;
    assert_eq!(held, scene.assess(&scene.command()).await.plan);
    let changed: Vec<&str> = held.changes().map(|it| it.field.as_str()).collect();
    assert!(changed.contains(&"tags") && changed.iter().any(|it| it.ends_with("replicas")), "{changed:?}");
    assert_eq!(scene.stored()["status"]["plan"]["hash"], held.hash.as_str());

    approve(&scene, &held.hash);
    let done = scene.reconcile().await;
    assert!(done.held_back().is_none(), "{done:?}");
    let name = scene.stored()["status"]["provisionerKeyName"].clone();
    assert!(name.as_str().unwrap().starts_with("alpha-"), "{name}");
    let deployment = scene.cluster.find("Deployment", WORKLOAD).unwrap();
    assert_eq!(deployment["spec"]["replicas"], 3);
}

#[tokio::test]
async fn approval_fits_although_an_old_key_was_revoked_meanwhile() {
    let scene = Scene::new(&json!({"replicas": 0}));
    scene.reconcile().await;
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["metadata"]["annotations"] = json!({api::annotation::ROTATE_REQUESTED_AT: "now"});
    });
    scene.reconcile().await;
    let retiring = |scene: &Scene| scene.stored()["status"]["retiringKeys"].clone();
    assert_eq!(retiring(&scene)[0]["name"], "alpha");
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["spec"]["approval"] = json!("Manual");
        it["spec"]["tags"] = json!({"site": "b"});
        it["metadata"]["generation"] = json!(2);
    });
    let held = held_back(&scene).await;
    assert!(retiring(&scene).is_null(), "the old key is revoked without an approval");

    approve(&scene, &held.hash);
    let done = scene.reconcile().await;
    assert!(done.held_back().is_none(), "{done:?}");
}

#[tokio::test]
async fn rest_of_an_approved_plan_needs_no_other_approval() {
    let scene = to_be_approved().await;
    let held = held_back(&scene).await;
    approve(&scene, &held.hash);
    scene.cluster.refuse_writes(Some(|it| it["kind"] == "Deployment"));
    let stopped = scene.reconcile().await;
    assert_eq!(stopped.reason(), Reason::NotApplied, "{stopped:?}");
    let stored = scene.stored();
    assert_eq!(stored["status"]["approved"]["hash"], held.hash.as_str());
    assert!(stored["status"]["provisionerKeyName"].as_str().unwrap().starts_with("alpha-"));

    scene.cluster.refuse_writes(None);
    let done = scene.reconcile().await;
    assert!(done.held_back().is_none(), "{done:?}");
    assert_eq!(scene.cluster.find("Deployment", WORKLOAD).unwrap()["spec"]["replicas"], 3);

    // The approval is for that generation.
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["spec"]["replicas"] = json!(5);
        it["metadata"]["generation"] = json!(3);
    });
    assert!(scene.reconcile().await.held_back().is_some());
}

#[tokio::test]
async fn approved_move_of_a_secret_is_not_asked_for_again_after_a_failure() {
    let scene = Scene::new(&json!({}));
    scene.reconcile().await;
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["spec"]["approval"] = json!("Manual");
        it["spec"]["key"] = json!({"secretName": "moved"});
        it["metadata"]["generation"] = json!(2);
    });
    let held = held_back(&scene).await;
    approve(&scene, &held.hash);
    let failing = scene.before_writes(|write| match write {
        Write::Apply(it) if it["kind"] == "Deployment" => {
            Err(ClusterError::refusal(503, "ServiceUnavailable", "later"))
        }
        _ => Ok(()),
    });
    Box::pin(failing.try_reconcile()).await.unwrap_err();
    assert!(scene.cluster.find("Secret", "moved").is_some(), "the value was moved");
    assert_eq!(scene.stored()["status"]["approved"]["hash"], held.hash.as_str());

    let done = scene.reconcile().await;
    assert!(done.held_back().is_none(), "{done:?}");
    let deployment = scene.cluster.find("Deployment", WORKLOAD).unwrap().to_string();
    assert!(deployment.contains("\"moved\""), "{deployment}");
}

#[tokio::test]
async fn pods_get_their_key_while_another_change_waits_for_an_approval() {
    let scene = Scene::new(&json!({}));
    scene.reconcile().await;
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["spec"]["approval"] = json!("Manual");
        it["metadata"]["generation"] = json!(2);
    });
    let checksum = |scene: &Scene| {
        let deployment = scene.cluster.find("Deployment", WORKLOAD).unwrap();
        deployment["spec"]["template"]["metadata"]["annotations"][api::annotation::PROVISIONER_KEY_CHECKSUM]
            .clone()
    };
    let ours = checksum(&scene);
    // Another tool has put the pods back to an older key, and has changed a Role.
    let annotation = api::annotation::PROVISIONER_KEY_CHECKSUM;
    scene.cluster.edit("Deployment", WORKLOAD, |it| {
        it["spec"]["template"]["metadata"]["annotations"][annotation] = json!("older");
    });
    scene.cluster.edit("Role", WORKLOAD, |it| it["rules"] = json!([]));
    let held = scene.reconcile().await;
    let plan = held.held_back().unwrap();
    assert!(plan.changes().all(|it| it.field.starts_with("Role ")), "{plan:?}");
    assert_eq!(checksum(&scene), ours);
    assert_eq!(scene.cluster.find("Role", WORKLOAD).unwrap()["rules"], json!([]), "that waits");
    let before = scene.cluster.writes();
    assert!(scene.reconcile().await.held_back().is_some());
    assert_eq!(scene.cluster.writes(), before);
}

#[tokio::test]
async fn deletions_that_wait_for_an_approval_stay_in_the_plan() {
    let scene = Scene::new(&json!({"replicas": 0}));
    scene.reconcile().await;
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["metadata"]["annotations"] = json!({api::annotation::ROTATE_REQUESTED_AT: "now"});
    });
    scene.reconcile().await;
    assert_eq!(scene.stored()["status"]["retiringKeys"][0]["name"], "alpha");
    scene.cluster.edit("CoderProvisioner", "alpha", |it| {
        it["spec"]["approval"] = json!("Manual");
        it["spec"]["rbac"] = json!({"workspacePerms": false});
        it["metadata"]["generation"] = json!(2);
    });
    let held = held_back(&scene).await;
    assert!(scene.stored()["status"]["retiringKeys"].is_null(), "the old key is revoked without an approval");
    let deletes = |plan: &PlanView| {
        let deletions = plan.steps.iter().filter(|it| it.action == engine::Action::Delete);
        deletions.map(|it| it.reason.clone()).collect::<Vec<_>>()
    };
    assert_eq!(deletes(&held).len(), 2, "Role and RoleBinding: {held:?}");
    assert_eq!(deletes(&held_back(&scene).await), deletes(&held));
    approve(&scene, &held.hash);
    scene.reconcile().await;
    assert!(scene.cluster.find("Role", WORKLOAD).is_none());
}
