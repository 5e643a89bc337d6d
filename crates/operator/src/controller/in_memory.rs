//! The controllers over a cluster and a deployment in memory: the code of `run`, without any process. Time passes at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use client::{AddressPolicy, Transport, groups::UpdateGroup};
use engine::{
    Cluster, kinds,
    objects::Key,
    ports::{Answer, ClusterError, Only, Watch, WatchEvent, Write},
};
use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};
use sim::{
    Coder, MemoryCluster, Options,
    cluster::{ClusterCall, Interceptor},
};
use tokio::{task::JoinHandle, time::timeout};

use super::{Limits, Outside, Shared, controllers::Controllers};
use crate::cluster::fence::Fence;

/// The engine's own, so that a kind has one example for all suites.
#[path = "../../../engine/tests/it/examples.rs"]
#[expect(dead_code, reason = "changes by hand need a session of the test bed")]
mod examples;
mod leaders;
mod licenses;
mod managed;
mod observed;
mod wakes;

const NAMESPACE: &str = "platform";
const URL: &str = "https://coder.test";
const PASSWORD: &str = "Correct-horse-battery-4!";
/// Longer than anything takes, deletions that settle first included. No test waits for it: the clock moves when nothing else does.
const LIMIT: Duration = Duration::from_mins(30);
/// The controllers with what they work on.
struct Stage {
    cluster: MemoryCluster,
    coder: Coder,
    controllers: Controllers,
    nodes: JoinHandle<()>,
}

impl Stage {
    fn new() -> Self {
        Self::on(MemoryCluster::new(Arc::new(Timestamp::now), 1))
    }

    fn on(cluster: MemoryCluster) -> Self {
        Self::over(cluster, Coder::transport)
    }

    /// The same, where the deployment is reached by a transport of the test.
    fn over(cluster: MemoryCluster, transport: impl FnOnce(&Coder) -> Arc<dyn Transport>) -> Self {
        let options = Options::new(Arc::new(Timestamp::now));
        // Time passes for the controllers only.
        let build_time = SignedDuration::ZERO;
        let coder = Coder::new(Options { rate_limit: None, url: URL.to_owned(), build_time, ..options });
        let controllers = lead(&cluster, transport(&coder));
        let nodes = tokio::spawn(run_pods(cluster.clone(), coder.clone()));
        Self { cluster, coder, controllers, nodes }
    }

    async fn end(self) {
        self.controllers.end().await;
        self.nodes.abort();
    }

    /// An anonymous request to the deployment, or one with a token of its owner.
    async fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut request = http::Request::builder().method(method).uri(format!("{URL}{path}"));
        if let Some(token) = self.coder.sign_in("admin", SignedDuration::from_hours(1)) {
            request = request.header("coder-session-token", token.expose_secret());
        }
        let answer = self.coder.send(request.body(body.to_string().into()).unwrap()).await.unwrap();
        assert!(answer.status().is_success(), "{method} {path}: {answer:?}");
        serde_json::from_slice(answer.body()).unwrap_or_default()
    }

    async fn apply(&self, manifest: &Value) {
        let mut manifest = manifest.clone();
        if manifest["metadata"]["namespace"].is_null() {
            manifest["metadata"]["namespace"] = json!(NAMESPACE);
        }
        self.cluster.write(Write::Create(&manifest), "").await.unwrap();
    }

    async fn write_secret(&self, name: &str, values: &[(&str, &str)]) {
        let data: Map<String, Value> =
            values.iter().map(|(key, value)| ((*key).to_owned(), json!(STANDARD.encode(value)))).collect();
        self.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}))
            .await;
    }

    /// Follows the watch of a kind until an object of that name, or its absence, is as wanted.
    async fn until(&self, kind: &str, name: &str, what: &str, is: impl Fn(Option<&Value>) -> bool) -> Value {
        let api_version = if kind == "Deployment" { "apps/v1" } else { "coder.com/v1alpha1" };
        let mut events = Arc::new(self.cluster.clone()).watch(Watch::new(api_version, kind));
        let mut last = None;
        let wanted = async {
            while let Some(event) = events.next().await {
                match event.unwrap() {
                    WatchEvent::InitApply(it) | WatchEvent::Apply(it) if it.key.name == name => {
                        last = Some(it.object);
                    }
                    WatchEvent::Delete(it) if it.key.name == name => last = None,
                    WatchEvent::InitDone => {}
                    _ => continue,
                }
                if is(last.as_ref()) {
                    return;
                }
            }
        };
        let waited = timeout(LIMIT, wanted).await;
        assert!(waited.is_ok(), "{kind} {name} is not {what}: {last:#?}");
        last.unwrap_or_default()
    }

    async fn ready(&self, kind: &str, name: &str) -> Value {
        self.until(kind, name, "ready", |it| it.is_some_and(is_ready)).await
    }

    /// Waits until something is true of the deployment.
    async fn eventually(&self, what: &str, is: impl Fn(&sim::state::State) -> bool) {
        let wanted = async {
            while !self.coder.read(&is) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        assert!(timeout(LIMIT, wanted).await.is_ok(), "{what}");
    }

    async fn delete(&self, kind: &str, name: &str) {
        let key = Key::new("coder.com/v1alpha1", kind, NAMESPACE, name);
        let uid = self.cluster.find(kind, name).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        self.cluster.delete(&key, Only { uid: &uid, version: None }).await.unwrap();
    }

    /// The quota of the group of that name.
    fn quota(&self, name: &str) -> Option<i32> {
        self.coder.read(|it| Some(it.groups.values().find(|it| it.name == name)?.quota_allowance))
    }
}

/// Starts the controllers of one replica of the operator.
fn lead(cluster: &MemoryCluster, transport: Arc<dyn Transport>) -> Controllers {
    let outside = Outside {
        cluster: Arc::new(cluster.clone()),
        connect: Arc::new(move |_| Ok(Arc::clone(&transport))),
        fence: Fence::open(),
    };
    let limits = Limits { addresses: AddressPolicy::Any, ..Limits::default() };
    Controllers::start(&Shared::new(outside, limits, Arc::default()))
}

/// Whether a manifest is ready in the version that it has.
fn is_ready(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|it| {
        it["type"] == "Ready"
            && it["status"] == "True"
            && it["observedGeneration"] == object["metadata"]["generation"]
    })
}

/// Runs pods: Deployments get theirs at once, and those with a key connect to the deployment.
async fn run_pods(cluster: MemoryCluster, coder: Coder) {
    let mut deployments = Arc::new(cluster.clone()).watch(Watch::new("apps/v1", "Deployment"));
    while deployments.next().await.is_some() {
        cluster.settle_workloads(SignedDuration::ZERO);
        for pod in cluster.all("Pod") {
            let variables = pod["spec"]["containers"][0]["env"].as_array().into_iter().flatten();
            let mut keys = variables.filter(|it| it["name"] == "CODER_PROVISIONER_DAEMON_KEY");
            let Some(key) = keys.next().map(|it| &it["valueFrom"]["secretKeyRef"]) else { continue };
            let secret = cluster.find("Secret", key["name"].as_str().unwrap_or_default());
            let value = secret.as_ref().map(|it| &it["data"][key["key"].as_str().unwrap_or_default()]);
            if let Some(value) = value.and_then(Value::as_str).and_then(|it| STANDARD.decode(it).ok()) {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                coder.connect_daemon(&String::from_utf8_lossy(&value), name, "v2.36.1");
            }
        }
    }
}

/// A Coder that runs elsewhere, with its first user, a licence and a token.
async fn external(stage: &Stage) {
    let token = deployment(stage).await;
    reach(stage, NAMESPACE, &token).await;
}

/// A licensed deployment. Returns a token of its owner.
async fn deployment(stage: &Stage) -> SecretString {
    let user = json!({"email": "admin@coder.test", "username": "admin", "password": PASSWORD});
    stage.request("POST", "/api/v2/users/first", &user).await;
    let license = stage.coder.sign_license(&Map::new());
    stage.request("POST", "/api/v2/licenses", &json!({"license": license})).await;
    stage.coder.sign_in("admin", SignedDuration::from_hours(24)).unwrap()
}

/// A control plane in a namespace that stands for the deployment.
async fn reach(stage: &Stage, namespace: &str, token: &SecretString) {
    let data = json!({"token": STANDARD.encode(token.expose_secret())});
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "coder-automation", "namespace": namespace}, "data": data});
    stage.apply(&secret).await;
    let external = json!({"url": URL, "credentialsSecretRef": {"name": "coder-automation"}});
    stage
        .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main", "namespace": namespace}, "spec": {"external": external}}))
        .await;
}

/// Connects a daemon that builds templates of the default organization.
async fn connect_daemon(stage: &Stage) {
    let path = "/api/v2/organizations/default/provisionerkeys";
    let key = stage.request("POST", path, &json!({"name": "daemons", "tags": {}})).await;
    stage.coder.connect_daemon(key["key"].as_str().unwrap(), "daemons", "v2.36.1").unwrap();
}

/// One manifest of every kind, in the order that fits least.
fn manifests() -> Vec<Value> {
    let mut manifests: Vec<Value> = kinds::names().iter().map(|it| examples::of(it)).collect();
    for manifest in &mut manifests {
        manifest["spec"]["deletionPolicy"] = json!("Delete");
        manifest["spec"]["allowDestructive"] = json!(true);
    }
    manifests.reverse();
    manifests.push(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner",
        "metadata": {"name": "daemons"}, "spec": {"controlPlaneRef": {"name": "main"}, "replicas": 2,
            "organizationName": examples::HOME, "image": "coder:v2.36.1"}}));
    manifests
}

/// The kind and the name of a manifest.
fn which(manifest: &Value) -> [&str; 2] {
    [&manifest["kind"], &manifest["metadata"]["name"]].map(|it| it.as_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn every_kind_lives_from_apply_to_deletion_in_memory() {
    let stage = Stage::new();
    let keys = examples::ai_keys();
    let keys = keys.as_object().unwrap().iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap()));
    stage.write_secret(examples::AI_KEYS, &keys.collect::<Vec<_>>()).await;
    for manifest in manifests() {
        stage.apply(&manifest).await;
    }
    external(&stage).await;
    stage.ready("CoderControlPlane", "main").await;
    for manifest in manifests() {
        let [kind, name] = which(&manifest);
        stage.ready(kind, name).await;
    }
    assert_eq!(stage.quota("developers"), Some(20));
    let daemons = |it: &sim::state::State| it.daemons.len();
    assert_eq!((stage.cluster.all("Pod").len(), stage.coder.read(daemons)), (2, 2));

    // Drift in the deployment is healed by the next periodic reconcile, and drift in the cluster at once.
    let group = stage.coder.read(|it| it.groups.values().find(|it| it.name == "developers").unwrap().id);
    let by_hand =
        serde_json::to_value(UpdateGroup { quota_allowance: Some(7), ..UpdateGroup::default() }).unwrap();
    stage.request("PATCH", &format!("/api/v2/groups/{group}"), &by_hand).await;
    assert_eq!(stage.quota("developers"), Some(7));
    let quota_is =
        |wanted: i32| move |it: &sim::state::State| it.groups.values().any(|it| it.quota_allowance == wanted);
    stage.eventually("the quota is healed", quota_is(20)).await;
    let deployment = stage.cluster.all("Deployment")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    stage.cluster.remove("Deployment", &deployment);
    stage.until("Deployment", &deployment, "there again", |it| it.is_some()).await;
    stage.ready("CoderProvisioner", "daemons").await;

    // A change that no watch shows is found when the watches begin anew.
    stage.cluster.lose_watches();
    stage.cluster.edit("CoderGroup", "example", |it| {
        it["spec"]["quotaAllowance"] = json!(30);
        let generation = it["metadata"]["generation"].as_i64().unwrap();
        it["metadata"]["generation"] = json!(generation + 1);
    });
    stage.eventually("the quota is the declared one", quota_is(30)).await;

    for manifest in manifests() {
        let [kind, name] = which(&manifest);
        stage.delete(kind, name).await;
    }
    stage.delete("CoderControlPlane", "main").await;
    for manifest in manifests() {
        let [kind, name] = which(&manifest);
        stage.until(kind, name, "gone", |it| it.is_none()).await;
    }
    stage.until("CoderControlPlane", "main", "gone", |it| it.is_none()).await;
    for kind in ["Deployment", "ReplicaSet", "Pod", "Role", "ServiceAccount"] {
        assert_eq!(stage.cluster.all(kind), Vec::<Value>::new(), "{kind}");
    }
    let secrets = stage.cluster.all("Secret");
    let secrets: Vec<&Value> = secrets.iter().map(|it| &it["metadata"]["name"]).collect();
    assert_eq!(secrets, ["coder-automation", examples::AI_KEYS]);
    let left = stage.coder.state();
    let organizations = left.organizations.values().filter(|it| !it.deleted).count();
    let keys = left.provisioner_keys.values().filter(|it| !it.secret.is_empty()).count();
    let groups = left.groups.values().filter(|it| it.name == "developers").count();
    let templates = left.templates.values().filter(|it| !it.deleted).count();
    assert_eq!((organizations, keys, groups, templates), (1, 0, 0, 0));
    assert_eq!(left.versions.len(), 1, "one version of one content");
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn resource_is_watched_once_by_all_controllers_together() {
    let mut stage = Stage::new();
    external(&stage).await;
    stage.ready("CoderControlPlane", "main").await;
    stage.nodes.abort();
    (&mut stage.nodes).await.unwrap_err();
    let mut watched = stage.cluster.watched_kinds();
    watched.sort();
    let mut once = watched.clone();
    once.dedup();
    assert_eq!(watched, once);
    assert!(once.len() > kinds::names().len(), "{once:?}");
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn drift_names_who_made_it_in_memory() {
    let stage = Stage::new();
    external(&stage).await;
    for name in ["enforced", "observed"] {
        stage
            .apply(
                &json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup", "metadata": {"name": name},
                "spec": {"controlPlaneRef": {"name": "main"}, "quotaAllowance": 20}}),
            )
            .await;
        stage.ready("CoderGroup", name).await;
    }
    let edit = |it: &mut Value| {
        it["spec"]["mode"] = json!("Observe");
        let generation = it["metadata"]["generation"].as_i64().unwrap();
        it["metadata"]["generation"] = json!(generation + 1);
    };
    stage.cluster.edit("CoderGroup", "observed", edit);
    stage.ready("CoderGroup", "observed").await;
    let groups = stage.coder.read(|it| it.groups.clone());
    for group in groups.values().filter(|it| it.name != "Everyone") {
        let by_hand = json!({"name": "", "quota_allowance": 3});
        stage.request("PATCH", &format!("/api/v2/groups/{}", group.id), &by_hand).await;
    }
    let is_named = |it: Option<&Value>| it.is_some_and(|it| it["status"]["drift"][0]["changedBy"] == "admin");
    let observed = stage.until("CoderGroup", "observed", "drifted", is_named).await;
    assert!(observed["status"]["drift"][0]["changedAt"].is_string(), "{observed:#}");
    stage
        .eventually("the quota is healed", |it| {
            it.groups.values().any(|it| it.name == "enforced" && it.quota_allowance == 20)
        })
        .await;
    for name in ["enforced", "observed"] {
        let is_told = || {
            stage.cluster.events().iter().any(|it| {
                it.reason == api::Reason::DriftFound
                    && it.about.name.as_deref() == Some(name)
                    && it.note.starts_with("quotaAllowance 20 -> 3 by admin at ")
            })
        };
        stage.eventually("an Event names who it was", |_| is_told()).await;
    }
    stage.end().await;
}

/// Refuses to show the Secret of that name, once it is told to.
#[derive(Debug)]
struct Hidden {
    name: &'static str,
    is_hidden: AtomicBool,
}

impl Interceptor for Hidden {
    fn before<'a>(&'a self, call: &'a ClusterCall<'a>) -> Answer<'a, ()> {
        let is_it = matches!(call, ClusterCall::Secret { name, .. } if *name == self.name);
        let is_refused = is_it && self.is_hidden.load(Ordering::Relaxed);
        let refusal = || Err(ClusterError::refusal(403, "Forbidden", "it is not shown"));
        Box::pin(std::future::ready(if is_refused { refusal() } else { Ok(()) }))
    }

    fn after<'a>(&'a self, _: &'a ClusterCall<'a>) -> Answer<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test(start_paused = true)]
async fn deletion_names_the_secret_that_it_could_not_read_in_memory() {
    let name = "daemons-provisioner-key";
    let hidden = Arc::new(Hidden { name, is_hidden: AtomicBool::new(false) });
    let cluster = MemoryCluster::new(Arc::new(Timestamp::now), 1);
    let stage = Stage::on(cluster.intercepted_by(Arc::clone(&hidden) as _));
    external(&stage).await;
    let mut daemons = manifests().pop().unwrap();
    daemons["spec"].as_object_mut().unwrap().remove("organizationName");
    stage.apply(&daemons).await;
    stage.ready("CoderProvisioner", "daemons").await;
    hidden.is_hidden.store(true, Ordering::Relaxed);
    stage.cluster.edit("Secret", name, |it| it["metadata"]["labels"]["by"] = json!("hand"));
    stage.cluster.edit("CoderProvisioner", "daemons", |it| {
        it["metadata"]["annotations"] = json!({api::annotation::FORCE_FINALIZE: "true"});
    });
    stage.delete("CoderProvisioner", "daemons").await;
    stage.until("CoderProvisioner", "daemons", "gone", |it| it.is_none()).await;
    let keys = |it: &sim::state::State| it.provisioner_keys.values().any(|it| !it.secret.is_empty());
    assert!(!stage.coder.read(keys), "the key that the status names is revoked");
    let is_named = |it: &sim::cluster::RecordedEvent| {
        it.action.is_none() && it.note.contains("unreadable Secret") && it.note.contains(name)
    };
    let events = stage.cluster.events();
    assert!(events.iter().any(is_named), "{events:#?}");
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn deletion_leaves_a_template_to_the_other_manifest_that_holds_it() {
    let stage = Stage::new();
    external(&stage).await;
    connect_daemon(&stage).await;
    let account = json!({"username": "tests", "service_account": true, "user_status": "active",
        "organization_ids": [uuid::Uuid::nil()]});
    stage.request("POST", "/api/v2/users", &account).await;
    let template = |name: &str| {
        json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderTemplate", "metadata": {"name": name},
            "spec": {"controlPlaneRef": {"name": "main"}, "name": "kubernetes", "deletionPolicy": "Delete",
                "allowDestructive": true, "source": {"files": {"main.tf": "locals {}"}}}})
    };
    stage.apply(&template("keeper")).await;
    let keeper = stage.ready("CoderTemplate", "keeper").await;
    stage.apply(&template("other")).await;
    let is_refused =
        |it: Option<&Value>| it.is_some_and(|it| it["status"]["conditions"][0]["reason"] == "HeldByOther");
    stage.until("CoderTemplate", "other", "refused", is_refused).await;
    // A restored backup: both statuses have the id, and one has an open test.
    stage.cluster.edit("CoderTemplate", "other", |it| {
        it["metadata"]["finalizers"] = json!([api::finalizer::FINALIZER]);
        for field in ["id", "remoteDeploymentID"] {
            it["status"][field] = keeper["status"][field].clone();
        }
        it["status"]["test"] =
            json!({"workspace": "test-00000000-00000000", "owner": "tests", "version": keeper["status"]["version"]["id"]});
    });
    // The keeper tests its next version.
    stage.cluster.edit("CoderTemplate", "keeper", |it| {
        it["spec"]["source"] = json!({"files": {"main.tf": "locals { agent = \"never-connects\" }"}});
        it["spec"]["version"] = json!({"test": {"owner": "tests"}});
        let generation = it["metadata"]["generation"].as_i64().unwrap();
        it["metadata"]["generation"] = json!(generation + 1);
    });
    stage.eventually("the keeper tests a version", |it| !it.workspaces.is_empty()).await;
    stage.delete("CoderTemplate", "other").await;
    stage.until("CoderTemplate", "other", "gone", |it| it.is_none()).await;
    let is_there = |it: &sim::state::State| it.templates.values().filter(|it| !it.deleted).count() == 1;
    assert!(stage.coder.read(is_there), "the template is the keeper's");
    let builds = |it: &sim::state::State| it.workspaces.values().flat_map(|it| it.builds.clone()).count();
    assert_eq!(stage.coder.read(builds), 1, "the test of the keeper goes on");
    stage.delete("CoderTemplate", "keeper").await;
    stage.until("CoderTemplate", "keeper", "gone", |it| it.is_none()).await;
    assert!(!stage.coder.read(is_there));
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn changed_config_map_of_a_template_is_no_drift() {
    let stage = Stage::new();
    external(&stage).await;
    connect_daemon(&stage).await;
    let files = |text: &str| json!({"main.tf": text});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}, "data": files("locals {}")});
    stage.apply(&map).await;
    stage
        .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderTemplate", "metadata": {"name": "kubernetes"},
            "spec": {"controlPlaneRef": {"name": "main"}, "source": {"configMapRef": {"name": "files"}}}}))
        .await;
    let first = stage.ready("CoderTemplate", "kubernetes").await;
    stage.cluster.edit("ConfigMap", "files", |it| it["data"] = files("locals { a = 1 }"));
    let is_next = |it: Option<&Value>| {
        it.is_some_and(|it| is_ready(it) && it["status"]["version"]["id"] != first["status"]["version"]["id"])
    };
    let next = stage.until("CoderTemplate", "kubernetes", "at its next version", is_next).await;
    let notes = || -> Vec<String> {
        let events = stage.cluster.events().into_iter();
        events.filter(|it| it.reason == api::Reason::DriftFound).map(|it| it.note).collect()
    };
    assert_eq!(notes(), Vec::<String>::new());

    // A person who promotes another version is named.
    let path = format!("/api/v2/templates/{}/versions", next["status"]["id"].as_str().unwrap());
    stage.request("PATCH", &path, &json!({"id": first["status"]["version"]["id"]})).await;
    stage.eventually("an Event names who it was", |_| !notes().is_empty()).await;
    let notes = notes();
    assert!(
        notes.len() == 1 && notes[0].starts_with("activeVersion ") && notes[0].contains(" by admin at "),
        "{notes:?}"
    );
    stage.end().await;
}
