//! `approval` of a managed control plane: nothing of it is created before a person agrees.

use api::{CoderControlPlane, annotation};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::ground;
use crate::bed::{
    cluster_door::expect,
    job::Job,
    stage::{is_held_up, says},
};

#[tokio::test]
async fn managed_control_plane_waits_for_the_approval_of_its_plan() {
    let stage = ground::stage().await;
    let mut plane = ground::shipped();
    plane["spec"]["approval"] = "Manual".into();
    plane["spec"]["extraEnv"].as_array_mut().unwrap().push(json!({"name": "SECRET", "value": "hunter2"}));
    stage.apply(&plane).await;
    let asks = stage.wait::<CoderControlPlane>("main", "asking", is_held_up("ApprovalRequired")).await;
    assert!(says(&asks, "Drifted", "True", "DriftFound"), "{asks:#}");
    let steps = asks["status"]["plan"]["steps"].as_array().unwrap();
    let creates = |kind: &str| steps.iter().any(|it| it["reason"].as_str().unwrap().starts_with(kind));
    assert!(creates("Deployment") && creates("Service"), "{steps:#?}");
    assert!(!asks["status"].to_string().contains("hunter2"), "{asks:#}");
    assert!(stage.api::<Deployment>().get_opt("main").await.unwrap().is_none());

    // The command line shows the same plan, and the same hash approves it.
    let hash = asks["status"]["plan"]["hash"].as_str().unwrap();
    let cli = Job::in_namespace(&stage.client, &stage.namespace, "command-line-plane").await;
    let file = cli.write(std::slice::from_ref(&plane));
    let told = expect(cli.command(&["plan", "--exit-code", "--quiet", "-o", "json", "-f", &file]), 4).await;
    assert!(told.contains(hash) && !told.contains("hunter2"), "{hash}: {told}");
    expect(cli.command(&["apply", "--yes", "-f", &file]), 0).await;
    assert!(stage.api::<Deployment>().get_opt("main").await.unwrap().is_none());

    stage.annotate("CoderControlPlane", "main", annotation::APPROVED_PLAN, Some(hash)).await;
    let goes_on = |it: &Value| it["status"]["plan"].is_null() && it["status"]["lastAppliedTime"].is_string();
    stage.wait::<CoderControlPlane>("main", "applied", goes_on).await;
    let deployments = stage.api::<Deployment>();
    assert!(deployments.get_opt("main").await.unwrap().is_some());
    expect(cli.command(&["verify", "-f", &file]), 0).await;

    // A change by hand, held back by the approval, is a difference.
    let patch = json!({"spec": {"replicas": 3}});
    deployments.patch("main", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let told = expect(cli.command(&["verify", "-f", &file]), 4).await;
    let change = format!("~ Deployment {}/main: spec.replicas: 3 -> 1", stage.namespace);
    assert!(told.contains(&change), "{told}");
}
