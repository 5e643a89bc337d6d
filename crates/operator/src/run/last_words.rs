//! Asks pods in trouble what they said last. Whatever fails here costs the line and nothing else.

use std::collections::BTreeMap;

use engine::objects::last_words::{self, Asked, last_line, plain_values, secrets_read, whom_to_ask};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, ResourceExt as _, api::LogParams};
use secrecy::{ExposeSecret, SecretString};

use super::Shared;

/// The last line of each pod that could say why it is in trouble, by the pod's name, scrubbed.
pub(super) async fn of(pods: &[Pod], namespace: &str, shared: &Shared) -> BTreeMap<String, String> {
    let mut lines = BTreeMap::new();
    for asked in whom_to_ask(pods) {
        let Some(pod) = pods.iter().find(|it| it.name_any() == asked.pod) else { continue };
        match line(pod, &asked, namespace, shared).await {
            Ok(Some(line)) => drop(lines.insert(asked.pod, line)),
            Ok(None) => {}
            Err(error) => tracing::debug!(pod = asked.pod, "its log cannot be read: {error}"),
        }
    }
    lines
}

async fn line(
    pod: &Pod,
    asked: &Asked,
    namespace: &str,
    shared: &Shared,
) -> Result<Option<String>, kube::Error> {
    // Without knowing what must not be shown nothing is.
    let secrets = values(pod, namespace, shared).await?;
    let params = LogParams {
        container: Some(asked.container.clone()),
        previous: asked.previous,
        tail_lines: Some(last_words::LINES),
        limit_bytes: Some(last_words::BYTES),
        ..LogParams::default()
    };
    let log = Api::<Pod>::namespaced(shared.client.clone(), namespace).logs(&asked.pod, &params).await?;
    let secrets = secrets.iter().map(ExposeSecret::expose_secret);
    let values: Vec<&str> = secrets.chain(plain_values(pod)).collect();
    Ok(last_line(log.as_bytes(), &values))
}

/// The values of every Secret that a pod reads, to be hidden in what is shown of its logs. They go nowhere, so also those are read
/// that no manifest may refer to.
async fn values(pod: &Pod, namespace: &str, shared: &Shared) -> Result<Vec<SecretString>, kube::Error> {
    let secrets = Api::<Secret>::namespaced(shared.client.clone(), namespace);
    let mut values = Vec::new();
    for name in secrets_read(pod) {
        let found = secrets.get_opt(&name).await?.and_then(|it| it.data).unwrap_or_default();
        let texts = found.into_values().filter_map(|it| String::from_utf8(it.0).ok());
        values.extend(texts.map(SecretString::from));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_log_that_cannot_be_read_costs_the_line_and_nothing_else() {
        let nobody = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = kube::Client::try_from(nobody).unwrap();
        let clients = crate::cluster::Clients {
            acting: client.clone(),
            electing: client.clone(),
            watching: client,
            fence: crate::fence::Fence::open(),
        };
        let shared = Shared::new(clients, crate::run::Limits::default(), Arc::default());
        let crashing = json!([{"name": "coder", "image": "", "imageID": "", "ready": false, "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
        let pod = json!({"metadata": {"name": "main-1"}, "status": {"containerStatuses": crashing}});
        let pods: Vec<Pod> = vec![serde_json::from_value(pod).unwrap()];
        assert_eq!(whom_to_ask(&pods).len(), 1);
        assert_eq!(of(&pods, "platform", &shared).await, BTreeMap::new());
    }
}
