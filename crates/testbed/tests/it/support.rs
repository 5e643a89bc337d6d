//! What the tests share: objects from JSON, and waiting by watching.

use std::{fmt::Debug, time::Duration};

use k8s_openapi::{NamespaceResourceScope, api::core::v1::Pod};
use kube::{Api, Client, Resource, api::PostParams, runtime::wait::await_condition};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use testbed::BedInfo;
use tokio::time::timeout;

/// Far more than anything here takes, also where everything is slow; only a failure ever waits this long.
pub(crate) const LIMIT: Duration = Duration::from_mins(4);

/// A test's own corner of the shared bed.
pub(crate) struct Corner {
    pub(crate) bed: &'static BedInfo,
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Corner {
    pub(crate) async fn new(word: &str) -> Self {
        let bed = testbed::shared().unwrap();
        let namespace = bed.namespace(word).await.unwrap();
        Self { bed, client: bed.client().await.unwrap(), namespace }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        create(&self.api(), object).await
    }

    /// Waits for a pod that satisfies the condition, and returns it.
    pub(crate) async fn pod(&self, name: &str, what: &str, is: impl Fn(&Pod) -> bool) -> Pod {
        wait_for(&self.api(), name, what, is).await
    }
}

pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let typed: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &typed).await.unwrap()
}

/// Waits, by watching, for an object that satisfies the condition.
pub(crate) async fn wait_for<K>(api: &Api<K>, name: &str, what: &str, is: impl Fn(&K) -> bool) -> K
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let condition = |object: Option<&K>| object.is_some_and(&is);
    // A watch that the API server ends, as one does that has too much to do, says nothing of the object.
    let found = async {
        loop {
            if let Ok(Some(found)) = await_condition(api.clone(), name, &condition).await {
                return found;
            }
        }
    };
    let Ok(found) = timeout(LIMIT, found).await else {
        panic!("{name} never was {what}; it is {:#?}", api.get_opt(name).await)
    };
    found
}

/// Waits, by watching, until an object is gone.
pub(crate) async fn wait_until_gone<K>(api: &Api<K>, name: &str)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let is_gone = |object: Option<&K>| object.is_none();
    let gone = async { while await_condition(api.clone(), name, is_gone).await.is_err() {} };
    let waited = timeout(LIMIT, gone).await;
    assert!(waited.is_ok(), "{name} is still there: {:#?}", api.get_opt(name).await);
}

/// Asks until there is an answer.
pub(crate) async fn ask<T, F>(what: &str, question: impl Fn() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let answered = async {
        loop {
            if let Some(answer) = question().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, answered).await.unwrap_or_else(|_| panic!("never {what}"))
}

/// The status of a pod's condition.
pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a str> {
    let conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
    conditions.into_iter().find(|it| it.type_ == kind).map(|it| it.status.as_str())
}

/// The first container's status, as JSON, for tests that read deep into it.
pub(crate) fn container(pod: &Pod) -> Value {
    let status = pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten()).next();
    serde_json::to_value(status).unwrap()
}

/// The process of a pod's first container.
pub(crate) fn process_of(pod: &Pod) -> Option<i32> {
    container(pod)["containerID"].as_str()?.strip_prefix("bed://")?.parse().ok()
}
