//! Daemons of a Coder whose certificate is vouched for by an authority that only its users know.

use api::CoderProvisioner;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Secret},
};
use kube::{
    api::{DeleteParams, ListParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    super::{
        get, licensed,
        stage::{LIMIT, Stage, eventually, is_held_up, is_ready, plane, says, words},
        tls::{authority, tunnel},
    },
    keys, provisioner,
};

const DEPLOYMENT: &str = "provisioner-alpha";

/// The provisioner `alpha` behind an authority of which that Secret knows.
async fn behind(authority: &str, coderd: testbed::Coderd, url: &str) -> Stage {
    let stage = Stage::bare(coderd).await;
    stage.write_token(&stage.coderd.owner.token).await;
    trust(&stage, authority).await;
    let mut trusting = plane("main", url);
    trusting["spec"]["external"]["caSecretRef"] = json!({"name": "corporate-ca"});
    stage.apply(&trusting).await;
    stage.apply(&provisioner("alpha", &json!({}))).await;
    stage
}

async fn trust(stage: &Stage, authority: &str) {
    stage.write_secret("corporate-ca", &json!({"ca.crt": authority, "ca.key": "nobody else's"})).await;
}

async fn deployment(stage: &Stage) -> Deployment {
    stage.api::<Deployment>().get(DEPLOYMENT).await.unwrap()
}

/// The pods that are to stay.
async fn staying(stage: &Stage) -> Vec<String> {
    let daemons = ListParams::default().labels("app.kubernetes.io/instance=alpha");
    let pods = stage.api::<Pod>().list(&daemons).await.unwrap().items;
    let staying = pods.iter().filter(|it| it.metadata.deletion_timestamp.is_none());
    staying.map(kube::ResourceExt::name_any).collect()
}

/// The daemons that coderd has seen.
async fn seen(stage: &Stage) -> Vec<String> {
    let daemons = get(&stage.coderd, "/api/v2/organizations/default/provisionerdaemons").await;
    daemons.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn daemons_trust_the_authority_of_their_coder_and_roll_with_it_on_the_same_key() {
    let coderd = licensed().await;
    let (ours, next) = (authority(), authority());
    let url = tunnel(&coderd.owner.url, &ours).await;
    let stage = behind(&ours.pem(), coderd, &url).await;
    let made = stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    assert!(says(&made, "DaemonsConnected", "True", "DaemonsConnected"), "{made:#}");
    let first = deployment(&stage).await;
    let pod = first.spec.clone().unwrap().template.spec.unwrap();
    let mounted = pod.volumes.unwrap().into_iter().find_map(|it| it.secret).unwrap();
    assert_eq!(mounted.secret_name.as_deref(), Some("corporate-ca"));
    let items: Vec<String> = mounted.items.unwrap().into_iter().map(|it| it.key).collect();
    assert_eq!(items, ["ca.crt"], "nothing else of that Secret");
    let pods = staying(&stage).await;
    assert_eq!(seen(&stage).await, pods);

    // The next authority is trusted beside this one before it takes over.
    trust(&stage, &format!("{}{}", ours.pem(), next.pem())).await;
    let rolls =
        |it: Option<&Deployment>| it.is_some_and(|it| it.metadata.generation > first.metadata.generation);
    let rolled = timeout(LIMIT, await_condition(stage.api::<Deployment>(), DEPLOYMENT, rolls)).await;
    rolled.unwrap().unwrap();
    stage.look_again("CoderProvisioner", "alpha").await;
    let turned = stage.wait::<CoderProvisioner>("alpha", "ready again", is_ready).await;
    let others = staying(&stage).await;
    assert_ne!(others, pods, "the pods read it when they start");
    // A pod counts as ready when its process runs, and its daemon says hello a moment later.
    let all = |seen: &Vec<String>| others.iter().all(|it| seen.contains(it));
    eventually("connected", || seen(&stage), all).await;
    for field in ["provisionerKeyID", "provisionerKeyName"] {
        assert_eq!(turned["status"][field], made["status"][field]);
    }
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);
}

#[tokio::test]
async fn daemons_stay_as_they_are_while_the_secret_of_their_authority_is_missing() {
    let coderd = licensed().await;
    let ours = authority();
    let url = tunnel(&coderd.owner.url, &ours).await;
    let stage = behind(&ours.pem(), coderd, &url).await;
    let made = stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    let (before, pods) = (deployment(&stage).await, staying(&stage).await);

    stage.api::<Secret>().delete("corporate-ca", &DeleteParams::default()).await.unwrap();
    let is_told =
        |it: &Value| is_held_up("OperatorAccessNotReady")(it) && words(it).contains("SecretNotFound");
    stage.wait::<CoderProvisioner>("alpha", "told", is_told).await;
    stage.apply(&provisioner("alpha", &json!({"podAnnotations": {"changed": "meanwhile"}}))).await;
    let told = stage.wait::<CoderProvisioner>("alpha", "told", is_told).await;
    assert!(says(&told, "DaemonsConnected", "Unknown", "NotObserved"), "{told:#}");
    stage.look_again("CoderProvisioner", "alpha").await;
    assert_eq!(deployment(&stage).await.metadata.generation, before.metadata.generation);
    assert_eq!(staying(&stage).await, pods);
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);

    trust(&stage, &ours.pem()).await;
    let mended = stage.wait::<CoderProvisioner>("alpha", "ready again", is_ready).await;
    assert_eq!(mended["status"]["provisionerKeyID"], made["status"]["provisionerKeyID"]);
    let annotations = deployment(&stage).await.spec.unwrap().template.metadata.unwrap().annotations;
    assert_eq!(annotations.unwrap()["changed"], "meanwhile");
}
