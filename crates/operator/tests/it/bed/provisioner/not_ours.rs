//! A Deployment of the name that the daemons' would have, and that is somebody else's.

use api::CoderProvisioner;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Resource as _, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    super::stage::{LIMIT, Stage, is_held_up, says, words},
    gate::{patient, unlicensed, write_license},
};

const NAME: &str = "provisioner-alpha";

/// A Deployment of somebody else's. Its pod is counted and finds no node.
async fn somebodys(stage: &Stage) -> Deployment {
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("theirs".to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    let map = stage.api::<ConfigMap>().create(&PostParams::default(), &map).await.unwrap();
    let labels = json!({"app": "somebodys"});
    let pod =
        json!({"nodeSelector": {"disk": "none"}, "containers": [{"name": "main", "image": "bed/host:v1"}]});
    let manifest = json!({"apiVersion": "apps/v1", "kind": "Deployment", 
        "metadata": {"name": NAME, "ownerReferences": [map.controller_owner_ref(&()).unwrap()]}, "spec": {
        "replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}}});
    let deployments = stage.api::<Deployment>();
    deployments.patch(NAME, &PatchParams::apply("somebody").force(), &Patch::Apply(manifest)).await.unwrap();
    let is_counted = |it: Option<&Deployment>| {
        it.and_then(|it| it.status.as_ref()).is_some_and(|it| it.replicas == Some(1))
    };
    timeout(LIMIT, await_condition(deployments, NAME, is_counted)).await.unwrap().unwrap().unwrap()
}

#[tokio::test]
async fn a_deployment_of_our_name_that_is_somebody_elses_is_neither_scaled_nor_counted_nor_deleted() {
    let (stage, _proxy) = unlicensed().await;
    let theirs = somebodys(&stage).await;
    let stays = async || {
        let now = stage.api::<Deployment>().get(NAME).await.unwrap();
        assert_eq!((now.uid(), now.metadata.generation), (theirs.uid(), theirs.metadata.generation));
        assert_eq!(now.spec, theirs.spec);
        let managers = now.managed_fields().iter().filter_map(|it| it.manager.as_deref());
        assert!(managers.into_iter().all(|it| it != "coder-operator"), "{now:#?}");
    };
    let counts_nothing = |it: &Value| {
        let replicas = &it["status"]["replicas"];
        assert!(replicas.is_null() || *replicas == 0, "{it:#}");
    };
    // The licence is missing, and the manifest says that the daemons go then.
    let spec = json!({"replicas": 1, "entitlementLossPolicy": "ScaleToZero"});
    stage.apply(&patient("alpha", &spec)).await;
    stage.wait::<CoderProvisioner>("alpha", "gated", is_held_up("NotEntitled")).await;
    counts_nothing(&stage.look_again("CoderProvisioner", "alpha").await);
    stays().await;

    // The licence is there, and the place is taken.
    write_license(&stage, &json!({"feature_set": "premium"})).await;
    let told = stage.wait::<CoderProvisioner>("alpha", "told", is_held_up("NotOurs")).await;
    assert!(says(&told, "DeploymentReady", "False", "NotOurs"), "{told:#}");
    let said = words(&told);
    assert!(said.contains(NAME) && said.contains("belongs to ConfigMap theirs"), "whose it is: {said}");
    counts_nothing(&stage.look_again("CoderProvisioner", "alpha").await);
    stays().await;

    stage.delete("CoderProvisioner", "alpha").await;
    stage.gone(&told).await;
    stays().await;
}
