//! Who watches which objects, and what is shown to whom.

use std::collections::{BTreeMap, VecDeque};

use engine::ports::{
    Watch, WatchEvent,
    object::{Key, Live},
};
use futures::channel::mpsc;
use kube::core::SelectorExt as _;
use serde_json::{Value, json};

/// The watches that are not lost.
#[derive(Debug, Default)]
pub(super) struct Watchers(Vec<Watcher>);

/// A copy of a cluster is watched by nobody.
impl Clone for Watchers {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[derive(Debug)]
struct Watcher {
    watch: Watch,
    sender: mpsc::UnboundedSender<WatchEvent>,
}

impl Watcher {
    /// Sends an event. Returns whether somebody still watches.
    fn send(&self, event: Option<WatchEvent>) -> bool {
        match event {
            Some(event) => self.sender.unbounded_send(event).is_ok(),
            None => !self.sender.is_closed(),
        }
    }
}

impl Watchers {
    /// Begins a watch: the events of its list, and the receiver of every later change.
    pub(super) fn begin(
        &mut self,
        watch: &Watch,
        objects: &BTreeMap<Key, Value>,
    ) -> (VecDeque<WatchEvent>, mpsc::UnboundedReceiver<WatchEvent>) {
        let covered = objects.iter().filter(|(key, it)| shows(watch, key, it));
        let listed = covered.filter_map(|(_, it)| shown(watch, it)).map(WatchEvent::InitApply);
        let events = [WatchEvent::Init].into_iter().chain(listed).chain([WatchEvent::InitDone]).collect();
        let (sender, receiver) = mpsc::unbounded();
        self.0.push(Watcher { watch: watch.clone(), sender });
        (events, receiver)
    }

    /// Shows an object that was stored over what was there before.
    pub(super) fn stored(&mut self, key: &Key, before: Option<&Value>, after: &Value) {
        self.0.retain(|it| {
            let was_shown = before.is_some_and(|before| shows(&it.watch, key, before));
            let event = if shows(&it.watch, key, after) {
                shown(&it.watch, after).map(WatchEvent::Apply)
            } else if let Some(before) = before.filter(|_| was_shown) {
                // As it was when it was last shown, in the version that is not shown.
                let mut last = before.clone();
                last["metadata"]["resourceVersion"] = after["metadata"]["resourceVersion"].clone();
                shown(&it.watch, &last).map(WatchEvent::Delete)
            } else {
                None
            };
            it.send(event)
        });
    }

    /// Shows that an object was removed, in the version of its deletion.
    pub(super) fn removed(&mut self, key: &Key, object: &Value) {
        self.0.retain(|it| {
            let event = if shows(&it.watch, key, object) { shown(&it.watch, object) } else { None };
            it.send(event.map(WatchEvent::Delete))
        });
    }

    /// The kinds of the watches that somebody follows, one for each watch.
    pub(super) fn kinds(&self) -> Vec<String> {
        let followed = self.0.iter().filter(|it| !it.sender.is_closed());
        followed.map(|it| it.watch.kind.clone()).collect()
    }

    /// Loses every watch: each reports that and begins anew with a list.
    pub(super) fn lose(&mut self) {
        self.0.clear();
    }
}

/// Whether a watch covers an object.
fn shows(watch: &Watch, key: &Key, object: &Value) -> bool {
    let labels = serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default();
    key.api_version == watch.api_version
        && key.kind == watch.kind
        && watch.namespace.as_ref().is_none_or(|it| *it == key.namespace)
        && watch.labels.matches(&labels)
}

/// An object as a watch shows it.
fn shown(watch: &Watch, object: &Value) -> Option<Live> {
    if !watch.only_metadata {
        return Live::new(object.clone());
    }
    Live::new(
        json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": object["metadata"]}),
    )
}
