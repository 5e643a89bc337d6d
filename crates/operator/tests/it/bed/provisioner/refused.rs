//! An object of ours that a policy of the cluster refuses.

use api::CoderProvisioner;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::ServiceAccount,
    rbac::v1::{Role, RoleBinding},
};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use serde_json::{Value, json};

use super::{
    super::{
        ban::Ban,
        licensed,
        operator::writes,
        service_account::OTHERS,
        stage::{Stage, is_held_up, is_ready, says, words},
    },
    keys, provisioner,
    scene::idle,
};

const WORDS: &str = "this namespace has no Roles";
const STAYS: &str = "Deployments of this namespace stay";

fn ban_of_roles(stage: &Stage) -> Ban<'_> {
    let forbidden = json!({"apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"], "resources": ["roles"]});
    Ban { stage, name: format!("no-roles-in-{}", stage.namespace), words: WORDS, forbidden }
}

fn ban_of_deletions(stage: &Stage) -> Ban<'_> {
    let forbidden = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["DELETE"],
        "resources": ["deployments"]});
    Ban { stage, name: format!("no-deletions-in-{}", stage.namespace), words: STAYS, forbidden }
}

/// Whether the API server takes a Role.
async fn takes_roles(stage: &Stage) -> bool {
    let name = Some("asked".to_owned());
    let role = Role { metadata: ObjectMeta { name, ..ObjectMeta::default() }, ..Role::default() };
    let params = PostParams { dry_run: true, ..PostParams::default() };
    stage.api::<Role>().create(&params, &role).await.is_ok()
}

/// Whether the API server would delete that Deployment, or has done so.
async fn deletes(stage: &Stage, deployment: &str) -> bool {
    let params = DeleteParams { dry_run: true, ..DeleteParams::default() };
    match stage.api::<Deployment>().delete(deployment, &params).await {
        Err(kube::Error::Api(status)) => status.code == 404,
        done => done.is_ok(),
    }
}

#[tokio::test]
async fn what_a_policy_refuses_is_told_in_its_words_holds_up_nothing_else_and_comes_when_it_may() {
    let stage = Stage::new(licensed().await).await;
    let ban = ban_of_roles(&stage);
    ban.begin(|| takes_roles(&stage)).await;
    stage.apply(&idle(&json!({}))).await;
    let told = stage.wait::<CoderProvisioner>("alpha", "refused", is_held_up("NotApplied")).await;
    assert!(says(&told, "DeploymentReady", "False", "NotApplied"), "{told:#}");
    assert!(words(&told).contains("Role") && words(&told).contains(WORDS), "{}", words(&told));
    assert!(says(&told, "ProvisionerKeyReady", "True", "ProvisionerKeyReady"), "{told:#}");
    let all = ListParams::default().labels(OTHERS);
    assert_eq!(stage.api::<Role>().list(&all).await.unwrap().items, []);
    let bindings = stage.api::<RoleBinding>().list(&all).await.unwrap().items;
    assert_eq!(bindings, [], "who may not bind everything binds only Roles that exist");
    assert_eq!(stage.api::<Deployment>().list(&all).await.unwrap().items.len(), 1);
    let accounts = stage.api::<ServiceAccount>().list(&all).await.unwrap().items;
    assert!(accounts.iter().any(|it| it.metadata.name.as_deref() != Some("default")), "{accounts:#?}");

    // One try a pass, and no pass but those that are asked for or due.
    let is_try = |it: &Value| it["objectRef"]["resource"] == "roles";
    let is_binding = |it: &Value| it["objectRef"]["resource"] == "rolebindings";
    stage.look_again("CoderProvisioner", "alpha").await;
    let before = writes(&stage.namespace).await.len();
    let since = std::time::Instant::now();
    for _ in 0..4 {
        let still = stage.look_again("CoderProvisioner", "alpha").await;
        assert!(is_held_up("NotApplied")(&still), "{still:#}");
    }
    let due = usize::try_from(since.elapsed().as_secs() / 10).unwrap() + 1;
    let written = writes(&stage.namespace).await.split_off(before);
    let (tries, others): (Vec<_>, Vec<_>) = written.into_iter().partition(is_try);
    let (bindings, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_binding);
    assert_eq!(bindings.len(), tries.len(), "the binding waits for the Role");
    assert!((4..=4 + due).contains(&tries.len()), "{} tries", tries.len());
    assert_eq!(others.len(), 4, "the echo of each annotation and nothing else: {others:#?}");

    ban.end(|| takes_roles(&stage)).await;
    stage.wait::<CoderProvisioner>("alpha", "ready", is_ready).await;
    assert_eq!(stage.api::<Role>().list(&all).await.unwrap().items.len(), 1);
    assert_eq!(stage.api::<RoleBinding>().list(&all).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn deletion_that_a_policy_refuses_is_reported_and_can_be_forced() {
    let stage = Stage::new(licensed().await).await;
    let mut made = Vec::new();
    for name in ["alpha", "beta"] {
        stage.apply(&provisioner(name, &json!({"replicas": 0}))).await;
        made.push(stage.wait::<CoderProvisioner>(name, "ready", is_ready).await);
    }
    let ban = ban_of_deletions(&stage);
    ban.begin(|| deletes(&stage, "provisioner-alpha")).await;
    for name in ["alpha", "beta"] {
        stage.delete("CoderProvisioner", name).await;
        let told = stage.wait::<CoderProvisioner>(name, "refused", is_held_up("NotApplied")).await;
        let deployment = format!("Deployment provisioner-{name} cannot be deleted");
        for part in [deployment.as_str(), STAYS, "coder.com/force-finalize"] {
            assert!(words(&told).contains(part), "{part}: {}", words(&told));
        }
    }
    let mut held = keys(&stage.coderd).await;
    held.sort();
    assert_eq!(held, ["alpha", "beta"], "daemons may use them");

    stage.annotate("CoderProvisioner", "beta", api::annotation::FORCE_FINALIZE, Some("true")).await;
    stage.gone(&made[1]).await;
    assert_eq!(keys(&stage.coderd).await, ["alpha"]);
    let left = stage.left_behind().await;
    assert_eq!(left.len(), 1, "{left:#?}");
    assert!(left[0].starts_with("Deployment provisioner-beta is left behind"), "{left:#?}");
    assert!(left[0].contains(STAYS), "{left:#?}");
    let counted = "coder_operator_left_behind_total{kind=\"CoderProvisioner\"} 1";
    stage.operator.shows("named once", |it| it.contains(counted)).await;

    ban.end(|| deletes(&stage, "provisioner-alpha")).await;
    stage.gone(&made[0]).await;
    assert_eq!(keys(&stage.coderd).await, [""; 0]);
    assert_eq!(stage.left_behind().await, left, "nothing else is left");
}
