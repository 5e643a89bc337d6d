//! What happens to keys when their time has come. The clock is that of the machine, so the times that are written down are
//! put back instead.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    super::{
        licensed,
        proxy::Proxy,
        stage::{Stage, is_ready},
    },
    provisioner,
    rotation::turned,
    scene::{Key, SECRET, Scene, idle, is_settled, prove},
};

fn ago(seconds: i64) -> Timestamp {
    let then = Timestamp::now() - SignedDuration::from_secs(seconds);
    Timestamp::from_second(then.as_second()).unwrap()
}

impl Scene {
    /// Changes the record of the keys, in the status and then in the Secret, which is the one that counts.
    async fn put_back(&self, status: &Value, change: impl Fn(&mut Value)) {
        let provisioners = self.stage.kind("CoderProvisioner");
        let patch = Patch::Merge(json!({"status": status}));
        provisioners.patch_status("alpha", &PatchParams::default(), &patch).await.unwrap();
        self.stage.edit_record(SECRET, change).await;
    }

    /// Lets the key be of that time.
    async fn made_at(&self, time: Timestamp) {
        let status = json!({"lastRotationTime": time});
        self.put_back(&status, |record| record["rotatedAt"] = json!(time)).await;
    }

    /// Lets the old key be on its way out since that time.
    async fn retired_at(&self, time: Timestamp) {
        let mut keys = self.status().await["retiringKeys"].clone();
        keys[0]["since"] = json!(time);
        self.put_back(&json!({"retiringKeys": keys}), |record| record["retiring"][0]["since"] = json!(time))
            .await;
    }
}

#[tokio::test]
async fn a_key_gives_way_when_it_is_due_and_not_before_and_once() {
    let coderd = licensed().await;
    let proxy = Proxy::start(&coderd.owner.url).await;
    let scene = Scene::on(Stage::at(coderd, &proxy.url).await).await;
    let spec = json!({"rotation": {"every": "1h"}, "interval": "2h"});
    scene.stage.apply(&provisioner("alpha", &spec)).await;
    let made = scene.wait("made", is_settled).await;
    let first = scene.held().await;
    scene.made_at(ago(3500)).await;
    scene.stays(&first).await;

    // From here on nobody asks: whoever knows when it is due is there in time.
    let due = ago(3590) + SignedDuration::from_hours(1);
    scene.made_at(ago(3590)).await;
    let second = turned(&scene, "due", &made["status"]["provisionerKeyID"]).await;
    let at: Timestamp = second["lastRotationTime"].as_str().unwrap().parse().unwrap();
    assert!(at >= due, "{at} is before {due}");
    assert_eq!(prove(&scene.stage.coderd, &first.value).await, None);
    let second = scene.held().await;
    scene.stays(&second).await;
    let minted = proxy.requests().into_iter().filter(|it| it.method == Method::POST);
    assert_eq!(minted.filter(|it| it.path.ends_with("/provisionerkeys")).count(), 2);

    // One that is overdue by far is due once, and what is no longer scheduled is not due.
    scene.stage.apply(&idle(&json!({"interval": "2h"}))).await;
    scene.wait("idle", is_settled).await;
    scene.made_at(ago(500_000)).await;
    scene.stays(&second).await;
    scene.stage.apply(&idle(&spec)).await;
    let third = scene.replaced(&second).await;
    assert!(third.name.ends_with("-3"), "{}", third.name);
    scene.end().await;
}

/// The one pod of `alpha` that is not on its way out.
async fn pod(pods: &Api<Pod>) -> String {
    let ours = ListParams::default().labels("app.kubernetes.io/instance=alpha");
    let found = pods.list(&ours).await.unwrap().items;
    let mut names = found.iter().filter(|it| it.metadata.deletion_timestamp.is_none());
    names.next().unwrap().name_any()
}

async fn hold(pods: &Api<Pod>, name: &str, finalizers: &Value) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    pods.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Has the pod of a key held back, and a new key asked for. Gives back when daemons are on the new one.
async fn overlapped(scene: &Scene, spec: &Value) -> (Key, String) {
    let (before, pods) = (scene.held().await, scene.stage.api::<Pod>());
    let stuck = pod(&pods).await;
    hold(&pods, &stuck, &json!(["bed.coder.com/held"])).await;
    scene.stage.apply(&provisioner("alpha", spec)).await;
    scene.ask_for_rotation().await;
    let is_other = |it: &Value| is_ready(it) && it["status"]["provisionerKeyID"] != before.id;
    scene.wait("on the new key", is_other).await;
    (before, stuck)
}

#[tokio::test]
async fn an_old_key_outlives_its_pods_for_their_grace_period_and_a_minute_and_not_longer() {
    let scene = Scene::new().await;
    let is_valid = async |key: &Key| prove(&scene.stage.coderd, &key.value).await.is_some();
    let pods = scene.stage.api::<Pod>();
    scene.stage.apply(&provisioner("alpha", &json!({}))).await;
    scene.wait("made", is_settled).await;

    let (old, stuck) = overlapped(&scene, &json!({})).await;
    scene.retired_at(ago(30)).await;
    scene.stage.look_again("CoderProvisioner", "alpha").await;
    assert!(is_valid(&old).await, "its pod may still need it");
    scene.retired_at(ago(65)).await;
    scene.wait("over", is_settled).await;
    assert!(!is_valid(&old).await);
    assert!(pods.get_opt(&stuck).await.unwrap().is_some(), "the pod is still there");
    hold(&pods, &stuck, &Value::Null).await;

    // A pod has the time that it was given, whatever the manifest says by then.
    let generous = json!({"terminationGracePeriodSeconds": 300});
    scene.stage.apply(&provisioner("alpha", &generous)).await;
    let is_generous = |it: &Pod| it.spec.as_ref().unwrap().termination_grace_period_seconds == Some(300);
    loop {
        let now = scene.wait("there", is_settled).await;
        let found = pods.list(&ListParams::default()).await.unwrap().items;
        if now["status"]["daemons"] == 1 && !found.is_empty() && found.iter().all(is_generous) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let (old, stuck) = overlapped(&scene, &json!({"terminationGracePeriodSeconds": 1})).await;
    scene.retired_at(ago(300)).await;
    scene.stage.look_again("CoderProvisioner", "alpha").await;
    assert!(is_valid(&old).await, "its pod has five minutes");
    scene.retired_at(ago(360)).await;
    scene.wait("over", is_settled).await;
    assert!(!is_valid(&old).await);
    assert!(pods.get_opt(&stuck).await.unwrap().is_some(), "the pod is still there");
    hold(&pods, &stuck, &Value::Null).await;
    scene.end().await;
}
