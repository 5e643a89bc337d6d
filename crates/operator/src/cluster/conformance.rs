//! The engine's port over a real API server, over files in front of one, and over the memory of `sim`: the same calls, the same
//! answers.

mod differences;
mod watches;
mod workloads;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use api::Reason;
use engine::{
    Cluster,
    objects::{Key, Live},
    ports::{Answer, ClusterError, Event, List, Log, Only, Reading, Write},
};
use futures::{FutureExt as _, future::BoxFuture};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::Selector;
use serde_json::{Value, json};
use sim::MemoryCluster;

/// More than the garbage collector takes, also where everything is slow.
const LIMIT: Duration = Duration::from_mins(2);

/// The uid of no object.
const ANOTHER: &str = "11111111-1111-1111-1111-111111111111";

/// One side of the comparison.
struct Side {
    name: &'static str,
    cluster: Arc<dyn Cluster>,
    /// The cluster in memory whose Deployments have to be told that time has passed. `None` for a real one.
    workloads: Option<MemoryCluster>,
    namespace: String,
}

type Case = for<'a> fn(&'a Side) -> BoxFuture<'a, Vec<Value>>;

/// The cases, each with the methods of the port that it compares.
const CASES: &[(&[&str], Case)] = &[
    (&["now", "random", "served_namespace"], |it| Box::pin(std::future::ready(it.around()))),
    (&["write", "get"], |it| Box::pin(it.creation())),
    (&["write"], |it| Box::pin(it.replacement())),
    (&["write"], |it| Box::pin(it.merge())),
    (&["write"], |it| Box::pin(it.apply())),
    (&["write"], |it| Box::pin(it.apply_new())),
    (&["write"], |it| Box::pin(it.preconditions())),
    (&["write"], |it| Box::pin(it.status())),
    (&["delete"], |it| Box::pin(it.deletion())),
    (&["delete", "write"], |it| Box::pin(it.finalizers())),
    (&["delete"], |it| Box::pin(it.owners())),
    (&["list"], |it| Box::pin(it.lists())),
    (&["write", "list", "delete"], |it| Box::pin(it.workloads())),
    (&["watch"], |it| Box::pin(it.watches())),
    (&["watch"], |it| Box::pin(it.metadata_watches())),
    (&["secret", "secret_metadata", "secrets"], |it| Box::pin(it.secrets())),
    (&["namespace", "log", "event", "left_behind", "pause"], |it| Box::pin(it.rest())),
];

/// How many cases answer otherwise than before, and the words about each. A case that cannot come to its end is one of them.
async fn differences(sides: [&Side; 2]) -> Vec<String> {
    let mut differences = Vec::new();
    for (methods, case) in CASES {
        let mut answers = Vec::new();
        for side in sides {
            answers.push(AssertUnwindSafe(case(side)).catch_unwind().await.ok());
        }
        if answers[0] != answers[1] || answers[0].is_none() {
            let (methods, name) = (methods.join(", "), sides[1].name);
            differences.push(format!("{methods}:\n  expected {:?}\n  {name} {:?}", answers[0], answers[1]));
        }
    }
    differences
}

/// The status code of an answer, or that there is none to report.
fn code<T>(answer: &Result<T, ClusterError>) -> Value {
    match answer {
        Ok(_) => json!("done"),
        Err(error) => json!(error.code()),
    }
}

impl Side {
    fn key(&self, name: &str) -> Key {
        Key::new("v1", "ConfigMap", &self.namespace, name)
    }

    fn map(&self, name: &str, data: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": self.namespace},
            "data": data})
    }

    fn write<'a>(&'a self, write: Write<'a>) -> Answer<'a, Live> {
        self.cluster.write(write, "")
    }

    async fn created(&self, object: &Value) -> Live {
        self.write(Write::Create(object)).await.unwrap()
    }

    async fn read(&self, name: &str) -> Option<Value> {
        self.cluster.get(&self.key(name), Reading::Now).await.unwrap().map(|it| it.object)
    }

    fn around(&self) -> Vec<Value> {
        let (first, second) = (self.cluster.random(), self.cluster.random());
        vec![
            json!(self.cluster.now().as_second() > 1_500_000_000),
            json!(first.bytes() == second.bytes()),
            json!(self.cluster.served_namespace()),
        ]
    }

    async fn creation(&self) -> Vec<Value> {
        let map = self.map("creation", &json!({"a": "1"}));
        let missing = self.read("creation").await;
        let created = self.write(Write::Create(&map)).await;
        let again = self.write(Write::Create(&map)).await;
        let metadata = created.as_ref().unwrap().metadata();
        let has = [metadata.uid.is_some(), metadata.resource_version.is_some()];
        let read = self.read("creation").await.unwrap();
        let is_same = read["metadata"]["uid"] == json!(metadata.uid);
        vec![json!(missing), code(&created), code(&again), json!(has), read["data"].clone(), json!(is_same)]
    }

    async fn replacement(&self) -> Vec<Value> {
        let created = self.created(&self.map("replacement", &json!({"a": "1", "b": "1"}))).await.object;
        let same = self.write(Write::Replace(&created)).await.unwrap().object;
        let is_kept = same["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"];
        let mut changed = created.clone();
        changed["data"] = json!({"a": "2"});
        let replaced = self.write(Write::Replace(&changed)).await.unwrap().object;
        let is_new = replaced["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"];
        let stale = self.write(Write::Replace(&changed)).await;
        let mut missing = changed.clone();
        missing["metadata"]["name"] = json!("replacement-of-nothing");
        let missing = self.write(Write::Replace(&missing)).await;
        vec![json!(is_kept), json!(is_new), replaced["data"].clone(), code(&stale), code(&missing)]
    }

    async fn merge(&self) -> Vec<Value> {
        let created = self.created(&self.map("merge", &json!({"a": "1", "b": "1"}))).await.object;
        let version = created["metadata"]["resourceVersion"].clone();
        let patch = json!({"metadata": {"resourceVersion": version}, "data": {"a": null, "c": "1"}});
        let key = self.key("merge");
        let merged = self.write(Write::Merge { key: &key, patch: &patch }).await.unwrap().object;
        let stale = self.write(Write::Merge { key: &key, patch: &patch }).await;
        let missing = self.write(Write::Merge { key: &self.key("merge-of-nothing"), patch: &patch }).await;
        vec![merged["data"].clone(), code(&stale), code(&missing)]
    }

    async fn apply(&self) -> Vec<Value> {
        let first = self.map("apply", &json!({"a": "1", "b": "1"}));
        let applied = self.write(Write::Apply(&first)).await.unwrap().object;
        let mut second = self.map("apply", &json!({"b": "2"}));
        second["metadata"]["resourceVersion"] = applied["metadata"]["resourceVersion"].clone();
        let changed = self.write(Write::Apply(&second)).await.unwrap().object;
        let stale = self.write(Write::Apply(&second)).await;
        let mut same = second.clone();
        same["metadata"]["resourceVersion"] = changed["metadata"]["resourceVersion"].clone();
        let kept = self.write(Write::Apply(&same)).await.unwrap().object;
        let is_kept = kept["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"];
        vec![applied["data"].clone(), changed["data"].clone(), code(&stale), json!(is_kept)]
    }

    async fn apply_new(&self) -> Vec<Value> {
        let map = self.map("apply-new", &json!({"a": "1", "b": "1"}));
        let applied = self.write(Write::ApplyNew(&map)).await;
        let again = self.write(Write::ApplyNew(&map)).await;
        self.created(&self.map("apply-other", &json!({"b": "1"}))).await;
        let over = self.write(Write::ApplyNew(&self.map("apply-other", &json!({"a": "1"})))).await;
        let kept = self.read("apply-other").await.unwrap()["data"].clone();
        // What was applied before is ours, and goes where it is not declared any more.
        let mut less = self.map("apply-new", &json!({"b": "1"}));
        less["metadata"]["resourceVersion"] = json!(applied.as_ref().unwrap().metadata().resource_version);
        let less = self.write(Write::Apply(&less)).await.unwrap().object;
        vec![code(&applied), code(&again), code(&over), kept, less["data"].clone()]
    }

    async fn preconditions(&self) -> Vec<Value> {
        let with = |name: &str, field: &str, value: &str| {
            let mut map = self.map(name, &json!({"a": "1"}));
            map["metadata"][field] = json!(value);
            map
        };
        let absent = self.write(Write::Apply(&with("absent-uid", "uid", ANOTHER))).await;
        let is_there = self.read("absent-uid").await.is_some();
        let of_version = self.write(Write::Apply(&with("absent-version", "resourceVersion", "1"))).await;
        self.created(&self.map("precondition", &json!({"b": "1"}))).await;
        let another = self.write(Write::Apply(&with("precondition", "uid", ANOTHER))).await;
        let (key, patch) =
            (self.key("precondition"), json!({"metadata": {"uid": ANOTHER}, "data": {"a": "2"}}));
        let merged = self.write(Write::Merge { key: &key, patch: &patch }).await;
        let mut nowhere = self.map("nowhere", &json!({}));
        nowhere["metadata"]["namespace"] = json!("no-such-namespace");
        let nowhere = self.write(Write::Create(&nowhere)).await;
        vec![
            code(&absent),
            json!(is_there),
            code(&of_version),
            code(&another),
            code(&merged),
            code(&nowhere),
            json!(self.read("precondition").await.unwrap()["data"]),
        ]
    }

    async fn status(&self) -> Vec<Value> {
        let group = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup",
            "metadata": {"name": "status", "namespace": self.namespace},
            "spec": {"controlPlaneRef": {"name": "main"}, "organization": "alpha", "quotaAllowance": 1}});
        let created = self.created(&group).await.object;
        let mut both = created.clone();
        both["spec"]["quotaAllowance"] = json!(2);
        both["status"] = json!({"id": "a"});
        let reported = self.write(Write::ReplaceStatus(&both)).await.unwrap().object;
        let stale = self.write(Write::ReplaceStatus(&both)).await;
        let key = Key::new("coder.com/v1alpha1", "CoderGroup", &self.namespace, "status");
        let patch = json!({"metadata": {"resourceVersion": reported["metadata"]["resourceVersion"]},
            "status": {"creating": "b"}});
        let merged = self.write(Write::MergeStatus { key: &key, patch: &patch }).await.unwrap().object;
        let mut declared = merged.clone();
        declared["spec"]["quotaAllowance"] = json!(3);
        declared["status"] = json!({"id": "c"});
        let declared = self.write(Write::Replace(&declared)).await.unwrap().object;
        let shown =
            |it: &Value| json!([it["spec"]["quotaAllowance"], it["status"], it["metadata"]["generation"]]);
        let patch = json!({"metadata": {"resourceVersion": declared["metadata"]["resourceVersion"],
            "finalizers": ["coder.com/finalizer"]}});
        let held = self.write(Write::Merge { key: &key, patch: &patch }).await.unwrap();
        let uid = held.metadata().uid.clone().unwrap();
        self.cluster.delete(&key, Only { uid: &uid, version: None }).await.unwrap();
        let deleted = self.cluster.get(&key, Reading::Now).await.unwrap().unwrap().object;
        let states = [&created, &reported, &merged, &declared, &held.object, &deleted].map(shown);
        vec![json!(states), code(&stale)]
    }

    async fn deletion(&self) -> Vec<Value> {
        let created = self.created(&self.map("deletion", &json!({}))).await;
        let (uid, key) = (created.metadata().uid.clone().unwrap(), self.key("deletion"));
        let of_another = Only { uid: ANOTHER, version: None };
        let another = self.cluster.delete(&key, of_another).await;
        let stale = self.cluster.delete(&key, Only { uid: &uid, version: Some("1") }).await;
        let done = self.cluster.delete(&key, Only { uid: &uid, version: None }).await;
        let left = self.read("deletion").await;
        let again = self.cluster.delete(&key, Only { uid: &uid, version: None }).await;
        vec![code(&another), code(&stale), code(&done), json!(left), code(&again)]
    }

    async fn finalizers(&self) -> Vec<Value> {
        let mut map = self.map("finalizers", &json!({}));
        map["metadata"]["finalizers"] = json!(["coder.com/finalizer"]);
        let created = self.created(&map).await;
        let (uid, key) = (created.metadata().uid.clone().unwrap(), self.key("finalizers"));
        let done = self.cluster.delete(&key, Only { uid: &uid, version: None }).await;
        let held = self.read("finalizers").await.unwrap();
        let is_deleted = held["metadata"]["deletionTimestamp"].is_string();
        let version = &held["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": []}});
        let released = self.write(Write::Merge { key: &key, patch: &patch }).await;
        let left = self.read("finalizers").await;
        vec![code(&done), json!(is_deleted), code(&released), json!(left)]
    }

    async fn owners(&self) -> Vec<Value> {
        let owner = self.created(&self.map("owner", &json!({}))).await;
        let uid = owner.metadata().uid.clone().unwrap();
        let mut owned = self.map("owned", &json!({}));
        owned["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
        self.created(&owned).await;
        let done = self.cluster.delete(&self.key("owner"), Only { uid: &uid, version: None }).await;
        // The garbage collector of a real cluster takes a moment.
        let gone = tokio::time::timeout(LIMIT, async {
            while self.read("owned").await.is_some() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        vec![code(&done), json!(gone.await.is_ok())]
    }

    async fn lists(&self) -> Vec<Value> {
        // Other namespaces of the same cluster have lists of their own.
        let listed = self.namespace.as_str();
        for (name, label) in [("list-b", listed), ("list-a", listed), ("list-c", "no")] {
            let mut map = self.map(name, &json!({}));
            map["metadata"]["labels"] = json!({"listed": label});
            self.created(&map).await;
        }
        let labels: Selector = [("listed".to_owned(), listed.to_owned())].into_iter().collect();
        let names = async |namespace: Option<&str>, labels: Selector| {
            let list = List { api_version: "v1", kind: "ConfigMap", namespace, labels };
            let found = self.cluster.list(&list, Reading::Now).await.unwrap();
            let mut names: Vec<String> = found.into_iter().map(|it| it.key.name).collect();
            names.sort();
            names
        };
        let here = names(Some(&self.namespace), labels.clone()).await;
        let everywhere = names(None, labels.clone()).await;
        let nowhere = names(Some("no-such-namespace"), labels).await;
        let all = names(Some(&self.namespace), Selector::default()).await;
        vec![json!(here), json!(everywhere), json!(nowhere), json!(all.contains(&"list-c".to_owned()))]
    }

    async fn secrets(&self) -> Vec<Value> {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret",
            "namespace": self.namespace, "annotations": {"coder.com/record": "{}"}}, "data": {"key": "djE="}});
        self.created(&secret).await;
        let (cluster, namespace) = (&self.cluster, &self.namespace);
        let read = cluster.secret(namespace, "secret", "reader").await.unwrap().unwrap();
        let missing = cluster.secret(namespace, "no-secret", "reader").await.unwrap();
        let metadata = cluster.secret_metadata(namespace, "secret").await.unwrap().unwrap();
        let missing_metadata = cluster.secret_metadata(namespace, "no-secret").await.unwrap();
        let all = cluster.secrets(namespace).await.unwrap();
        let names: Vec<Option<String>> = all.into_iter().map(|it| it.name).collect();
        vec![
            json!(read.data),
            json!(missing.is_none()),
            json!(metadata.annotations),
            json!(missing_metadata.is_none()),
            json!(names),
        ]
    }

    async fn rest(&self) -> Vec<Value> {
        let own = self.cluster.namespace(&self.namespace).await.unwrap();
        let missing = self.cluster.namespace("no-such-namespace").await.unwrap();
        let log = Log {
            namespace: &self.namespace,
            pod: "no-such-pod",
            container: "coder",
            previous: false,
            lines: 1,
            bytes: 100,
        };
        let log = self.cluster.log(&log).await;
        let about = ObjectReference {
            api_version: Some("coder.com/v1alpha1".to_owned()),
            kind: Some("CoderGroup".to_owned()),
            name: Some("developers".to_owned()),
            namespace: Some(self.namespace.clone()),
            ..ObjectReference::default()
        };
        let event = Event {
            is_warning: false,
            reason: Reason::Created,
            action: "Create",
            note: "the group was created",
            must_be_written: true,
        };
        // None of them fails, whatever becomes of it.
        self.cluster.event(&about, event).await;
        self.cluster.left_behind(&about, Reason::Deleting, "the group is left behind").await;
        self.cluster.pause(Duration::from_millis(1)).await;
        vec![
            json!(own.map(|it| it.name == Some(self.namespace.clone()))),
            json!(missing.is_none()),
            code(&log),
        ]
    }
}

/// A cluster in memory with one namespace.
fn memory_of(namespace: &str) -> MemoryCluster {
    let memory = MemoryCluster::new(Arc::new(Timestamp::now), 1);
    memory.set(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace,
        "namespace": ""}}));
    memory
}

impl Side {
    fn in_memory(name: &'static str, namespace: &str) -> Self {
        let cluster = memory_of(namespace);
        let workloads = Some(cluster.clone());
        Self { name, cluster: Arc::new(cluster), workloads, namespace: namespace.to_owned() }
    }
}

mod bed {
    use kube::{
        Api,
        api::{Patch, PatchParams},
        runtime::{conditions::is_crd_established, wait::await_condition},
    };
    use tokio::sync::OnceCell;

    use super::*;
    use crate::{cli::file_cluster::FileCluster, cluster::port::KubeCluster};

    #[tokio::test]
    async fn memory_cluster_answers_as_a_real_api_server() {
        let bed = testbed::shared().unwrap();
        let client = bed.client().await.unwrap();
        let namespace = bed.namespace("conformance").await.unwrap();
        let crds = Api::all(client.clone());
        for crd in api::crds() {
            let name = crd.metadata.name.clone().unwrap();
            let params = PatchParams::apply("conformance").force();
            crds.patch(&name, &params, &Patch::Apply(&crd)).await.unwrap();
            await_condition(crds.clone(), &name, is_crd_established()).await.unwrap();
        }
        let kube = || Arc::new(KubeCluster::for_command(client.clone(), |_| {}));
        let real = Side { name: "API server", cluster: kube(), workloads: None, namespace };
        let memory = Side::in_memory("memory", &real.namespace);
        let found = differences([&real, &memory]).await;
        assert!(found.is_empty(), "{}", found.join("\n"));
        // Files that hold nothing, in front of the same API server.
        let namespace = bed.namespace("conformance").await.unwrap();
        let files = FileCluster { cluster: OnceCell::new_with(Some(Ok(kube()))), ..FileCluster::default() };
        let files = Side { name: "files", cluster: Arc::new(files), workloads: None, namespace };
        let memory = Side::in_memory("memory", &files.namespace);
        let found = differences([&memory, &files]).await;
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
