//! What becomes of a Deployment: its `ReplicaSet`s, its pods, and the status that says so.

use engine::{
    objects::Key,
    ports::{List, Only, Reading, Write},
};
use jiff::SignedDuration;
use kube::core::Selector;
use serde_json::{Value, json};

use super::{LIMIT, Side};

const REVISION: &str = "deployment.kubernetes.io/revision";

impl Side {
    fn deployment(&self) -> Value {
        let container = json!({"name": "main", "image": "bed/host", "command": ["sleep", "1000"],
            "env": [{"name": "FORM", "value": "one"}]});
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "workload", "namespace": self.namespace},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "workload"}}, "template": {
                "metadata": {"labels": {"app": "workload"}},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}}})
    }

    fn workload(&self) -> Key {
        Key::new("apps/v1", "Deployment", &self.namespace, "workload")
    }

    async fn listed(&self, api_version: &str, kind: &str) -> Vec<Value> {
        let labels: Selector = [("app".to_owned(), "workload".to_owned())].into_iter().collect();
        let list = List { api_version, kind, namespace: Some(&self.namespace), labels };
        let found = self.cluster.list(&list, Reading::Now).await.unwrap();
        found.into_iter().map(|it| it.object).collect()
    }

    /// Asks until that is true of the Deployment and its pods. Pods of a cluster in memory go on when they are told to.
    async fn rolled_out(&self, is: impl Fn(&Value, &[Value]) -> bool) -> Value {
        let done = tokio::time::timeout(LIMIT, async {
            loop {
                if let Some(memory) = &self.workloads {
                    memory.settle_workloads(SignedDuration::ZERO);
                }
                let found = self.cluster.get(&self.workload(), Reading::Now).await.unwrap();
                let found = found.map(|it| it.object).unwrap_or_default();
                if is(&found, &self.listed("v1", "Pod").await) {
                    return found;
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        });
        done.await.unwrap_or_default()
    }

    /// What a rollout has come to, without names and times.
    async fn outcome(&self, deployment: &Value) -> Value {
        let status = &deployment["status"];
        let counts =
            ["observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
        let owner = |it: &Value| {
            let owner = &it["metadata"]["ownerReferences"][0];
            json!([owner["apiVersion"], owner["kind"], owner["controller"]])
        };
        let set = |it: &Value| {
            let has_hash = it["metadata"]["labels"]["pod-template-hash"].is_string();
            json!([it["metadata"]["annotations"][REVISION], owner(it), has_hash])
        };
        let pod = |it: &Value| {
            let conditions = it["status"]["conditions"].as_array().into_iter().flatten();
            let ready = conditions.into_iter().find(|it| it["type"] == "Ready").map(|it| &it["status"]);
            let form = &it["spec"]["containers"][0]["env"][0]["value"];
            let container = &it["status"]["containerStatuses"][0];
            json!([it["status"]["phase"], ready, form, owner(it), container["ready"], container["name"]])
        };
        let mut sets: Vec<Value> = self.listed("apps/v1", "ReplicaSet").await.iter().map(set).collect();
        sets.sort_by_key(Value::to_string);
        let pods: Vec<Value> = self.listed("v1", "Pod").await.iter().map(pod).collect();
        json!([counts.map(|it| &status[it]), deployment["metadata"]["annotations"][REVISION], sets, pods])
    }

    pub(super) async fn workloads(&self) -> Vec<Value> {
        let is_done = |deployment: &Value, pods: &[Value]| {
            let status = &deployment["status"];
            status["observedGeneration"] == deployment["metadata"]["generation"]
                && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|it| status[it] == 2)
                && pods.len() == 2
        };
        self.created(&self.deployment()).await;
        let first = self.rolled_out(is_done).await;
        let first = self.outcome(&first).await;
        let mut template = self.deployment()["spec"]["template"].take();
        template["spec"]["containers"][0]["env"][0]["value"] = json!("two");
        let patch = json!({"spec": {"template": template}});
        self.write(Write::Merge { key: &self.workload(), patch: &patch }).await.unwrap();
        let second = self.rolled_out(is_done).await;
        let outcome = self.outcome(&second).await;
        let uid = second["metadata"]["uid"].as_str().unwrap_or_default();
        self.cluster.delete(&self.workload(), Only { uid, version: None }).await.unwrap();
        self.rolled_out(|_, pods| pods.is_empty()).await;
        let left = self.listed("v1", "Pod").await.len();
        vec![first, outcome, json!(left)]
    }
}
