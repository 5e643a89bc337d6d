//! Binds pods that nobody has placed to this node.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream::FuturesUnordered};
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::json;

use super::Node;

/// How long a pod that could not be placed is left alone.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Watches for pods without a node and binds those that want this one.
pub(super) async fn run(node: Arc<Node>) {
    let pods = Api::<Pod>::all(node.options.client.clone());
    let unplaced = watcher::Config::default().fields("spec.nodeName=");
    let mut stream = pin!(watcher(pods, unplaced).default_backoff().applied_objects());
    // Placing goes on beside the watch: one pod that the API server is slow to bind must not hold up the others.
    let mut placing = FuturesUnordered::new();
    loop {
        tokio::select! {
            // A watch that broke is taken up again by the stream itself.
            found = stream.try_next() => match found {
                Ok(Some(pod)) => placing.push(place_at_last(&node, pod)),
                Ok(None) => return,
                Err(_) => {}
            },
            Some(()) = placing.next() => {}
        }
    }
}

/// Tries until the pod is placed, or gone.
async fn place_at_last(node: &Node, pod: Pod) {
    while let Err(error) = place(node, &pod).await {
        let answer = error.downcast_ref::<kube::Error>();
        if matches!(answer, Some(kube::Error::Api(status)) if status.code == 404 || status.code == 409) {
            return;
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

async fn place(node: &Node, pod: &Pod) -> Result<()> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let pods = Api::<Pod>::namespaced(node.options.client.clone(), &pod.namespace().unwrap_or_default());
    let wanted = pod.spec.as_ref().and_then(|it| it.node_selector.clone()).unwrap_or_default();
    if let Err(message) = fits(&wanted, &node.labels()) {
        let condition =
            json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
        let known = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
        if known.into_iter().any(|it| it.type_ == "PodScheduled" && it.message.as_deref() == Some(&message)) {
            return Ok(());
        }
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch)
            .await
            .context("say that a pod fits nowhere")?;
        return Ok(());
    }
    let binding = Binding {
        metadata: ObjectMeta { name: Some(pod.name_any()), uid: pod.uid(), ..ObjectMeta::default() },
        target: ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(node.options.name.clone()),
            ..ObjectReference::default()
        },
    };
    pods.create_subresource::<_, serde_json::Value>(
        "binding",
        &pod.name_any(),
        &PostParams::default(),
        &binding,
    )
    .await
    .with_context(|| format!("bind pod {}", pod.name_any()))?;
    Ok(())
}

/// Whether a node with these labels is one that the pod wants, or why not, in the scheduler's words.
fn fits(wanted: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> Result<(), String> {
    if wanted.iter().all(|(key, value)| labels.get(key) == Some(value)) {
        return Ok(());
    }
    Err("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_fits_when_it_has_every_label_that_is_wanted() {
        let labels = BTreeMap::from([("os".to_owned(), "linux".to_owned())]);
        assert!(fits(&BTreeMap::new(), &labels).is_ok());
        assert!(fits(&labels, &labels).is_ok());
        let other = BTreeMap::from([("os".to_owned(), "plan9".to_owned())]);
        assert!(fits(&other, &labels).unwrap_err().contains("0/1 nodes"));
    }
}
