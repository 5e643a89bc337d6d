//! Pods that end again and again say why, and not what they were given.

use api::CoderControlPlane;
use serde_json::json;

use super::{
    operator::Operator,
    secrecy,
    stage::{self, Stage, image, is_held_up, words},
};

#[tokio::test]
async fn a_pod_that_crashes_is_quoted_without_what_it_read_from_secrets() {
    let bed = testbed::shared().unwrap();
    let client = bed.client().await.unwrap();
    stage::install(&client).await;
    let namespace = bed.namespace("words").await.unwrap();
    let operator = Operator::start(&namespace, &[]);
    // The coderd of the stage is not used.
    let coderd = bed.coderd(testbed::Flavour::Shipped).await.unwrap();
    let stage = Stage { client, namespace, coderd, operator };
    // Coder repeats a setting that it does not understand, and this one is a secret.
    let (secret, password) = ("open sesame", "swordfish");
    let url = format!("postgres://coder:{password}@127.0.0.1:1/coder");
    stage.write_secret("settings", &json!({"daemons": secret, "url": url})).await;
    let from = |name: &str, key: &str| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": "settings", "key": key}}});
    let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main"},
        "spec": {"image": image("bed/coder"), "replicas": 1, "interval": "10s",
            "extraEnv": [from("CODER_PROVISIONER_DAEMONS", "daemons"), from("CODER_PG_CONNECTION_URL", "url")]}});
    stage.apply(&plane).await;
    let quoted = stage
        .wait::<CoderControlPlane>("main", "quoted", |it| {
            is_held_up("RolloutStuck")(it) && words(it).contains("last log line")
        })
        .await;
    let said = words(&quoted);
    assert!(said.starts_with("pod main-") && said.contains("exit code 1"), "{said}");
    assert!(said.contains("Provisioner Daemons") && said.contains("invalid syntax"), "{said}");
    assert!(said.contains("[redacted]"), "{said}");
    let told = secrecy::told(&stage).await;
    for (what, value) in [("a setting", secret), ("the database's address", &url), ("its password", password)]
    {
        secrecy::hides(&told, what, value.as_bytes());
    }
}
