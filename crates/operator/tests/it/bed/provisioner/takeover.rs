//! A provisioner that coder-k8s has made: its key, its Secret and its objects are gone on with.

use api::CoderProvisioner;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::Deployment,
        core::v1::{Pod, Secret, ServiceAccount},
        rbac::v1::{Role, RoleBinding},
    },
};
use kube::{
    Resource, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use reqwest::Method;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    super::{
        get, licensed,
        stage::{LIMIT, Stage, image, is_ready, says},
    },
    KEYS, keys, provisioner,
};

const MANAGER: &str = "coder-k8s";
const TAGS_HASH: &str = "811c9dc5";

/// Makes an object as coder-k8s does, and gives back its uid.
async fn create<K>(stage: &Stage, object: &Value) -> String
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(object.clone()).unwrap();
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    stage.api::<K>().create(&params, &object).await.unwrap().uid().unwrap()
}

/// FNV-1a, 32 bits, as coder-k8s marks the value on the pods.
fn checksum(value: &str) -> String {
    let hash =
        value.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

/// The objects of `alpha` with this value in the Secret. Their uids: Secret, account, role, binding, Deployment.
async fn objects(stage: &Stage, owner: &Value, value: &str) -> [String; 5] {
    let labels = json!({"app.kubernetes.io/name": "coder-provisioner", "app.kubernetes.io/instance": "alpha",
        "app.kubernetes.io/managed-by": "coder-k8s"});
    let owner = json!([{"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "name": "alpha",
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}]);
    let metadata = |name: &str| json!({"name": name, "labels": labels, "ownerReferences": owner});
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let secret = json!({"metadata": metadata("alpha-provisioner-key"), "type": "Opaque", "stringData": {"key": value}});
    let role = json!({"metadata": metadata("provisioner-alpha"),
        "rules": [{"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims"], "verbs": verbs}]});
    let binding = json!({"metadata": metadata("provisioner-alpha"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "provisioner-alpha"},
        "subjects": [{"kind": "ServiceAccount", "name": "alpha-provisioner", "namespace": stage.namespace}]});
    let key = json!({"secretKeyRef": {"name": "alpha-provisioner-key", "key": "key"}});
    let container = json!({"name": "provisioner", "image": image("bed/coder"), "command": ["coder"],
        "args": ["provisioner", "start"], "resources": {}, "env": [{"name": "CODER_URL", "value": stage.coderd.owner.url},
            {"name": "CODER_PROVISIONER_DAEMON_KEY", "valueFrom": key}]});
    let deployment = json!({"metadata": metadata("provisioner-alpha"), "spec": {"replicas": 1,
        "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels, "annotations": {"checksum/provisioner-key": checksum(value)}},
            "spec": {"serviceAccountName": "alpha-provisioner", "terminationGracePeriodSeconds": 5,
                "containers": [container]}}}});
    [
        create::<Secret>(stage, &secret).await,
        create::<ServiceAccount>(stage, &json!({"metadata": metadata("alpha-provisioner")})).await,
        create::<Role>(stage, &role).await,
        create::<RoleBinding>(stage, &binding).await,
        create::<Deployment>(stage, &deployment).await,
    ]
}

/// The uids as they are now, in the same order.
async fn uids(stage: &Stage) -> [String; 5] {
    [
        stage.api::<Secret>().get("alpha-provisioner-key").await.unwrap().uid().unwrap(),
        stage.api::<ServiceAccount>().get("alpha-provisioner").await.unwrap().uid().unwrap(),
        stage.api::<Role>().get("provisioner-alpha").await.unwrap().uid().unwrap(),
        stage.api::<RoleBinding>().get("provisioner-alpha").await.unwrap().uid().unwrap(),
        stage.api::<Deployment>().get("provisioner-alpha").await.unwrap().uid().unwrap(),
    ]
}

async fn value(stage: &Stage) -> String {
    let secret = stage.api::<Secret>().get("alpha-provisioner-key").await.unwrap();
    String::from_utf8(secret.data.unwrap()["key"].0.clone()).unwrap()
}

#[tokio::test]
async fn a_provisioner_of_coder_k8s_is_gone_on_with_its_key_its_secret_and_its_objects() {
    let stage = Stage::new(licensed().await).await;
    // Suspended until everything is as that operator leaves it.
    let mut manifest = provisioner("alpha", &json!({"suspend": true, "interval": "1h"}));
    manifest["metadata"]["finalizers"] = json!([api::finalizer::PROVISIONER]);
    stage.apply(&manifest).await;
    let suspended = |it: &Value| says(it, "Ready", "Unknown", "Suspended");
    let waits = stage.wait::<CoderProvisioner>("alpha", "suspended", suspended).await;
    let (status, made) =
        stage.coderd.owner.request(Method::POST, KEYS, Some(&json!({"name": "alpha"}))).await.unwrap();
    assert_eq!(status, 201, "{made}");
    let given = made["key"].as_str().unwrap();
    let before = objects(&stage, &waits, given).await;
    let key = get(&stage.coderd, KEYS).await[0].clone();
    let recorded = json!({"status": {"organizationID": key["organization"], "organizationName": "default",
        "provisionerKeyID": key["id"], "provisionerKeyName": "alpha", "tagsHash": TAGS_HASH,
        "controlPlaneRefName": "main", "controlPlaneURL": stage.coderd.owner.url, "phase": "Ready",
        "readyReplicas": 1, "secretRef": {"name": "alpha-provisioner-key", "key": "key"}}});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    stage.kind("CoderProvisioner").patch_status("alpha", &params, &Patch::Merge(recorded)).await.unwrap();
    let deployments = stage.api::<Deployment>();
    let runs = |it: Option<&Deployment>| {
        it.and_then(|it| it.status.as_ref()?.available_replicas).is_some_and(|it| it == 1)
    };
    timeout(LIMIT, await_condition(deployments.clone(), "provisioner-alpha", runs)).await.unwrap().unwrap();

    stage.apply(&provisioner("alpha", &json!({"interval": "1h"}))).await;
    let taken = stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    assert_eq!(uids(&stage).await, before);
    assert_eq!(value(&stage).await, given);
    assert_eq!(get(&stage.coderd, KEYS).await[0]["id"], key["id"], "not rotated");
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);
    let rolled = deployments.get("provisioner-alpha").await.unwrap();
    let revision = rolled.annotations()["deployment.kubernetes.io/revision"].parse::<i32>().unwrap();
    assert!(revision <= 2, "the pods roll once at most, for the hardening: {revision}");
    let pod = rolled.spec.unwrap().template.spec.unwrap();
    assert_eq!(pod.security_context.unwrap().run_as_non_root, Some(true));
    let status = &taken["status"];
    assert_eq!((&status["provisionerKeyID"], &status["tagsHash"]), (&key["id"], &json!(TAGS_HASH)));
    assert!(status["deploymentID"].is_string() && status["selector"].is_string(), "{taken:#}");
    assert_eq!((&status["replicas"], &status["daemons"]), (&json!(1), &json!(1)));

    // Nothing more happens to it, and its key goes with it.
    stage.look_again("CoderProvisioner", "alpha").await;
    assert_eq!(uids(&stage).await, before);
    stage.delete("CoderProvisioner", "alpha").await;
    stage.gone(&taken).await;
    assert_eq!(keys(&stage.coderd).await, [""; 0]);
    let ours = ListParams::default().labels("app.kubernetes.io/instance=alpha");
    assert!(stage.api::<Pod>().list(&ours).await.unwrap().items.is_empty());
}
