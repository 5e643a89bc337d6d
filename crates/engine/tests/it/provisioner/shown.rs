//! What the command line shows of provisioners.

use api::Reason;
use engine::{Action, Coder, Decision, coder::Promises, objects::Key};
use serde_json::json;

use super::{Scene, WORKLOAD, decision};
use crate::memory::{self, DEPLOYMENT};

#[tokio::test]
async fn plan_of_a_new_provisioner_shows_key_and_objects() {
    let scene = Scene::new(&json!({}));
    let assessment = scene.assess(&scene.command()).await;
    assert_eq!(decision(&assessment), Decision::Apply);
    let steps = &assessment.plan.steps;
    assert!(steps.iter().all(|it| it.action == Action::Create), "{steps:?}");
    let reasons: Vec<&str> = steps.iter().map(|it| it.reason.as_str()).collect();
    let expected = ["a key named alpha", "ServiceAccount ", "Role ", "RoleBinding ", "Deployment "];
    assert_eq!(reasons.len(), expected.len(), "{reasons:?}");
    for (reason, begins) in reasons.iter().zip(expected) {
        assert!(reason.starts_with(begins), "{reasons:?}");
    }
}

#[tokio::test]
async fn plan_is_empty_once_reconciled_and_names_a_field_that_was_changed_by_hand() {
    let scene = Scene::new(&json!({}));
    scene.reconcile().await;
    let assessment = scene.assess(&scene.command()).await;
    assert_eq!(decision(&assessment), Decision::Nothing, "{:?}", assessment.plan);

    scene.cluster.edit("Deployment", WORKLOAD, |it| it["spec"]["replicas"] = json!(7));
    let containers = "/spec/template/spec/containers/0/env";
    scene.cluster.edit("Deployment", WORKLOAD, |it| {
        let variables = it.pointer_mut(containers).unwrap().as_array_mut().unwrap();
        variables
            .iter_mut()
            .filter(|it| it["name"] == "TF_TOKEN")
            .for_each(|it| it["value"] = json!("hunter3"));
    });
    let assessment = scene.assess(&scene.command()).await;
    assert_eq!(decision(&assessment), Decision::Apply);
    let changes: Vec<_> = assessment.plan.changes().collect();
    let replicas = changes.iter().find(|it| it.field.ends_with(": spec.replicas")).unwrap();
    assert_eq!((&replicas.before, &replicas.after), (&json!(7), &json!(2)));
    assert!(changes.iter().any(|it| it.field.contains("containers")), "{changes:?}");
    assert!(!format!("{:?}", assessment.plan).contains("hunter"), "values of variables are masked");

    let observed = Scene { manifest: Scene::new(&json!({"mode": "Observe"})).manifest, ..scene };
    assert_eq!(decision(&observed.assess(&observed.command()).await), Decision::Observe);
}

#[tokio::test]
async fn replicas_that_the_manifest_does_not_name_are_those_of_the_stored_one() {
    let scene = Scene::new(&json!({"replicas": 5}));
    scene.reconcile().await;
    let mut manifest = scene.manifest.clone();
    manifest["spec"].as_object_mut().unwrap().remove("replicas");
    let unnamed = Scene { manifest, ..scene };
    assert_eq!(decision(&unnamed.assess(&unnamed.command()).await), Decision::Nothing);
}

#[tokio::test]
async fn plan_reports_a_missing_cluster_control_plane_or_licence() {
    let scene = Scene::new(&json!({}));
    let apart = Coder::new(scene.wire.client(), Promises::default());
    assert_eq!(scene.stopped(&apart).await.0, Reason::NeedsCluster);

    let other = "00000000-0000-4000-8000-00000000eeee";
    scene.cluster.edit("CoderControlPlane", "main", |it| it["status"] = json!({"deploymentID": other}));
    let (reason, message) = scene.stopped(&scene.command()).await;
    assert_eq!(reason, Reason::DeploymentChanged);
    assert!(message.contains(other) && message.contains(DEPLOYMENT), "{message}");
    scene.cluster.edit("CoderControlPlane", "main", |it| it["status"] = json!({}));

    scene.wire.deployment.edit(|it| *it = memory::described(&json!({"features": []})));
    let (reason, message) = scene.stopped(&scene.command()).await;
    assert_eq!(reason, Reason::NotEntitled);
    assert!(message.contains("external_provisioner_daemons"), "{message}");

    scene.cluster.remove("CoderControlPlane", "main");
    let (reason, message) = scene.stopped(&scene.command()).await;
    assert_eq!(reason, Reason::ControlPlaneUnavailable);
    assert!(message.contains("main is neither in the files nor in the cluster"), "{message}");
}

#[tokio::test]
async fn object_of_another_owner_is_named_beside_the_plan() {
    let scene = Scene::new(&json!({}));
    let key = Key::new("apps/v1", "Deployment", "platform", WORKLOAD);
    scene.cluster.set(&json!({"apiVersion": key.api_version, "kind": key.kind,
        "metadata": {"name": key.name, "namespace": key.namespace}, "spec": {}}));
    let refused = scene.assess(&scene.command()).await.unsupported.unwrap();
    assert_eq!(refused.reason, Reason::NotOurs);
    assert!(refused.message.contains(WORKLOAD), "{}", refused.message);
}
