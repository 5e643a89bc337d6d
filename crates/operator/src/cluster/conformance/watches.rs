//! Watches: what is listed, what is shown afterwards, and in which order.

use std::sync::Arc;

use engine::ports::{Only, Watch, WatchEvent, WatchEvents, Write};
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::{LIMIT, Side};

/// The version of an object, which counts up.
fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Events with their versions, and without what differs between two clusters.
#[derive(Default)]
struct Seen {
    events: Vec<Value>,
    versions: Vec<u64>,
}

impl Seen {
    /// Follows a watch until an event of that kind is about the object of that name; `None` is the end of the list.
    async fn until(&mut self, events: &mut WatchEvents, kind: &str, name: Option<&str>) {
        let shown = async {
            loop {
                // A watch that fails begins anew, which shows in the events.
                let Ok(event) = events.next().await.unwrap() else { continue };
                let (what, object) = match event {
                    WatchEvent::Init => ("Init", None),
                    WatchEvent::InitApply(object) => ("InitApply", Some(object)),
                    WatchEvent::InitDone => ("InitDone", None),
                    WatchEvent::Apply(object) => ("Apply", Some(object)),
                    WatchEvent::Delete(object) => ("Delete", Some(object)),
                };
                let about = object.as_ref().map(|it| it.key.name.clone());
                self.enter(what, object.map(|it| it.object));
                if what == kind && about.as_deref() == name {
                    return;
                }
            }
        };
        if tokio::time::timeout(LIMIT, shown).await.is_err() {
            self.events.push(json!(["nothing more", kind, name]));
        }
    }

    fn enter(&mut self, what: &str, object: Option<Value>) {
        let Some(object) = object else { return self.events.push(json!([what])) };
        let metadata = &object["metadata"];
        let is_deleted = metadata["deletionTimestamp"].is_string();
        let kinds = [&object["apiVersion"], &object["kind"]];
        let fields = [&metadata["name"], &metadata["labels"], &object["data"], &metadata["finalizers"]];
        self.events.push(json!([what, kinds, fields, is_deleted]));
        if what != "InitApply" {
            self.versions.push(version(&object));
        }
    }
}

impl Side {
    fn labelled(&self, name: &str, watched: &str) -> Value {
        let mut map = self.map(name, &json!({"a": "1"}));
        map["metadata"]["labels"] = json!({"watched": watched});
        map
    }

    /// Merges a patch into an object of the watch cases, and returns the version that it has then.
    async fn merged(&self, name: &str, patch: &Value) -> u64 {
        let write = Write::Merge { key: &self.key(name), patch };
        version(&self.cluster.write(write, "").await.unwrap().object)
    }

    async fn deleted(&self, name: &str) {
        let uid = self.read(name).await.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        self.cluster.delete(&self.key(name), Only { uid: &uid, version: None }).await.unwrap();
    }

    fn watch(&self, kind: &str, label: &str) -> Watch {
        let labels = [("watched".to_owned(), label.to_owned())].into_iter().collect();
        Watch { namespace: Some(self.namespace.clone()), ..Watch::new("v1", kind) }.labelled(labels)
    }

    pub(super) async fn watches(&self) -> Vec<Value> {
        self.created(&self.labelled("watch-a", "yes")).await;
        self.created(&self.labelled("watch-b", "no")).await;
        let (mut seen, mut written) = (Seen::default(), Vec::new());
        let mut events = Arc::clone(&self.cluster).watch(self.watch("ConfigMap", "yes"));
        seen.until(&mut events, "InitDone", None).await;
        written.push(version(&self.created(&self.labelled("watch-c", "yes")).await.object));
        self.created(&self.labelled("watch-d", "no")).await;
        written.push(self.merged("watch-a", &json!({"data": {"a": "2"}})).await);
        // A write that changes nothing is no event.
        self.merged("watch-a", &json!({"data": {"a": "2"}})).await;
        // Objects get the label, and lose it.
        written.push(self.merged("watch-b", &json!({"metadata": {"labels": {"watched": "yes"}}})).await);
        let patch = json!({"metadata": {"labels": {"watched": "no"}}, "data": {"a": "3"}});
        written.push(self.merged("watch-b", &patch).await);
        written.push(
            self.merged("watch-a", &json!({"metadata": {"finalizers": ["coder.com/finalizer"]}})).await,
        );
        self.deleted("watch-a").await;
        self.deleted("watch-c").await;
        self.merged("watch-a", &json!({"metadata": {"finalizers": []}})).await;
        seen.until(&mut events, "Delete", Some("watch-a")).await;
        let are_in_order = seen.versions.is_sorted();
        let is_shown = written.iter().all(|it| seen.versions.contains(it));
        // A watch that begins later lists what there is by then.
        self.created(&self.labelled("watch-e", "yes")).await;
        let mut later = Seen::default();
        let mut events = Arc::clone(&self.cluster).watch(self.watch("ConfigMap", "yes"));
        later.until(&mut events, "InitDone", None).await;
        vec![json!(seen.events), json!([are_in_order, is_shown]), json!(later.events)]
    }

    pub(super) async fn metadata_watches(&self) -> Vec<Value> {
        let secret = |name: &str| {
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": self.namespace,
                "labels": {"watched": "metadata"}}, "data": {"key": "djE="}})
        };
        self.created(&secret("watch-a")).await;
        let watch = self.watch("Secret", "metadata").only_metadata();
        let mut seen = Seen::default();
        let mut events = Arc::clone(&self.cluster).watch(watch);
        seen.until(&mut events, "InitDone", None).await;
        self.created(&secret("watch-b")).await;
        seen.until(&mut events, "Apply", Some("watch-b")).await;
        vec![json!(seen.events)]
    }
}
