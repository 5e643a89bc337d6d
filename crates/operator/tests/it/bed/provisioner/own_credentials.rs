//! A provisioner that brings its own credentials: they go to the deployment that its control plane knows and to no other, and
//! not past a person who has stopped that control plane.

use std::time::{Duration, Instant};

use api::{CoderControlPlane, CoderProvisioner, annotation};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    super::{
        licensed,
        operator::Operator,
        proxy::Proxy,
        stage::{CREDENTIALS, LIMIT, Stage, is_held_up, is_ready, plane, says, words},
    },
    gate::{patient, somebody},
    scene::listed,
};

/// Asks for another key, which has to be minted.
async fn ask_for_rotation(stage: &Stage) {
    let now = uuid::Uuid::new_v4().to_string();
    stage.annotate("CoderProvisioner", "own", annotation::ROTATE_REQUESTED_AT, Some(&now)).await;
}

/// Waits until there is another key than that one, and gives it.
async fn rotated(stage: &Stage, before: &Value) -> Value {
    let is_another = |it: &Value| {
        let key = &it["status"]["provisionerKeyID"];
        is_ready(it) && key.is_string() && key != before && it["status"]["retiringKeys"].is_null()
    };
    let now = stage.wait::<CoderProvisioner>("own", "rotated", is_another).await;
    now["status"]["provisionerKeyID"].clone()
}

/// Asks the provisioner until it has noticed: what was read of a deployment before is good for a few seconds.
async fn noticed(stage: &Stage) -> Value {
    let since = Instant::now();
    loop {
        let looked = stage.look_again("CoderProvisioner", "own").await;
        if says(&looked, "BootstrapSecretReady", "False", "DeploymentChanged") {
            return looked;
        }
        assert!(since.elapsed() < LIMIT, "nobody notices: {looked:#}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// From when on it could be known who answers: no token of anybody's, no key, nothing but what anybody may ask.
fn is_all_anonymous(proxy: &Proxy, since: usize) {
    let mut requests = proxy.requests().split_off(since);
    let known = requests.iter().position(|it| it.path.ends_with("/buildinfo")).expect("nobody has looked");
    for it in requests.split_off(known) {
        let told = format!("{} {}", it.method, it.path);
        assert!(it.token.is_none() && it.key.is_none(), "a secret was shown to another deployment: {told}");
        assert_eq!(it.method, Method::GET, "{told}");
    }
}

#[tokio::test]
async fn credentials_of_ones_own_are_shown_to_no_other_deployment_and_do_not_go_past_a_person() {
    let (coderd, other) = tokio::join!(licensed(), licensed());
    let proxy = Proxy::start(&coderd.owner.url).await;
    let mut stage = Stage::bare(coderd).await;
    stage.write_token(&stage.coderd.owner.token).await;
    // By the clock nobody looks at it in time.
    let mut main = plane("main", &proxy.url);
    main["spec"]["interval"] = json!("1h");
    stage.apply(&main).await;
    let token = somebody(&stage, "somebody").await;
    stage.write_secret("mine", &json!({"token": token})).await;
    stage.apply(&patient("own", &json!({"bootstrap": {"credentialsSecretRef": {"name": "mine"}}}))).await;
    let first = rotated(&stage, &Value::Null).await;

    // Another deployment answers, and only the provisioner can notice.
    proxy.turn_to(&other.owner.url);
    let since = proxy.requests().len();
    noticed(&stage).await;
    ask_for_rotation(&stage).await;
    let told = noticed(&stage).await;
    assert_eq!(told["status"]["provisionerKeyID"], first, "what is known of the key stays");
    // Its control plane has noticed too, and nobody is asked any more.
    stage.look_again("CoderControlPlane", "main").await;
    stage.wait::<CoderControlPlane>("main", "another one", is_held_up("DeploymentChanged")).await;
    let told = stage.look_again("CoderProvisioner", "own").await;
    assert!(is_held_up("ControlPlaneNotReady")(&told), "{told:#}");
    assert!(words(&told).contains("DeploymentChanged"), "{}", words(&told));
    // Whoever begins anew knows it from the status, also when the control plane has no credentials of its own any more.
    stage.operator.process.kill().unwrap();
    stage.operator.ended().await;
    stage.api::<Secret>().delete(CREDENTIALS, &DeleteParams::default()).await.unwrap();
    stage.operator = Operator::start(&stage.namespace, &[]);
    stage.wait::<CoderControlPlane>("main", "without credentials", is_held_up("SecretNotFound")).await;
    let told = noticed(&stage).await;
    assert!(words(&told).contains("another deployment answers at"), "{}", words(&told));
    is_all_anonymous(&proxy, since);
    assert_eq!(listed(&other, "default").await, [Value::Null; 0]);

    // It is back, and a person has stopped its control plane.
    proxy.turn_to(&stage.coderd.owner.url);
    stage.write_token(&stage.coderd.owner.token).await;
    main["spec"]["suspend"] = json!(true);
    stage.apply(&main).await;
    let is_stopped = |it: &Value| it["status"]["observedGeneration"] == it["metadata"]["generation"];
    let stopped = stage.wait::<CoderControlPlane>("main", "stopped", is_stopped).await;
    assert!(stopped["status"].to_string().contains("Suspended"), "{stopped:#}");
    let writes = proxy.writes().len();
    let told = stage.look_again("CoderProvisioner", "own").await;
    assert!(is_held_up("ControlPlaneNotReady")(&told) && words(&told).contains("Suspended"), "{told:#}");
    assert_eq!(proxy.writes().split_off(writes), [""; 0]);
    main["spec"]["suspend"] = json!(false);
    stage.apply(&main).await;
    rotated(&stage, &first).await;
    let requests = proxy.requests().split_off(since);
    let mut minted = requests.iter().filter(|it| it.method == Method::POST);
    assert!(minted.all(|it| it.token.as_deref() == Some(token.as_str())));
}
