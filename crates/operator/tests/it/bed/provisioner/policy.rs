//! `mode` and `approval` of a provisioner: what is only observed, and what waits for a person.

use api::{CoderProvisioner, annotation};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    super::{
        licensed,
        stage::{Stage, is_held_up, is_ready, says},
    },
    keys, provisioner,
};

const KIND: &str = "CoderProvisioner";
const DEPLOYMENT: &str = "provisioner-alpha";
const SECRET: &str = "alpha-provisioner-key";

/// The targets of a plan's steps, as `Action reason`.
fn steps(object: &Value) -> Vec<String> {
    let steps = object["status"]["plan"]["steps"].as_array().cloned().unwrap_or_default();
    steps
        .iter()
        .map(|it| format!("{} {}", it["action"].as_str().unwrap(), it["reason"].as_str().unwrap()))
        .collect()
}

async fn approve(stage: &Stage, object: &Value) {
    let hash = object["status"]["plan"]["hash"].as_str().unwrap();
    stage.annotate(KIND, "alpha", annotation::APPROVED_PLAN, Some(hash)).await;
}

#[tokio::test]
async fn observed_provisioner_is_planned_and_nothing_of_it_is_written() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&provisioner("alpha", &json!({"mode": "Observe"}))).await;
    let observed = stage.wait::<CoderProvisioner>("alpha", "observed", is_held_up("Observed")).await;
    let planned = steps(&observed);
    assert!(planned[0].starts_with("Create a key named alpha is created"), "{planned:?}");
    assert!(
        planned.iter().any(|it| it.contains(&format!("Deployment {}/{DEPLOYMENT}", stage.namespace))),
        "{planned:?}"
    );
    assert!(says(&observed, "Drifted", "True", "DriftFound"), "{observed:#}");
    assert_eq!(observed["metadata"]["finalizers"], Value::Null, "there is nothing to take back");
    assert_eq!(keys(&stage.coderd).await, [""; 0]);
    assert!(stage.api::<Secret>().get_opt(SECRET).await.unwrap().is_none());
    assert!(stage.api::<Deployment>().get_opt(DEPLOYMENT).await.unwrap().is_none());

    stage.apply(&provisioner("alpha", &json!({}))).await;
    let ready = stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    assert_eq!(ready["status"]["plan"], Value::Null);
    assert!(ready["status"]["lastAppliedTime"].is_string(), "{ready:#}");

    // What somebody changes while it is observed is shown by field, and stays.
    stage.apply(&provisioner("alpha", &json!({"mode": "Observe"}))).await;
    let is_observed = |it: &Value| it["status"]["observedGeneration"] == it["metadata"]["generation"];
    stage.wait::<CoderProvisioner>("alpha", "observed again", is_observed).await;
    let edit = json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}});
    let deployments = stage.api::<Deployment>();
    deployments.patch(DEPLOYMENT, &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    let drifted = stage.wait::<CoderProvisioner>("alpha", "drifted", is_held_up("Observed")).await;
    let drift = drifted["status"]["drift"].as_array().unwrap();
    assert!(
        drift.iter().any(|it| it["field"].as_str().unwrap().ends_with("terminationGracePeriodSeconds")
            && it["found"] == "7"),
        "{drift:?}"
    );
    let left = deployments.get(DEPLOYMENT).await.unwrap().spec.unwrap().template.spec.unwrap();
    assert_eq!(left.termination_grace_period_seconds, Some(7));

    // Its deletion revokes nothing, and names what stays.
    stage.delete(KIND, "alpha").await;
    stage.gone(&ready).await;
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);
    stage.operator.says(&["provisioner key alpha is left behind: mode is Observe"]).await;
}

#[tokio::test]
async fn one_approval_covers_the_key_and_all_that_follows_from_it() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&provisioner("alpha", &json!({"approval": "Manual"}))).await;
    let asks = stage.wait::<CoderProvisioner>("alpha", "asking", is_held_up("ApprovalRequired")).await;
    assert!(says(&asks, "Stalled", "True", "ApprovalRequired"), "{asks:#}");
    assert_eq!(keys(&stage.coderd).await, [""; 0]);
    approve(&stage, &asks).await;
    let ready = stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);

    // A rotation waits, and the daemons go on with the key that they have.
    let pods = stage.api::<Deployment>().get(DEPLOYMENT).await.unwrap();
    stage.annotate(KIND, "alpha", annotation::ROTATE_REQUESTED_AT, Some("now")).await;
    let asks = stage.wait::<CoderProvisioner>("alpha", "asking again", is_held_up("ApprovalRequired")).await;
    assert_ne!(asks["status"]["plan"]["hash"], ready["status"]["plan"]["hash"]);
    assert!(says(&asks, "ProvisionerKeyReady", "True", "ProvisionerKeyReady"), "{asks:#}");
    assert!(says(&asks, "DaemonsConnected", "True", "DaemonsConnected"), "{asks:#}");
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);
    let now = stage.api::<Deployment>().get(DEPLOYMENT).await.unwrap();
    assert_eq!(now.metadata.generation, pods.metadata.generation);
    approve(&stage, &asks).await;
    let is_rotated = |it: &Value| {
        is_ready(it)
            && it["status"]["provisionerKeyName"] != "alpha"
            && it["status"]["retiringKeys"].is_null()
    };
    let rotated = stage.wait::<CoderProvisioner>("alpha", "rotated", is_rotated).await;
    let name = rotated["status"]["provisionerKeyName"].as_str().unwrap();
    assert_eq!(keys(&stage.coderd).await, [name], "the old key was revoked without another approval");
    let rolled = stage.api::<Deployment>().get(DEPLOYMENT).await.unwrap();
    assert_ne!(rolled.uid().zip(rolled.metadata.generation), pods.uid().zip(pods.metadata.generation));
}
