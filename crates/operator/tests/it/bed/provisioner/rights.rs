//! Rights of workspaces and the daemons' account: made while they are declared, deleted when they are not.

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::ServiceAccount,
        rbac::v1::{Role, RoleBinding},
    },
};
use kube::{Resource, runtime::wait::await_condition};
use serde_json::json;
use tokio::time::timeout;

use super::{
    super::stage::{LIMIT, Stage},
    scene::{Scene, idle},
};

async fn is_gone<K>(stage: &Stage, name: &str)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    let gone = await_condition(stage.api::<K>(), name, |it: Option<&K>| it.is_none());
    timeout(LIMIT, gone).await.unwrap().unwrap();
}

#[tokio::test]
async fn rights_and_account_go_when_they_are_no_longer_declared() {
    let (scene, key) = Scene::with(&json!({})).await;
    let stage = &scene.stage;
    assert!(stage.api::<Role>().get_opt("provisioner-alpha").await.unwrap().is_some());
    stage.apply(&idle(&json!({"serviceAccountName": "daemons"}))).await;
    is_gone::<Role>(stage, "provisioner-alpha").await;
    is_gone::<RoleBinding>(stage, "provisioner-alpha").await;
    is_gone::<ServiceAccount>(stage, "alpha-provisioner").await;
    scene.stays(&key).await;
}
