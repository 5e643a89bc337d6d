//! The objects of a cluster, and the rules by which writes change them.

use std::collections::{BTreeMap, VecDeque};

use engine::ports::{ClusterError, Only, Watch, WatchEvent, Write, object::Key};
use futures::channel::mpsc;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    merge::{apply, merge_patch},
    record::{PodLog, RecordedEvent},
    watch::Watchers,
};
use crate::ids::Ids;

/// Metadata that only the API server writes.
const OF_SERVER: [&str; 4] = ["uid", "creationTimestamp", "deletionTimestamp", "generation"];

#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) objects: BTreeMap<Key, Value>,
    pub(super) writes: u64,
    pub(super) events: Vec<RecordedEvent>,
    pub(super) logs: BTreeMap<PodLog, String>,
    /// Which objects cannot be created or replaced.
    pub(super) is_refused: Option<fn(&Value) -> bool>,
    /// The kinds that cannot be listed in one namespace or in all, with the code of the answer.
    pub(super) unlisted: Vec<(&'static str, Option<&'static str>, u16)>,
    pub(super) watchers: Watchers,
    seed: u64,
    issued: u64,
    /// The resourceVersion of the last change.
    version: u64,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            writes: 0,
            events: Vec::new(),
            logs: BTreeMap::new(),
            is_refused: None,
            unlisted: Vec::new(),
            watchers: Watchers::default(),
            seed,
            issued: 0,
            version: 0,
        }
    }

    /// Bytes that follow from the seed and from how many were issued.
    pub(super) fn random(&mut self) -> [u8; 32] {
        Ids { seed: self.seed, issued: &mut self.issued }.bytes()
    }

    /// Letters for the end of a name.
    pub(super) fn suffix(&mut self) -> String {
        Ids { seed: self.seed, issued: &mut self.issued }.letters(8).to_ascii_lowercase()
    }

    /// Begins a watch.
    pub(super) fn begin_watch(
        &mut self,
        watch: &Watch,
    ) -> (VecDeque<WatchEvent>, mpsc::UnboundedReceiver<WatchEvent>) {
        self.watchers.begin(watch, &self.objects)
    }

    /// Stores an object as it is, and shows it to watches. One without a uid gets one.
    pub(super) fn store(&mut self, key: &Key, mut object: Value, now: Timestamp) -> Value {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = self.version.to_string().into();
        if metadata["uid"].is_null() {
            let mut ids = Ids { seed: self.seed, issued: &mut self.issued };
            metadata["uid"] = ids.uuid().to_string().into();
        }
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = seconds(now);
        }
        let before = self.objects.insert(key.clone(), object.clone());
        self.watchers.stored(key, before.as_ref(), &object);
        object
    }

    pub(super) fn write(&mut self, write: Write<'_>, now: Timestamp) -> Result<Value, ClusterError> {
        if let (
            Write::Create(object) | Write::Replace(object) | Write::Apply(object) | Write::ApplyNew(object),
            Some(is_refused),
        ) = (write, self.is_refused)
            && is_refused(object)
        {
            return Err(ClusterError::refusal(403, "Forbidden", "it cannot be written"));
        }
        let written = match write {
            Write::Create(object) => self.create(&key_of(object)?, object.clone(), now),
            Write::Replace(object) => {
                let key = key_of(object)?;
                let before = self.meant(&key, object)?;
                if object["metadata"]["resourceVersion"].is_null() {
                    return Err(invalid(&key, "metadata.resourceVersion must be specified for an update"));
                }
                self.change(&key, &before, object.clone(), now)
            }
            Write::Apply(object) => {
                let key = key_of(object)?;
                if self.objects.contains_key(&key) {
                    let before = self.patched(&key, object)?;
                    self.change(&key, &before, apply(Some(&before), object), now)
                } else if object["metadata"]["uid"].is_null() {
                    self.create(&key, apply(None, object), now)
                } else {
                    // The object that was meant is gone.
                    Err(conflict(&key))
                }
            }
            Write::ApplyNew(object) => {
                let key = key_of(object)?;
                if self.objects.contains_key(&key) {
                    return Err(conflict(&key));
                }
                self.create(&key, apply(None, object), now)
            }
            Write::Merge { key, patch } => {
                let before = self.patched(key, patch)?;
                let mut next = before.clone();
                merge_patch(&mut next, patch);
                self.change(key, &before, next, now)
            }
            Write::ReplaceStatus(object) => {
                let key = key_of(object)?;
                let mut next = self.meant(&key, object)?;
                next["status"] = object["status"].clone();
                Ok(self.put(&key, next, now))
            }
            Write::MergeStatus { key, patch } => {
                let mut next = self.patched(key, patch)?;
                merge_patch(&mut next["status"], &patch["status"]);
                Ok(self.put(key, next, now))
            }
        }?;
        self.writes += 1;
        Ok(written)
    }

    /// The object that a write is for, if the preconditions in the write hold.
    fn meant(&self, key: &Key, write: &Value) -> Result<Value, ClusterError> {
        let missing = || ClusterError::refusal(404, "NotFound", &format!("{key} not found"));
        let found = self.objects.get(key).ok_or_else(missing)?;
        let holds = |name: &str| {
            let wanted = &write["metadata"][name];
            wanted.is_null() || *wanted == found["metadata"][name]
        };
        if holds("uid") && holds("resourceVersion") { Ok(found.clone()) } else { Err(conflict(key)) }
    }

    /// The same for a patch, to which the uid is a field that cannot be changed.
    fn patched(&self, key: &Key, patch: &Value) -> Result<Value, ClusterError> {
        let mut without_uid = patch.clone();
        if let Some(metadata) = without_uid["metadata"].as_object_mut() {
            metadata.remove("uid");
        }
        let found = self.meant(key, &without_uid)?;
        let uid = &patch["metadata"]["uid"];
        if uid.is_null() || *uid == found["metadata"]["uid"] {
            Ok(found)
        } else {
            Err(invalid(key, "metadata.uid: field is immutable"))
        }
    }

    /// A Namespace. A cluster in which none was created has them all.
    pub(super) fn namespace(&self, name: &str) -> Option<Value> {
        let has_some = self.objects.keys().any(|it| it.kind == "Namespace");
        let any = || json!({"metadata": {"name": name}});
        if has_some { self.objects.get(&Key::new("v1", "Namespace", "", name)).cloned() } else { Some(any()) }
    }

    fn create(&mut self, key: &Key, mut object: Value, now: Timestamp) -> Result<Value, ClusterError> {
        if self.objects.contains_key(key) {
            return Err(ClusterError::refusal(409, "AlreadyExists", &format!("{key} already exists")));
        }
        let Some(namespace) = self.namespace(&key.namespace) else {
            let message = format!("namespace {} not found", key.namespace);
            return Err(ClusterError::refusal(404, "NotFound", &message));
        };
        if is_terminating(&namespace) {
            let message = format!("namespace {} is being terminated", key.namespace);
            return Err(ClusterError::refusal(403, "Forbidden", &message));
        }
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|name, _| !OF_SERVER.contains(&name.as_str()));
        }
        if !object["spec"].is_null() {
            object["metadata"]["generation"] = 1.into();
        }
        Ok(self.store(key, object, now))
    }

    /// Changes everything of an object but its status.
    fn change(
        &mut self,
        key: &Key,
        before: &Value,
        mut next: Value,
        now: Timestamp,
    ) -> Result<Value, ClusterError> {
        restore(&mut next, before, "status");
        for name in OF_SERVER {
            restore(&mut next["metadata"], &before["metadata"], name);
        }
        let is_new = |it: &Value| !finalizers(before).contains(it);
        if is_terminating(before) && finalizers(&next).iter().any(is_new) {
            return Err(invalid(key, "no new finalizers can be added if the object is being deleted"));
        }
        if before["immutable"] == true && ["data", "immutable"].iter().any(|it| before[it] != next[it]) {
            return Err(invalid(key, "data: field is immutable when `immutable` is set"));
        }
        if before["spec"] != next["spec"] {
            let generation = before["metadata"]["generation"].as_i64().unwrap_or_default();
            next["metadata"]["generation"] = (generation + 1).into();
        }
        if is_terminating(&next) && finalizers(&next).is_empty() {
            // Watches are shown the deletion alone, of the object as it was before this write.
            self.remove(key, now);
            next["metadata"]["resourceVersion"] = self.version.to_string().into();
            return Ok(next);
        }
        Ok(self.put(key, next, now))
    }

    /// Stores the next version of an object. A write that changes nothing makes no new version.
    pub(super) fn put(&mut self, key: &Key, mut next: Value, now: Timestamp) -> Value {
        if let Some(before) = self.objects.get(key) {
            restore(&mut next["metadata"], &before["metadata"], "resourceVersion");
            if next == *before {
                return next;
            }
        }
        self.store(key, next, now)
    }

    pub(super) fn delete(&mut self, key: &Key, only: Only<'_>, now: Timestamp) -> Result<(), ClusterError> {
        let Some(found) = self.objects.get(key) else { return Ok(()) };
        let metadata = &found["metadata"];
        let is_version = |it: &str| metadata["resourceVersion"] == it;
        if metadata["uid"] != only.uid || !only.version.is_none_or(is_version) {
            return Err(conflict(key));
        }
        self.writes += 1;
        self.end(key, now);
        Ok(())
    }

    /// Removes an object, or marks it as deleted while it has finalizers.
    pub(super) fn end(&mut self, key: &Key, now: Timestamp) {
        let Some(found) = self.objects.get(key) else { return };
        if finalizers(found).is_empty() {
            self.remove(key, now);
        } else if !is_terminating(found) {
            let mut deleted = found.clone();
            deleted["metadata"]["deletionTimestamp"] = seconds(now);
            if let Some(generation) = deleted["metadata"]["generation"].as_i64() {
                deleted["metadata"]["generation"] = (generation + 1).into();
            }
            self.store(key, deleted, now);
        }
    }

    pub(super) fn remove_named(&mut self, kind: &str, name: &str, now: Timestamp) {
        let is_it = |key: &&Key| key.kind == kind && key.name == name;
        let keys: Vec<Key> = self.objects.keys().filter(is_it).cloned().collect();
        for key in &keys {
            self.remove(key, now);
        }
    }

    /// Removes an object, and deletes those whose last owner it was.
    fn remove(&mut self, key: &Key, now: Timestamp) {
        let Some(mut removed) = self.objects.remove(key) else { return };
        self.version += 1;
        removed["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.watchers.removed(key, &removed);
        let uid = &removed["metadata"]["uid"];
        let is_left = |object: &Value| {
            let owners: Vec<&Value> = owners(object).map(|it| &it["uid"]).collect();
            let is_there = |owner: &Value| self.objects.values().any(|it| it["metadata"]["uid"] == *owner);
            owners.contains(&uid) && !owners.into_iter().any(is_there)
        };
        let left: Vec<Key> =
            self.objects.iter().filter(|(_, it)| is_left(it)).map(|(key, _)| key.clone()).collect();
        for key in &left {
            self.end(key, now);
        }
    }
}

/// Gives a field the value that it had before.
fn restore(next: &mut Value, before: &Value, name: &str) {
    match before.get(name) {
        Some(value) => next[name] = value.clone(),
        None => drop(next.as_object_mut().map(|it| it.remove(name))),
    }
}

fn is_terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn finalizers(object: &Value) -> &[Value] {
    object["metadata"]["finalizers"].as_array().map_or(&[], Vec::as_slice)
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

/// A time as metadata has it: in whole seconds.
pub(super) fn seconds(time: Timestamp) -> Value {
    json!(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

fn key_of(object: &Value) -> Result<Key, ClusterError> {
    Key::of(object).ok_or_else(|| ClusterError::refusal(400, "BadRequest", "the object has no kind or name"))
}

fn conflict(key: &Key) -> ClusterError {
    ClusterError::refusal(409, "Conflict", &format!("{key} has changed since it was read"))
}

fn invalid(key: &Key, why: &str) -> ClusterError {
    ClusterError::refusal(422, "Invalid", &format!("{key} is invalid: {why}"))
}

#[cfg(test)]
mod tests;
