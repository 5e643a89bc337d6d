//! Conditions that are true for a moment only on the way to daemons, each seen once.

use api::CoderProvisioner;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    super::{
        licensed,
        proxy::{Mood, Proxy},
        stage::{Stage, is_ready, says, words},
    },
    keys, provisioner,
};

#[tokio::test]
async fn a_provisioner_says_what_holds_up_its_key_and_its_pods() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &proxy.url).await;
    stage.wait_for("CoderControlPlane", "main", "ready", is_ready).await;

    proxy.set_on("/provisionerkeys", Mood::Busy(1));
    // No node has this image: its pods wait for as long as the test needs them to.
    stage.apply(&provisioner("alpha", &json!({"image": "nowhere/coder"}))).await;
    let is_limited = |it: &Value| {
        says(it, "ProvisionerKeyReady", "False", "RateLimited") && says(it, "Ready", "False", "RateLimited")
    };
    stage.wait::<CoderProvisioner>("alpha", "limited", is_limited).await;

    proxy.set_on("/provisionerkeys", Mood::Failing(Method::POST, 404));
    let is_failed = |it: &Value| {
        says(it, "ProvisionerKeyReady", "False", "ProvisionerKeyFailed")
            && says(it, "Ready", "False", "ProvisionerKeyFailed")
    };
    let failed = stage.wait::<CoderProvisioner>("alpha", "failed", is_failed).await;
    assert!(words(&failed).contains("/provisionerkeys"), "{}", words(&failed));
    assert_eq!(keys(&stage.coderd).await, [""; 0]);

    proxy.set(Mood::Passing);
    // Until the node has tried the image, and after that.
    let has_no_pod = |it: &Value| {
        ["NoReplicasReady", "RolloutStuck"].iter().any(|reason| says(it, "DeploymentReady", "False", reason))
    };
    let waiting = stage.wait::<CoderProvisioner>("alpha", "without a ready pod", has_no_pod).await;
    assert!(says(&waiting, "ProvisionerKeyReady", "True", "ProvisionerKeyReady"), "{waiting:#}");
    stage.apply(&provisioner("alpha", &json!({}))).await;
    let ready = stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    assert!(says(&ready, "DeploymentReady", "True", "MinimumReplicasReady"), "{ready:#}");
    assert_eq!(ready["status"]["readyReplicas"], 1);
}
