//! The Node object and its lease.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::Node as NodeObject,
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;

use super::Node;

const FIELD_MANAGER: &str = "bed-node";
const RENEW_EVERY: Duration = Duration::from_secs(2);
const LEASE_SECONDS: i32 = 20;
/// Well before the controller manager would say so.
const TAKEN_FOR_DEAD_AFTER: Duration = Duration::from_secs(10);

/// Makes the node known, and ready.
pub(super) async fn register(node: &Node) -> Result<()> {
    let name = &node.options.name;
    let nodes = Api::<NodeObject>::all(node.options.client.clone());
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let object =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": node.labels()}});
    nodes.patch(name, &parameters, &Patch::Apply(&object)).await.context("register the node")?;
    let now = Timestamp::now();
    let size: BTreeMap<&str, &str> = [("cpu", "64"), ("memory", "256Gi"), ("pods", "5000")].into();
    let status = json!({
        "apiVersion": "v1", "kind": "Node",
        "status": {
            "capacity": size, "allocatable": size,
            "addresses": [
                {"type": "InternalIP", "address": node.address()},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": node.logs.port()}},
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "AgentReady", "message": "pods run as processes",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }],
        },
    });
    nodes
        .patch_status(name, &parameters, &Patch::Apply(&status))
        .await
        .context("say that the node is ready")?;
    renew(node).await
}

/// Renews the lease for as long as the agent lives: its silence is how a dead node is noticed.
pub(super) async fn keep_lease(node: Arc<Node>) {
    let mut renewed = Instant::now();
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        // After a pause of the whole process the node may have been given up, and nobody but us says otherwise.
        let was_away = renewed.elapsed() > TAKEN_FOR_DEAD_AFTER;
        let kept = if was_away { register(&node).await } else { renew(&node).await };
        // The next renewal comes before the lease ends, so one that fails is no harm.
        if kept.is_ok() {
            renewed = Instant::now();
        }
    }
}

async fn renew(node: &Node) -> Result<()> {
    let name = &node.options.name;
    let lease = Lease {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.clone()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }),
    };
    let leases = Api::<Lease>::namespaced(node.options.client.clone(), "kube-node-lease");
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    leases.patch(name, &parameters, &Patch::Apply(&lease)).await.context("renew the node's lease")?;
    Ok(())
}
