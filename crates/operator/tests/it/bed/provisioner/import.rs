//! What daemons are for: a job with the provisioner's tags is done by a daemon on the provisioner's key.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    super::{get, stage::LIMIT},
    provisioner,
    scene::{Scene, is_settled},
};

#[tokio::test]
async fn a_template_is_imported_by_a_daemon_on_the_key_of_the_provisioner() {
    let scene = Scene::new().await;
    let tags = json!({"site": "bed"});
    scene.stage.apply(&provisioner("alpha", &json!({"tags": tags}))).await;
    scene.wait("ready", is_settled).await;
    let key = scene.held().await;
    let owner = &scene.stage.coderd.owner;
    let version = owner.start_import("default", &tags).await.unwrap();
    let since = Instant::now();
    let job = loop {
        if let Some(job) = owner.ended_import(&version).await.unwrap() {
            break job;
        }
        assert!(since.elapsed() < LIMIT, "the import did not end\n{:#?}", scene.stage.operator.said());
        sleep(Duration::from_millis(250)).await;
    };
    assert_eq!(job["status"], "succeeded", "{job}");
    let daemons = get(&scene.stage.coderd, "/api/v2/organizations/default/provisionerdaemons").await;
    let worker = daemons.as_array().unwrap().iter().find(|it| it["id"] == job["worker_id"]).unwrap();
    assert_eq!(worker["key_id"], key.id);
    assert!(worker["name"].as_str().unwrap().starts_with("provisioner-alpha-"), "{worker}");
    let built =
        daemons.as_array().unwrap().iter().filter(|it| it["key_name"] == key.name).collect::<Vec<&Value>>();
    assert_eq!(built.len(), 1, "{daemons}");
}
