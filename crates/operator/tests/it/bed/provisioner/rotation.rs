//! Rotations under daemons that work: at no moment is there a pod whose key is not valid.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::CoderProvisioner;
use k8s_openapi::api::{
    core::v1::{Pod, Secret, SecretKeySelector},
    events::v1::Event,
};
use kube::api::ListParams;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        get,
        stage::{Stage, image, is_ready, says, until},
    },
    provisioner, revocations,
    scene::{Scene, is_settled, listed, prove},
};

/// The entries that the keys of pods come from.
pub(super) async fn mounted(stage: &Stage) -> Vec<SecretKeySelector> {
    let ours = ListParams::default().labels("app.kubernetes.io/instance=alpha");
    let pods = stage.api::<Pod>().list(&ours).await.unwrap();
    let containers = pods.items.into_iter().flat_map(|it| it.spec.unwrap().containers);
    let variables = containers.flat_map(|it| it.env.unwrap_or_default());
    variables.filter_map(|it| it.value_from?.secret_key_ref).collect()
}

/// What was seen, moment by moment.
#[derive(Default)]
struct Seen {
    samples: usize,
    values: BTreeSet<String>,
    most_keys: usize,
    faults: Vec<String>,
}

/// Looks all the time at what running pods mount, and at the keys that coderd has.
struct Sampler {
    seen: Arc<Mutex<Seen>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Sampler {
    fn start(scene: &Arc<Scene>) -> Self {
        let (seen, stop) = (Arc::<Mutex<Seen>>::default(), CancellationToken::new());
        let (scene, into, stopped) = (Arc::clone(scene), Arc::clone(&seen), stop.clone());
        let task = tokio::spawn(async move {
            while !stopped.is_cancelled() {
                sample(&scene, &into).await;
                sleep(Duration::from_millis(20)).await;
            }
        });
        Self { seen, stop, task }
    }

    /// Waits until it has seen the value that the Secret has by now.
    async fn catches_up(&self, scene: &Scene) {
        let value = scene.value(&scene.status().await).await;
        until("sampled", || self.seen.lock().unwrap().values.contains(&value)).await;
    }

    async fn end(self) -> Seen {
        self.stop.cancel();
        self.task.await.unwrap();
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

async fn sample(scene: &Scene, seen: &Mutex<Seen>) {
    let coderd = &scene.stage.coderd;
    for SecretKeySelector { name, key, .. } in mounted(&scene.stage).await {
        let secret = scene.stage.api::<Secret>().get_opt(&name).await.unwrap();
        let value = secret.and_then(|it| it.data?.remove(&key)).map(|it| String::from_utf8(it.0).unwrap());
        let proof = match &value {
            Some(value) => prove(coderd, value).await,
            None => None,
        };
        let mut seen = seen.lock().unwrap();
        seen.samples += 1;
        seen.values.extend(value);
        if proof.is_none() {
            seen.faults.push(format!("{name} {key} was mounted and no live key"));
        }
    }
    let mut keys = 0;
    for organization in ["default", "beta"] {
        keys += listed(coderd, organization).await.len();
    }
    let mut seen = seen.lock().unwrap();
    seen.most_keys = seen.most_keys.max(keys);
}

/// How many daemons are on a key; nothing when there is no such key.
async fn daemons(scene: &Scene, id: &Value) -> Option<usize> {
    for organization in ["default", "beta"] {
        let path = format!("/api/v2/organizations/{organization}/provisionerkeys/daemons");
        let keys = get(&scene.stage.coderd, &path).await;
        // There may be no such organization.
        let found = keys.as_array().into_iter().flatten().find(|it| it["key"]["id"] == *id);
        if let Some(found) = found {
            return Some(found["daemons"].as_array().map_or(0, Vec::len));
        }
    }
    None
}

/// Waits until the key is another one. The one before is gone only when a daemon is on its successor.
pub(super) async fn turned(scene: &Scene, what: &str, before: &Value) -> Value {
    let is_another = |it: &Value| {
        let id = &it["status"]["provisionerKeyID"];
        id.is_string() && id != before
    };
    let next = scene.wait(what, is_another).await["status"]["provisionerKeyID"].clone();
    loop {
        // In this order: what has gone before is seen to have gone with its successor in use.
        let (old, new) = (daemons(scene, before).await, daemons(scene, &next).await);
        if old.is_none() {
            assert!(
                new.is_some_and(|it| it > 0),
                "{what}: the old key went before a daemon was on the new one"
            );
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    scene.wait(what, |it| is_settled(it) && it["status"]["provisionerKeyID"] == next).await["status"].clone()
}

#[tokio::test]
async fn daemons_never_have_a_key_that_is_not_valid_and_nobody_ever_reads_one() {
    let scene = Scene::new().await;
    let body = json!({"name": "beta", "display_name": "Beta"});
    scene.stage.coderd.owner.request(Method::POST, "/api/v2/organizations", Some(&body)).await.unwrap();
    let foreign = listed(&scene.stage.coderd, "default").await.len();
    scene.stage.apply(&provisioner("alpha", &json!({"tags": {"site": "bed"}}))).await;
    let made = scene.wait("made", is_settled).await;
    let scene = Arc::new(scene);
    let sampler = Sampler::start(&scene);
    sampler.catches_up(&scene).await;

    let mut id = made["status"]["provisionerKeyID"].clone();
    let specs = [
        json!({"tags": {"site": "other"}}),
        json!({"tags": {"site": "other"}, "organizationName": "beta"}),
        json!({"tags": {"site": "other"}, "organizationName": "beta", "key": {"name": "gamma"}}),
    ];
    for spec in &specs {
        scene.stage.apply(&provisioner("alpha", spec)).await;
        id = turned(&scene, &spec.to_string(), &id).await["provisionerKeyID"].clone();
        sampler.catches_up(&scene).await;
    }
    scene.ask_for_rotation().await;
    let last = turned(&scene, "asked for", &id).await;
    sampler.catches_up(&scene).await;
    assert!(last["provisionerKeyName"].as_str().unwrap().starts_with("gamma-"), "{last:#}");

    let seen = sampler.end().await;
    assert_eq!(seen.faults, [""; 0]);
    assert!(seen.samples > 50, "{}", seen.samples);
    assert_eq!(seen.values.len(), 5, "one key at first, and one of each rotation");
    assert!(seen.most_keys <= foreign + 2, "{} keys at once", seen.most_keys - foreign);

    let status = scene.status().await;
    scene.end().await;
    assert_eq!(listed(&scene.stage.coderd, "beta").await, [Value::Null; 0]);
    let revoked = revocations(&scene.stage, "alpha").await;
    let with = |words: &str| revoked.iter().filter(|it| it.contains(words)).count();
    assert_eq!((with("has replaced it"), with("is deleted"), revoked.len()), (4, 1, 5), "{revoked:#?}");
    is_secret(&scene.stage, &seen.values, &status).await;
}

/// Nothing that anybody can read has a value of a key in it.
async fn is_secret(stage: &Stage, values: &BTreeSet<String>, status: &Value) {
    let events = stage.api::<Event>().list(&ListParams::default()).await.unwrap();
    assert!(events.items.iter().any(|it| it.reason.as_deref() == Some("KeyMinted")));
    let lines = stage.operator.said();
    let is_first =
        |it: &Value| it["message"].as_str().is_some_and(|it| it.contains("provisioner key alpha was made"));
    assert!(lines.iter().any(is_first));
    let told = [
        serde_json::to_string(&lines).unwrap(),
        serde_json::to_string(&events.items).unwrap(),
        status.to_string(),
        stage.operator.get("/metrics").await.unwrap().1,
    ];
    for value in values {
        assert!(
            !told.iter().any(|it| it.contains(value.as_str())),
            "the value of a key is nobody's business"
        );
    }
}

#[tokio::test]
async fn daemons_that_never_come_on_a_new_key_are_said_and_the_old_ones_work_on() {
    let scene = Scene::new().await;
    scene.stage.apply(&provisioner("alpha", &json!({"tags": {"site": "bed"}}))).await;
    let made = scene.wait("made", is_settled).await;
    let before = scene.held().await;
    let spec = json!({"tags": {"site": "other"}, "image": image("bed/no-such-image")});
    scene.stage.apply(&provisioner("alpha", &spec)).await;
    let is_stuck = |it: &Value| {
        says(it, "Ready", "False", "RolloutStuck") && says(it, "DaemonsConnected", "False", "DaemonsNotSeen")
    };
    let stuck = scene.wait("stuck", is_stuck).await;
    assert_ne!(stuck["status"]["provisionerKeyID"], made["status"]["provisionerKeyID"]);
    assert_eq!(stuck["status"]["retiringKeys"][0]["name"], before.name);
    assert_eq!(daemons(&scene, &before.id).await, Some(1), "the old daemon is there, on its key");

    let spec = json!({"tags": {"site": "other"}});
    scene.stage.apply(&provisioner("alpha", &spec)).await;
    scene.stage.wait::<CoderProvisioner>("alpha", "well again", |it| is_ready(it) && is_settled(it)).await;
    scene.held().await;
}
