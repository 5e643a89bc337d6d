//! Daemons beside a Coder of ours: they come with it from one apply, and leave no key whichever of the two goes first.

use api::{CoderControlPlane, CoderProvisioner};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Secret},
};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};

use super::ground::{Ground, TOKEN_SECRET, ask, give_licence, license, licensed, pods, stage};
use crate::bed::{
    provisioner::provisioner,
    stage::{eventually, is_held_up, is_ready, says, words},
};

/// The keys that somebody made: Coder has three of its own.
const KEYS: &str = "select name from provisioner_keys where name not in ('built-in', 'user-auth', 'psk')";
/// Sessions and tokens of people.
const OF_PEOPLE: &str =
    "select count(*) from api_keys where user_id in (select id from users where username = 'owner')";

/// The daemons `alpha`, without a word about their image.
fn daemons() -> Value {
    let mut manifest = provisioner("alpha", &json!({}));
    manifest["spec"].as_object_mut().unwrap().remove("image");
    manifest
}

/// Both from one apply. Gives the control plane and the provisioner.
async fn both(stage: &Ground) -> (Value, Value) {
    stage.apply(&daemons()).await;
    stage.apply(&licensed()).await;
    license(stage).await;
    let daemons = stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    (stage.wait::<CoderControlPlane>("main", "ready", is_ready).await, daemons)
}

/// What there is in the namespace that neither the test nor the cluster has put there.
async fn left(stage: &Ground) -> Vec<String> {
    let of_others = [
        "default",
        "kube-root-ca.crt",
        "coder-db",
        "coder-first-user",
        "coder-license",
        "coder-operator",
        "coder-operator-leader-election",
    ];
    let mut left = Vec::new();
    for (group, kind) in [
        ("", "Secret"),
        ("", "ConfigMap"),
        ("", "Service"),
        ("", "ServiceAccount"),
        ("", "Pod"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("batch", "Job"),
        ("rbac.authorization.k8s.io", "Role"),
        ("rbac.authorization.k8s.io", "RoleBinding"),
    ] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let objects =
            Api::<DynamicObject>::namespaced_with(stage.client.clone(), &stage.namespace, &resource);
        let names = objects.list(&ListParams::default()).await.unwrap().items;
        let names = names.iter().map(kube::ResourceExt::name_any);
        left.extend(names.filter(|it| !of_others.contains(&it.as_str())).map(|it| format!("{kind} {it}")));
    }
    left
}

#[tokio::test]
async fn one_apply_brings_a_coder_and_daemons_of_its_image_that_it_sees() {
    let stage = stage().await;
    let (_, made) = both(&stage).await;
    assert!(says(&made, "DaemonsConnected", "True", "DaemonsConnected"), "{made:#}");
    assert!(says(&made, "OperatorAccessReady", "True", "OperatorAccessReady"), "{made:#}");
    assert_eq!(made["status"]["daemons"], 1);
    let deployment = stage.api::<Deployment>().get("provisioner-alpha").await.unwrap();
    let container = deployment.spec.unwrap().template.spec.unwrap().containers.remove(0);
    assert_eq!(container.image.as_deref(), licensed()["spec"]["image"].as_str());
    let url = container.env.unwrap().into_iter().find(|it| it.name == "CODER_URL").unwrap();
    let service = format!("http://main.{}.svc.cluster.local", stage.namespace);
    assert_eq!(url.value, Some(service));
    assert_eq!(ask(&stage, KEYS).await, "alpha");
    assert_eq!(ask(&stage, OF_PEOPLE).await, "0", "nobody but the operator's own account is signed in");
}

#[tokio::test]
async fn daemons_go_neither_ahead_of_their_coder_nor_where_it_does_not_go() {
    let stage = stage().await;
    both(&stage).await;
    let deployment = async || stage.api::<Deployment>().get("provisioner-alpha").await.unwrap();
    let before = deployment().await.metadata.generation;
    let held = |image: &str| {
        let image = image.to_owned();
        move |it: &Value| is_held_up("ControlPlaneNotReady")(it) && words(it).contains(&image)
    };
    let mut plane = licensed();
    let older = "bed/coder-licensed:v2.30.0";
    plane["spec"]["image"] = json!(older);
    stage.apply(&plane).await;
    stage.wait::<CoderProvisioner>("alpha", "held back", held(older)).await;

    // By its image it is newer; the build in it is that of before, and so it never is.
    let newer = testbed::shared().unwrap().newer_image("bed/coder-licensed");
    plane["spec"]["image"] = json!(newer);
    stage.apply(&plane).await;
    let has_it = |it: &Vec<Pod>| {
        it.len() == 1 && it[0].spec.as_ref().unwrap().containers[0].image.as_deref() == Some(newer.as_str())
    };
    eventually("upgraded", || pods(&stage, "main"), has_it).await;
    // It takes licences that it signed itself, and only those.
    give_licence(&stage).await;
    stage.wait::<CoderProvisioner>("alpha", "waiting", held(&newer)).await;
    assert_eq!(deployment().await.metadata.generation, before, "no daemon was touched");
}

/// What is gone leaves no key in the database, nothing in the namespace, and nothing to be named.
async fn is_over(stage: &Ground, objects: [&Value; 2]) {
    for object in objects {
        stage.gone(object).await;
    }
    // Only Coder takes keys away, and by now it is gone.
    assert_eq!(ask(stage, KEYS).await, "", "{:#?}", stage.operator.said());
    eventually("empty", || left(stage), Vec::is_empty).await;
    let said = stage.operator.said();
    let named: Vec<_> = said.iter().filter(|it| it.to_string().contains("left behind")).collect();
    assert_eq!(named, Vec::<&Value>::new());
}

#[tokio::test]
async fn a_coder_that_is_deleted_before_its_daemons_and_with_every_secret_waits_for_their_key() {
    let stage = stage().await;
    let (plane, daemons) = both(&stage).await;
    stage.delete("CoderControlPlane", "main").await;
    stage.delete("CoderProvisioner", "alpha").await;
    for name in [TOKEN_SECRET, "alpha-provisioner-key", "coder-first-user", "coder-license"] {
        stage.api::<Secret>().delete(name, &DeleteParams::default()).await.unwrap();
    }
    is_over(&stage, [&daemons, &plane]).await;
}

#[tokio::test]
async fn daemons_that_are_deleted_a_moment_before_their_coder_leave_no_key() {
    let stage = stage().await;
    let (plane, daemons) = both(&stage).await;
    assert_eq!(ask(&stage, KEYS).await, "alpha");
    stage.delete("CoderProvisioner", "alpha").await;
    stage.delete("CoderControlPlane", "main").await;
    is_over(&stage, [&daemons, &plane]).await;
}
