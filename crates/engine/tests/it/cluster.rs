//! A cluster in memory: objects with versions and uids, and a clock that tests put forward.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
};

use api::Reason;
use engine::{
    Cluster,
    objects::{FIELD_MANAGER, Key, Live},
    ports::{Answer, ClusterError, Event, List, Log, Only, RandomBytes, Reading, Write},
};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{ObjectReference, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::SelectorExt as _;
use serde_json::{Value, json};

#[derive(Debug, Default)]
pub(crate) struct MemoryCluster(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Key, Value>,
    /// How many writes there were: the version of the last one.
    version: u64,
    /// How many random values were drawn.
    drawn: u64,
    /// How far the clock was put forward.
    later: SignedDuration,
    /// Which objects cannot be created or replaced.
    is_refused: Option<fn(&Value) -> bool>,
    /// The kinds that cannot be listed in all namespaces or in one, with the code of the answer.
    unlisted: Vec<(&'static str, Option<&'static str>, u16)>,
}

impl MemoryCluster {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn advance(&self, by: SignedDuration) {
        self.lock().later += by;
    }

    /// How many writes there were.
    pub(crate) fn writes(&self) -> u64 {
        self.lock().version
    }

    /// Refuses to create or replace the objects for which that is true. `None` refuses none.
    pub(crate) fn refuse_writes(&self, is_refused: Option<fn(&Value) -> bool>) {
        self.lock().is_refused = is_refused;
    }

    /// Refuses lists of a kind in that namespace, or in all of them.
    pub(crate) fn refuse_lists(&self, kind: &'static str, namespace: Option<&'static str>, code: u16) {
        self.lock().unlisted.push((kind, namespace, code));
    }

    /// Puts an object there, whatever is there.
    pub(crate) fn set(&self, object: &Value) {
        let key = Key::of(object).unwrap();
        self.lock().put(key, object.clone());
    }

    pub(crate) fn remove(&self, kind: &str, name: &str) {
        self.lock().objects.retain(|key, _| key.kind != kind || key.name != name);
    }

    /// The first object of that kind and name.
    pub(crate) fn find(&self, kind: &str, name: &str) -> Option<Value> {
        let state = self.lock();
        let found = state.objects.iter().find(|(key, _)| key.kind == kind && key.name == name);
        found.map(|(_, object)| object.clone())
    }

    /// Changes an object as another client would.
    pub(crate) fn edit(&self, kind: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let mut object = self.find(kind, name).unwrap();
        edit(&mut object);
        self.set(&object);
    }
}

impl State {
    fn put(&mut self, key: Key, mut object: Value) -> Live {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = format!("uid-{}", self.version).into();
        }
        self.objects.insert(key, object.clone());
        Live::new(object).unwrap()
    }

    fn write(&mut self, write: Write<'_>) -> Result<Live, ClusterError> {
        let gone = |key: &Key| ClusterError::refusal(404, "NotFound", &format!("{key} not found"));
        let conflict = |key: &Key| ClusterError::refusal(409, "Conflict", &format!("{key} has changed"));
        if let (Write::Create(object) | Write::Replace(object), Some(is_refused)) = (write, self.is_refused)
            && is_refused(object)
        {
            return Err(ClusterError::refusal(403, "Forbidden", "it cannot be written"));
        }
        match write {
            Write::Create(object) => {
                let key = Key::of(object).unwrap();
                if self.objects.contains_key(&key) {
                    return Err(ClusterError::refusal(409, "AlreadyExists", &format!("{key} exists")));
                }
                Ok(self.put(key, object.clone()))
            }
            Write::Replace(object) => {
                let key = Key::of(object).unwrap();
                let now = self.objects.get(&key).ok_or_else(|| gone(&key))?;
                if now["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
                    return Err(conflict(&key));
                }
                Ok(self.put(key, object.clone()))
            }
            Write::Apply(object) => {
                let key = Key::of(object).unwrap();
                let now = self.objects.get(&key).cloned();
                let version = &object["metadata"]["resourceVersion"];
                let is_version = |it: &Value| it["metadata"]["resourceVersion"] == *version;
                if !version.is_null() && !now.as_ref().is_some_and(is_version) {
                    return Err(conflict(&key));
                }
                let mut next = now.unwrap_or_else(|| json!({}));
                merge(&mut next, object);
                next["metadata"]["managedFields"] = json!([{"manager": FIELD_MANAGER, "operation": "Apply",
                    "fieldsType": "FieldsV1", "fieldsV1": fields(object)}]);
                Ok(self.put(key, next))
            }
            Write::Merge { key, patch } => {
                let mut now = self.objects.get(key).cloned().ok_or_else(|| gone(key))?;
                if now["metadata"]["resourceVersion"] != patch["metadata"]["resourceVersion"] {
                    return Err(conflict(key));
                }
                for (field, value) in patch["metadata"].as_object().unwrap() {
                    now["metadata"][field] = value.clone();
                }
                let written = self.put(key.clone(), now);
                let metadata = written.metadata();
                let is_free = metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
                if is_free && metadata.deletion_timestamp.is_some() {
                    self.objects.remove(key);
                }
                Ok(written)
            }
            Write::ReplaceStatus(object) => {
                let key = Key::of(object).unwrap();
                let mut now = self.objects.get(&key).cloned().ok_or_else(|| gone(&key))?;
                if now["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
                    return Err(conflict(&key));
                }
                now["status"] = object["status"].clone();
                Ok(self.put(key, now))
            }
            Write::MergeStatus { key, patch } => {
                let mut now = self.objects.get(key).cloned().ok_or_else(|| gone(key))?;
                if now["metadata"]["resourceVersion"] != patch["metadata"]["resourceVersion"] {
                    return Err(conflict(key));
                }
                if now["status"].is_null() {
                    now["status"] = json!({});
                }
                for (field, value) in patch["status"].as_object().unwrap() {
                    now["status"][field] = value.clone();
                }
                now["status"].as_object_mut().unwrap().retain(|_, it| !it.is_null());
                Ok(self.put(key.clone(), now))
            }
        }
    }

    fn delete(&mut self, key: &Key, only: Only<'_>) -> Result<(), ClusterError> {
        let Some(now) = self.objects.get(key).map(|it| &it["metadata"]) else { return Ok(()) };
        let is_version = |it: &str| now["resourceVersion"] == it;
        if now["uid"] != only.uid || !only.version.is_none_or(is_version) {
            return Err(ClusterError::refusal(409, "Conflict", "the preconditions do not hold"));
        }
        self.objects.remove(key);
        Ok(())
    }
}

/// Applies an object over another one. Lists are replaced.
fn merge(into: &mut Value, object: &Value) {
    match (into, object) {
        (Value::Object(into), Value::Object(fields)) => {
            for (name, field) in fields {
                merge(into.entry(name.clone()).or_insert(Value::Null), field);
            }
        }
        (into, object) => *into = object.clone(),
    }
}

/// The fields of an object that is applied, as the API server keeps them.
fn fields(object: &Value) -> Value {
    let mut object = object.clone();
    object.as_object_mut().unwrap().retain(|name, _| !["apiVersion", "kind"].contains(&name.as_str()));
    let identity = ["name", "namespace", "uid", "resourceVersion"];
    object["metadata"].as_object_mut().unwrap().retain(|name, _| !identity.contains(&name.as_str()));
    tree(&object)
}

fn tree(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (format!("f:{name}"), tree(field))).collect()
        }
        Value::Array(items) => {
            let names: BTreeSet<&str> = items.iter().filter_map(|it| it["name"].as_str()).collect();
            if names.len() < items.len() {
                return json!({});
            }
            let key = |it: &Value| format!("k:{}", json!({"name": it["name"]}));
            items.iter().map(|it| (key(it), tree(it))).collect()
        }
        _ => json!({}),
    }
}

impl Cluster for MemoryCluster {
    fn now(&self) -> Timestamp {
        Timestamp::now() + self.lock().later
    }

    /// The same ones for every cluster, in the same order.
    fn random(&self) -> RandomBytes {
        let mut state = self.lock();
        state.drawn += 1;
        let words = [1, 2, 3, 4].map(|it: u64| (state.drawn * 4 + it).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut bytes = [0; 32];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&(word ^ (word >> 29)).to_le_bytes());
        }
        RandomBytes::new(bytes)
    }

    fn get<'a>(&'a self, key: &'a Key, _: Reading) -> Answer<'a, Option<Live>> {
        let found = self.lock().objects.get(key).cloned().and_then(Live::new);
        Box::pin(async { Ok(found) })
    }

    fn secret<'a>(&'a self, namespace: &'a str, name: &'a str, _: &'a str) -> Answer<'a, Option<Secret>> {
        let found = self.lock().objects.get(&Key::new("v1", "Secret", namespace, name)).cloned();
        Box::pin(async { Ok(found.map(|it| serde_json::from_value(it).unwrap())) })
    }

    fn secrets<'a>(&'a self, namespace: &'a str) -> Answer<'a, Vec<ObjectMeta>> {
        let state = self.lock();
        let found =
            state.objects.iter().filter(|(key, _)| key.kind == "Secret" && key.namespace == namespace);
        let found = found.map(|(_, it)| serde_json::from_value(it["metadata"].clone()).unwrap()).collect();
        Box::pin(async { Ok(found) })
    }

    fn namespace<'a>(&'a self, name: &'a str) -> Answer<'a, Option<ObjectMeta>> {
        let found = self.lock().objects.get(&Key::new("v1", "Namespace", "", name)).cloned();
        Box::pin(async { Ok(found.map(|it| serde_json::from_value(it["metadata"].clone()).unwrap())) })
    }

    fn list<'a>(&'a self, list: &'a List<'a>, _: Reading) -> Answer<'a, Vec<Live>> {
        let state = self.lock();
        let refused = state.unlisted.iter().find(|it| it.0 == list.kind && it.1 == list.namespace);
        if let Some((kind, _, code)) = refused {
            let refusal = ClusterError::refusal(*code, "", &format!("{kind} cannot be listed"));
            return Box::pin(async { Err(refusal) });
        }
        let is_listed = |(key, object): &(&Key, &Value)| {
            let labels = serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default();
            key.api_version == list.api_version
                && key.kind == list.kind
                && list.namespace.is_none_or(|it| it == key.namespace)
                && list.labels.matches(&labels)
        };
        let found = state.objects.iter().filter(is_listed).filter_map(|(_, it)| Live::new(it.clone()));
        let found = found.collect();
        Box::pin(async { Ok(found) })
    }

    fn log<'a>(&'a self, _: &'a Log<'a>) -> Answer<'a, String> {
        Box::pin(async { Err(ClusterError::NoAnswer("there are no logs here".to_owned())) })
    }

    fn write<'a>(&'a self, write: Write<'a>, _: &'a str) -> Answer<'a, Live> {
        let written = self.lock().write(write);
        Box::pin(async { written })
    }

    fn delete<'a>(&'a self, key: &'a Key, only: Only<'a>) -> Answer<'a, ()> {
        let deleted = self.lock().delete(key, only);
        Box::pin(async { deleted })
    }

    fn event<'a>(&'a self, _: &'a ObjectReference, _: Event<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn left_behind<'a>(&'a self, _: &'a ObjectReference, _: Reason, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}
