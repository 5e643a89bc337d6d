//! What two write: a leader that is late, and two manifests of one deployment.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use engine::{
    Cluster as _,
    ports::{Answer, Watch, WatchEvent, Write},
};
use futures::StreamExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use sim::{
    MemoryCluster,
    cluster::{ClusterCall, Interceptor},
};
use tokio::sync::Notify;

use super::{NAMESPACE, Stage, deployment, external, lead, reach};

/// A replica that is paused between a read and the write that rests on it.
#[derive(Debug, Default)]
struct Paused {
    is_armed: AtomicBool,
    is_reached: Notify,
    goes_on: Notify,
}

fn image(deployment: &Value) -> Value {
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].clone()
}

/// The images that Deployments get.
fn images(cluster: &MemoryCluster) -> Arc<Mutex<Vec<Value>>> {
    let images = Arc::<Mutex<Vec<Value>>>::default();
    let mut events = Arc::new(cluster.clone()).watch(Watch::new("apps/v1", "Deployment"));
    let seen = Arc::clone(&images);
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            if let Ok(WatchEvent::InitApply(it) | WatchEvent::Apply(it)) = event {
                seen.lock().unwrap().push(image(&it.object));
            }
        }
    });
    images
}

impl Interceptor for Paused {
    fn before<'a>(&'a self, call: &'a ClusterCall<'a>) -> Answer<'a, ()> {
        let is_apply = |it: &ClusterCall<'_>| matches!(it, ClusterCall::Write(Write::Apply(it)) if it["kind"] == "Deployment");
        let is_it = is_apply(call) && self.is_armed.swap(false, Ordering::Relaxed);
        Box::pin(async move {
            if is_it {
                self.is_reached.notify_one();
                self.goes_on.notified().await;
            }
            Ok(())
        })
    }

    fn after<'a>(&'a self, _: &'a ClusterCall<'a>) -> Answer<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

fn declare(stage: &Stage, image: &str) {
    stage.cluster.edit("CoderProvisioner", "daemons", |it| {
        it["spec"]["image"] = json!(image);
        let generation = it["metadata"]["generation"].as_i64().unwrap();
        it["metadata"]["generation"] = json!(generation + 1);
    });
}

#[tokio::test(start_paused = true)]
async fn late_write_of_a_former_leader_undoes_nothing() {
    let (cluster, paused) = (MemoryCluster::new(Arc::new(Timestamp::now), 1), Arc::<Paused>::default());
    let stage = Stage::on(cluster.intercepted_by(Arc::clone(&paused) as _));
    let images = images(&cluster);
    external(&stage).await;
    stage
        .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
            "metadata": {"name": "daemons"}, "spec": {"controlPlaneRef": {"name": "main"}, "image": "coder:first"}}))
        .await;
    stage.ready("CoderProvisioner", "daemons").await;
    let name = stage.cluster.all("Deployment")[0]["metadata"]["name"].as_str().unwrap().to_owned();

    paused.is_armed.store(true, Ordering::Relaxed);
    declare(&stage, "coder:late");
    paused.is_reached.notified().await;
    // It does not know yet that it leads no more.
    declare(&stage, "coder:next");
    let next = lead(&cluster, stage.coder.transport());
    let has_next = |it: Option<&Value>| it.is_some_and(|it| image(it) == "coder:next");
    stage.until("Deployment", &name, "at the next image", has_next).await;
    paused.goes_on.notify_one();
    stage.end().await;
    next.end().await;
    let images = images.lock().unwrap().clone();
    assert!(!images.contains(&json!("coder:late")) && images.contains(&json!("coder:first")), "{images:?}");
    assert!(has_next(cluster.find("Deployment", &name).as_ref()));
}

#[tokio::test(start_paused = true)]
async fn one_of_two_manifests_has_the_appearance_of_a_deployment_whatever_their_namespaces() {
    let stage = Stage::new();
    let token = deployment(&stage).await;
    let appearance = |namespace: &str, name: &str| {
        json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderAppearance",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"controlPlaneRef": {"name": "main"}, "applicationName": name, "adoptionPolicy": "Adopt"}})
    };
    for namespace in [NAMESPACE, "elsewhere"] {
        reach(&stage, namespace, &token).await;
    }
    stage.apply(&appearance(NAMESPACE, "first")).await;
    stage.ready("CoderAppearance", "first").await;
    stage.apply(&appearance("elsewhere", "second")).await;
    let is_held =
        |it: Option<&Value>| it.is_some_and(|it| it["status"]["conditions"][0]["reason"] == "HeldByOther");
    stage.until("CoderAppearance", "second", "held by the first", is_held).await;
    let shown = |it: &sim::state::State| it.appearance.application_name.clone();
    assert_eq!(stage.coder.read(shown), "first");

    // What the first one releases is the second one's at once, long before its interval is over.
    let asked = tokio::time::Instant::now();
    stage.delete("CoderAppearance", "first").await;
    stage.ready("CoderAppearance", "second").await;
    assert_eq!(stage.coder.read(shown), "second");
    assert!(asked.elapsed().as_secs() < 60, "{:?}", asked.elapsed());
    stage.end().await;
}
