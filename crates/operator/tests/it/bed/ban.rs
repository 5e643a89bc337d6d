//! A policy of the cluster that forbids something.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use testbed::Coderd;

use super::stage::{Stage, eventually};

/// A policy for the namespace of the test and no other: the API server is everybody's.
pub(super) struct Ban<'a, C = Coderd> {
    pub(super) stage: &'a Stage<C>,
    pub(super) name: String,
    pub(super) words: &'static str,
    /// The rule of what is forbidden.
    pub(super) forbidden: Value,
}

impl<C> Ban<'_, C> {
    fn policies(&self) -> (Api<ValidatingAdmissionPolicy>, Api<ValidatingAdmissionPolicyBinding>) {
        (Api::all(self.stage.client.clone()), Api::all(self.stage.client.clone()))
    }

    /// Forbids it, and waits until the API server knows.
    pub(super) async fn begin<F: Future<Output = bool>>(&self, takes: impl Fn() -> F) {
        let Self { name, words, forbidden, .. } = self;
        let here = json!({"matchLabels": {"kubernetes.io/metadata.name": self.stage.namespace}});
        let constraints = json!({"namespaceSelector": here, "resourceRules": [forbidden]});
        let policy = json!({"metadata": {"name": name}, "spec": {"failurePolicy": "Fail",
            "matchConstraints": constraints, "validations": [{"expression": "false", "message": words}]}});
        let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": here}}});
        let (policies, bindings) = self.policies();
        policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
        bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
        eventually("forbidden", takes, |takes| !takes).await;
    }

    pub(super) async fn end<F: Future<Output = bool>>(&self, takes: impl Fn() -> F) {
        let (policies, bindings) = self.policies();
        bindings.delete(&self.name, &DeleteParams::default()).await.unwrap();
        policies.delete(&self.name, &DeleteParams::default()).await.unwrap();
        eventually("allowed again", takes, |takes| *takes).await;
    }
}
