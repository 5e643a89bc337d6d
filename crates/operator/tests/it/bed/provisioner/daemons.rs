//! The objects of a provisioner: only ours are touched, ours are mended, and what others add stays.

use api::{CoderControlPlane, CoderProvisioner};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::Deployment,
        core::v1::{Pod, ServiceAccount},
        rbac::v1::{Role, RoleBinding},
    },
};
use kube::{
    Resource, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    super::{
        licensed,
        operator::writes,
        stage::{LIMIT, Stage, is_held_up, is_ready, says, words},
    },
    gate::patient,
    keys, provisioner,
};

/// Makes something that is somebody else's.
async fn theirs<K>(stage: &Stage, object: &Value) -> K
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let object: K = serde_json::from_value(object.clone()).unwrap();
    stage.api::<K>().create(&PostParams::default(), &object).await.unwrap()
}

/// Whether it is as it was.
async fn is_untouched<K>(stage: &Stage, before: &K) -> bool
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let now = stage.api::<K>().get(&before.name_any()).await.unwrap();
    now.uid() == before.uid() && now.owner_references().is_empty() && now.labels() == before.labels()
}

#[tokio::test]
async fn what_is_somebody_elses_is_left_alone_and_named() {
    let stage = Stage::new(licensed().await).await;
    let account: ServiceAccount =
        theirs(&stage, &json!({"metadata": {"name": "account-provisioner", "labels": {"team": "a"}}})).await;
    let role: Role = theirs(
        &stage,
        &json!({"metadata": {"name": "provisioner-role", "labels": {"team": "a"}}, "rules": []}),
    )
    .await;
    let labels = json!({"app": "theirs"});
    let pod = json!({"metadata": {"labels": labels},
        "spec": {"containers": [{"name": "a", "image": "bed/host", "command": ["sleep", "1000"]}]}});
    let deployment: Deployment = theirs(
        &stage,
        &json!({"metadata": {"name": "provisioner-deployment", "labels": {"team": "a"}},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod}}),
    )
    .await;
    for name in ["account", "role", "deployment"] {
        stage.apply(&patient(name, &json!({}))).await;
    }
    for (name, object) in [
        ("account", "account-provisioner"),
        ("role", "provisioner-role"),
        ("deployment", "provisioner-deployment"),
    ] {
        let held = stage.wait::<CoderProvisioner>(name, "refused", is_held_up("NotOurs")).await;
        assert!(says(&held, "DeploymentReady", "False", "NotOurs"), "{held:#}");
        assert!(says(&held, "Stalled", "True", "NotOurs"), "{held:#}");
        assert!(words(&held).contains(object), "{held:#}");
    }
    assert!(is_untouched(&stage, &account).await, "the account");
    assert!(is_untouched(&stage, &role).await, "the role");
    assert!(is_untouched(&stage, &deployment).await, "the Deployment");
    let daemons = stage.api::<Deployment>().get_opt("provisioner-account").await.unwrap();
    assert!(daemons.is_none(), "daemons do not run as somebody else's account unless somebody says so");
    // With the object out of the way it goes on, and a deletion takes nothing of theirs.
    stage.delete("CoderProvisioner", "role").await;
    stage.delete("CoderProvisioner", "deployment").await;
    stage.api::<ServiceAccount>().delete("account-provisioner", &DeleteParams::default()).await.unwrap();
    stage.look_again("CoderProvisioner", "account").await;
    stage.wait::<CoderProvisioner>("account", "ready", is_ready).await;
    assert!(is_untouched(&stage, &deployment).await, "the Deployment, after the end");
}

#[tokio::test]
async fn what_is_ours_is_mended_and_what_others_add_stays() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&patient("alpha", &json!({}))).await;
    stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    let deployments = stage.api::<Deployment>();
    let by_hand = json!({"metadata": {"annotations": {"team": "platform"}},
        "spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}},
            "spec": {"terminationGracePeriodSeconds": 1}}}});
    let name = "provisioner-alpha";
    deployments.patch(name, &PatchParams::default(), &Patch::Merge(by_hand)).await.unwrap();
    let is_mended = |it: Option<&Deployment>| {
        let pod = it.and_then(|it| it.spec.as_ref()?.template.spec.as_ref());
        pod.is_some_and(|it| it.termination_grace_period_seconds == Some(5))
    };
    let mended = timeout(LIMIT, await_condition(deployments.clone(), name, is_mended)).await;
    let mended = mended.unwrap().unwrap().unwrap();
    assert_eq!(mended.annotations()["team"], "platform");
    let restarted = mended.spec.unwrap().template.metadata.unwrap().annotations.unwrap();
    assert_eq!(restarted["kubectl.kubernetes.io/restartedAt"], "now", "a restart by hand is not undone");

    let bindings = stage.api::<RoleBinding>();
    let before = bindings.get(name).await.unwrap();
    bindings.delete(name, &DeleteParams::default()).await.unwrap();
    let is_new = |it: Option<&RoleBinding>| it.is_some_and(|it| it.uid() != before.uid());
    timeout(LIMIT, await_condition(bindings.clone(), name, is_new)).await.unwrap().unwrap();
    let roles = stage.api::<Role>();
    let more = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    roles.patch(name, &PatchParams::default(), &Patch::Merge(more)).await.unwrap();
    let is_narrow = |it: Option<&Role>| {
        it.and_then(|it| it.rules.as_ref()).is_some_and(|it| it.len() == 1 && it[0].verbs != ["*"])
    };
    timeout(LIMIT, await_condition(roles, name, is_narrow)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_number_of_daemons_can_be_set_from_outside_and_a_suspended_one_is_left_as_it_is() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&patient("alpha", &json!({}))).await;
    stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    let provisioners = stage.api::<CoderProvisioner>();
    let one = json!({"spec": {"replicas": 1}});
    provisioners.patch_scale("alpha", &PatchParams::default(), &Patch::Merge(one)).await.unwrap();
    stage
        .wait::<CoderProvisioner>("alpha", "with a daemon", |it| {
            is_ready(it) && it["status"]["replicas"] == 1 && it["status"]["daemons"] == 1
        })
        .await;
    let scale = provisioners.get_scale("alpha").await.unwrap();
    let status = scale.status.unwrap();
    assert_eq!(status.replicas, 1);
    assert!(status.selector.unwrap().contains("app.kubernetes.io/instance=alpha"));

    let still = json!({"suspend": true, "replicas": 0, "tags": {"site": "other"}});
    stage.apply(&patient("alpha", &still)).await;
    let held = stage
        .wait::<CoderProvisioner>("alpha", "suspended", |it| {
            says(it, "Ready", "Unknown", "Suspended")
                && it["status"]["observedGeneration"] == it["metadata"]["generation"]
        })
        .await;
    assert!(says(&held, "DaemonsConnected", "Unknown", "NotObserved"), "{held:#}");
    let before = writes(&stage.namespace).await.len();
    stage.annotate("CoderProvisioner", "alpha", "somebody", Some("was here")).await;
    let deployment = stage.api::<Deployment>().get("provisioner-alpha").await.unwrap();
    assert_eq!(deployment.spec.unwrap().replicas, Some(1));
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);
    assert_eq!(writes(&stage.namespace).await.len(), before);
}

#[tokio::test]
async fn daemons_that_are_newer_than_coderd_wait_for_it() {
    let stage = Stage::new(licensed().await).await;
    let plane = stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
    let version = plane["status"]["version"].as_str().unwrap().to_owned();
    stage.apply(&patient("alpha", &json!({"image": "bed/coder:v99.0.0"}))).await;
    let held = stage.wait::<CoderProvisioner>("alpha", "held up", is_held_up("ControlPlaneNotReady")).await;
    assert!(words(&held).contains("v99.0.0") && words(&held).contains(&version), "{held:#}");
    assert!(says(&held, "ProvisionerKeyReady", "True", "ProvisionerKeyReady"), "{held:#}");
    assert!(stage.api::<Deployment>().get_opt("provisioner-alpha").await.unwrap().is_none());
    stage.apply(&patient("alpha", &json!({}))).await;
    let before = stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;

    // One that is there keeps its image, and gets everything else: the next key above all.
    let image = async || {
        let deployment = stage.api::<Deployment>().get("provisioner-alpha").await.unwrap();
        deployment.spec.unwrap().template.spec.unwrap().containers[0].image.clone()
    };
    let had = image().await;
    let spec = json!({"image": "bed/coder:v99.0.0", "tags": {"cluster": "other"}});
    stage.apply(&patient("alpha", &spec)).await;
    let has_turned = |it: &Value| {
        is_held_up("ControlPlaneNotReady")(it)
            && it["status"]["provisionerKeyID"] != before["status"]["provisionerKeyID"]
            && it["status"]["retiringKeys"].is_null()
    };
    stage.wait::<CoderProvisioner>("alpha", "on its next key", has_turned).await;
    assert_eq!((image().await, keys(&stage.coderd).await.len()), (had, 1));
}

#[tokio::test]
async fn a_daemon_whose_pod_is_on_its_way_out_does_not_stand_in_for_the_next_one() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&provisioner("alpha", &json!({}))).await;
    stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    let pods = stage.api::<Pod>();
    let labels = ListParams::default().labels("app.kubernetes.io/instance=alpha");
    let pod = pods.list(&labels).await.unwrap().items.remove(0).name_any();
    // It takes as long as a build may take, and coderd has seen its daemon a moment ago.
    let holding = |finalizers: Value| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let params = PatchParams::default();
    pods.patch(&pod, &params, &holding(json!(["test.coder.com/build"]))).await.unwrap();
    // Nobody answers where the next one asks.
    let lost = json!({"extraEnv": [{"name": "CODER_URL", "value": "http://127.0.0.1:1"}]});
    stage.apply(&provisioner("alpha", &lost)).await;
    let is_unseen = |it: &Value| says(it, "DaemonsConnected", "False", "DaemonsNotSeen");
    let unseen = stage.wait::<CoderProvisioner>("alpha", "without daemons", is_unseen).await;
    assert!(!is_ready(&unseen), "{unseen:#}");
    let old = pods.get(&pod).await.unwrap();
    assert!(old.metadata.deletion_timestamp.is_some(), "the old pod is still there");
    pods.patch(&pod, &params, &holding(Value::Null)).await.unwrap();
}
