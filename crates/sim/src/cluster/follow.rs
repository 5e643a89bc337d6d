//! Watches of the cluster: a list, then every change in order, until the watch is lost.

use std::collections::VecDeque;

use engine::ports::{ClusterError, Watch, WatchEvent, WatchEvents};
use futures::{StreamExt as _, channel::mpsc, stream};

use super::MemoryCluster;

/// A watch that is followed.
struct Following {
    cluster: MemoryCluster,
    watch: Watch,
    /// Events of the list that are not shown yet.
    listed: VecDeque<WatchEvent>,
    /// `None` until the list begins, and after the watch was lost.
    changes: Option<mpsc::UnboundedReceiver<WatchEvent>>,
}

impl Following {
    async fn next(&mut self) -> Result<WatchEvent, ClusterError> {
        let Some(changes) = &mut self.changes else {
            let (listed, changes) = self.cluster.lock().begin_watch(&self.watch);
            (self.listed, self.changes) = (listed, Some(changes));
            return Ok(self.listed.pop_front().unwrap_or(WatchEvent::Init));
        };
        if let Some(listed) = self.listed.pop_front() {
            return Ok(listed);
        }
        let changed = changes.next().await;
        changed.ok_or_else(|| {
            self.changes = None;
            ClusterError::NoAnswer(format!("the watch of {} was lost", self.watch.kind))
        })
    }
}

impl MemoryCluster {
    pub(super) fn follow(&self, watch: Watch) -> WatchEvents {
        let following = Following { cluster: self.clone(), watch, listed: VecDeque::new(), changes: None };
        Box::pin(stream::unfold(following, |mut following| async {
            let event = following.next().await;
            Some((event, following))
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::Cluster;
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    fn group(name: &str) -> Value {
        json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup",
            "metadata": {"name": name, "namespace": "n"}, "spec": {}})
    }

    async fn next(events: &mut WatchEvents) -> String {
        match events.next().await.unwrap() {
            Ok(event) => format!("{event:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn lost_watch_lists_what_it_missed() {
        let cluster = MemoryCluster::new(Arc::new(|| Timestamp::UNIX_EPOCH), 1);
        cluster.set(&group("a"));
        let watch = Watch::new("coder.com/v1alpha1", "CoderGroup");
        let mut events = Arc::new(cluster.clone()).watch(watch);
        for expected in ["Init", r#"InitApply CoderGroup n/a in version Some("1")"#, "InitDone"] {
            assert_eq!(next(&mut events).await, expected);
        }
        cluster.set(&group("b"));
        cluster.lose_watches();
        cluster.set(&group("c"));
        cluster.remove("CoderGroup", "a");
        assert_eq!(next(&mut events).await, r#"Apply CoderGroup n/b in version Some("2")"#);
        assert_eq!(next(&mut events).await, "the watch of CoderGroup was lost");
        for expected in [
            "Init",
            r#"InitApply CoderGroup n/b in version Some("2")"#,
            r#"InitApply CoderGroup n/c in version Some("3")"#,
            "InitDone",
        ] {
            assert_eq!(next(&mut events).await, expected);
        }
        assert!(futures::poll!(events.next()).is_pending());
        cluster.remove("CoderGroup", "b");
        assert_eq!(next(&mut events).await, r#"Delete CoderGroup n/b in version Some("5")"#);
    }

    #[tokio::test]
    async fn copy_of_a_cluster_shows_nothing_to_watches_of_the_first() {
        let cluster = MemoryCluster::new(Arc::new(|| Timestamp::UNIX_EPOCH), 1);
        let mut events = Arc::new(cluster.clone()).watch(Watch::new("coder.com/v1alpha1", "CoderGroup"));
        next(&mut events).await;
        next(&mut events).await;
        cluster.copy(Arc::new(|| Timestamp::UNIX_EPOCH)).set(&group("a"));
        assert!(futures::poll!(events.next()).is_pending());
    }
}
