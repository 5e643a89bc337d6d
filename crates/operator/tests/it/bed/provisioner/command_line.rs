//! Provisioners on the command line: compared with what the controllers have made, and never changed.

use api::CoderProvisioner;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{
    super::{
        cluster_door::expect,
        job::Job,
        licensed,
        stage::{Stage, is_ready},
    },
    keys, provisioner,
};

#[tokio::test]
async fn command_line_compares_provisioners_and_leaves_them_to_the_controllers() {
    let mut stage = Stage::new(licensed().await).await;
    let variables = json!([{"name": "TF_TOKEN", "value": "hunter2"}]);
    let alpha = provisioner("alpha", &json!({"extraEnv": variables}));
    stage.apply(&alpha).await;
    stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    let cli = Job::in_namespace(&stage.client, &stage.namespace, "command-line-provisioner").await;
    let file = cli.write(std::slice::from_ref(&alpha));
    let told = expect(cli.command(&["verify", "-f", &file]), 0).await;
    assert!(told.contains("1 equal"), "{told}");

    // The Deployment is changed while no operator mends it.
    stage.operator.tell("-TERM");
    stage.operator.ended().await;
    let patch = json!({"spec": {"replicas": 2, "template": {"spec": {"containers": [
        {"name": "provisioner", "env": [{"name": "TF_TOKEN", "value": "hunter3"}]}]}}}});
    let deployments = stage.api::<Deployment>();
    deployments.patch("provisioner-alpha", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    let told = expect(cli.command(&["verify", "-f", &file]), 3).await;
    let deployment = format!("Deployment {}/provisioner-alpha", stage.namespace);
    assert!(told.contains(&format!("~ {deployment}: spec.replicas: 2 -> 1")), "{told}");
    assert!(told.contains("env[TF_TOKEN].value"), "{told}");
    assert!(!told.contains("hunter"), "values of variables are masked: {told}");

    let before = keys(&stage.coderd).await;
    let file = cli.write(&[alpha, provisioner("bravo", &json!({}))]);
    let told = expect(cli.command(&["plan", "--exit-code", "-f", &file]), 3).await;
    for words in [
        "2 to change".to_owned(),
        "+ create: a key named bravo is created and written into Secret bravo-provisioner-key".to_owned(),
        format!("+ create: Deployment {}/provisioner-bravo is declared and missing", stage.namespace),
    ] {
        assert!(told.contains(&words), "{words}: {told}");
    }
    let told = expect(cli.command(&["apply", "--yes", "-f", &file]), 0).await;
    for name in ["alpha", "bravo"] {
        let note = "applied by the controllers (`coder-operator run`), not by `apply`";
        let object = format!("CoderProvisioner {}/{name}: {note}", stage.namespace);
        assert!(told.contains(&object), "{told}");
    }
    assert!(told.contains("2 skipped"), "{told}");
    assert_eq!(keys(&stage.coderd).await, before);
    let now = deployments.get("provisioner-alpha").await.unwrap();
    assert_eq!(now.spec.unwrap().replicas, Some(2));
    assert!(deployments.get_opt("provisioner-bravo").await.unwrap().is_none());
    assert!(stage.api::<Secret>().get_opt("bravo-provisioner-key").await.unwrap().is_none());
    assert!(stage.kind("CoderProvisioner").get_opt("bravo").await.unwrap().is_none());
}
