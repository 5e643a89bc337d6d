//! Asks pods in trouble for the last line of their logs. Whatever fails here costs the line and nothing else.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use secrecy::{ExposeSecret, SecretString};

use crate::{
    objects::last_lines::{self, Asked, last_line, plain_values, secrets_read, whom_to_ask},
    ports::{Cluster, ClusterError, Log},
};

/// The last line of each pod that could say why it is in trouble, by the pod's name, scrubbed.
pub(super) async fn of(pods: &[Pod], namespace: &str, cluster: &dyn Cluster) -> BTreeMap<String, String> {
    let mut lines = BTreeMap::new();
    for asked in whom_to_ask(pods) {
        let Some(pod) = pods.iter().find(|it| it.name_any() == asked.pod) else { continue };
        if let Ok(Some(line)) = line(pod, &asked, namespace, cluster).await {
            lines.insert(asked.pod, line);
        }
    }
    lines
}

async fn line(
    pod: &Pod,
    asked: &Asked,
    namespace: &str,
    cluster: &dyn Cluster,
) -> Result<Option<String>, ClusterError> {
    // Without knowing what must not be shown nothing is.
    let secrets = values(pod, namespace, cluster).await?;
    let log = Log {
        namespace,
        pod: &asked.pod,
        container: &asked.container,
        previous: asked.previous,
        lines: last_lines::LINES,
        bytes: last_lines::BYTES,
    };
    let log = cluster.log(&log).await?;
    let secrets = secrets.iter().map(ExposeSecret::expose_secret);
    let values: Vec<&str> = secrets.chain(plain_values(pod)).collect();
    Ok(last_line(log.as_bytes(), &values))
}

/// The values of every Secret that a pod reads, to be hidden in what is shown of its logs. They go nowhere, so also those are read
/// that no manifest may refer to.
async fn values(
    pod: &Pod,
    namespace: &str,
    cluster: &dyn Cluster,
) -> Result<Vec<SecretString>, ClusterError> {
    let mut values = Vec::new();
    for name in secrets_read(pod) {
        let found = cluster.secret(namespace, &name, "").await?.and_then(|it| it.data).unwrap_or_default();
        let texts = found.into_values().filter_map(|it| String::from_utf8(it.0).ok());
        values.extend(texts.map(SecretString::from));
    }
    Ok(values)
}
