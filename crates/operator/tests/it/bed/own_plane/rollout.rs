//! Pods that are replaced, and pods that do not come up.

use api::CoderControlPlane;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

use super::ground::{pods, ready, running, shipped, stage};
use crate::bed::{
    operator::writes,
    stage::{image, is_held_up, is_ready, words},
};

#[tokio::test]
async fn an_upgrade_is_ready_when_its_pods_are_all_that_is_there_and_there_is_no_way_back() {
    let stage = stage().await;
    let mut plane = shipped();
    ready(&stage, &plane).await;
    let old = running(&stage, "main").await;

    let bed = testbed::shared().unwrap();
    let newer = bed.newer_image("bed/coder");
    let version = newer.rsplit(':').next().unwrap();
    plane["spec"]["image"] = json!(newer);
    let watch = stage.watch("CoderControlPlane", "main").await;
    stage.apply(&plane).await;
    let rolls = |it: &Value| is_held_up("Progressing")(it) || is_held_up("RolloutStuck")(it);
    watch.until("on its way", rolls).await;
    let upgraded = stage.wait::<CoderControlPlane>("main", "upgraded", is_ready).await;
    let status = stage.api::<Deployment>().get("main").await.unwrap().status.unwrap();
    assert_eq!((status.updated_replicas, status.replicas), (Some(1), Some(1)), "no pod of before is left");
    let staying =
        pods(&stage, "main").await.into_iter().filter(|it| it.metadata.deletion_timestamp.is_none());
    let images: Vec<_> = staying.map(|it| it.spec.unwrap().containers[0].image.clone().unwrap()).collect();
    assert_eq!(images, [newer.as_str()]);
    assert_eq!(upgraded["status"]["databaseVersion"], version);
    assert_ne!(running(&stage, "main").await, old);

    let (new, written) = (running(&stage, "main").await, writes(&stage.namespace).await.len());
    plane["spec"]["image"] = json!(image("bed/coder"));
    stage.apply(&plane).await;
    let refused = stage.wait::<CoderControlPlane>("main", "refused", is_held_up("DowngradeRefused")).await;
    assert!(words(&refused).contains(version), "{}", words(&refused));
    let still = stage.look_again("CoderControlPlane", "main").await;
    assert!(is_held_up("DowngradeRefused")(&still));
    assert!(still["status"]["operatorAccessReady"] == true, "what belongs to it goes on");
    let last = running(&stage, "main").await;
    assert!(last.iter().all(|it| new.contains(it)), "{new:?} -> {last:?}");
    // A write on a version that is no longer the newest changes nothing.
    let mut written = writes(&stage.namespace).await.split_off(written);
    written.retain(|it| it["responseStatus"]["code"] == 200 || it["responseStatus"]["code"] == 201);
    assert!(written.len() <= 6, "{written:#?}");
}

#[tokio::test]
async fn pods_that_end_again_and_again_or_find_no_node_are_named_with_what_they_say() {
    let stage = stage().await;
    let mut plane = shipped();
    // Something that is no Coder and does not know what to do with its arguments.
    plane["spec"]["image"] = json!(image("bed/host"));
    stage.apply(&plane).await;
    let ends = |it: &Value| is_held_up("RolloutStuck")(it) && words(it).contains("crash loop");
    let told = stage.wait::<CoderControlPlane>("main", "ending", ends).await;
    let name = pods(&stage, "main").await[0].metadata.name.clone().unwrap();
    assert!(words(&told).contains(&name) && words(&told).contains("exit code "), "{}", words(&told));

    plane["spec"]["nodeSelector"] = json!({"disk": "none"});
    stage.apply(&plane).await;
    let fits_nowhere =
        |it: &Value| is_held_up("RolloutStuck")(it) && words(it).contains("cannot be scheduled");
    let told = stage.wait::<CoderControlPlane>("main", "without a node", fits_nowhere).await;
    assert!(words(&told).contains("0/1 nodes are available"), "{}", words(&told));
    // The pod of before goes on ending, and that is not said any more: what it says is not of the current form.
    stage.look_again("CoderControlPlane", "main").await;
    let before = writes(&stage.namespace).await.len();
    for _ in 0..3 {
        stage.look_again("CoderControlPlane", "main").await;
    }
    let written = writes(&stage.namespace).await.split_off(before);
    assert_eq!(written.len(), 3, "the echo of each annotation and nothing else: {written:#?}");

    plane["spec"].as_object_mut().unwrap().remove("nodeSelector");
    plane["spec"]["image"] = json!(image("bed/coder"));
    stage.apply(&plane).await;
    stage.wait::<CoderControlPlane>("main", "ready", is_ready).await;
}
