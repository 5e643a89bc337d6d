//! A namespace of the bed with our kinds in the cluster.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, ValidationDirective},
    core::GroupVersionKind,
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use serde_json::{Value, json};
use tokio::{sync::OnceCell, time::timeout};

/// Far more than anything here takes; only a failure ever waits this long.
const LIMIT: Duration = Duration::from_mins(4);

/// Our kinds are installed once for all tests.
static INSTALLED: OnceCell<()> = OnceCell::const_new();

pub(crate) struct Cluster {
    client: Client,
    namespace: String,
}

impl Cluster {
    pub(crate) async fn new(word: &str) -> Self {
        let bed = testbed::shared().unwrap();
        let client = bed.client().await.unwrap();
        INSTALLED.get_or_init(|| install(&client)).await;
        Self { client, namespace: bed.namespace(word).await.unwrap() }
    }

    /// Applies a whole manifest, in the namespace of the test. Fields that no kind has are refused.
    pub(crate) async fn apply(&self, manifest: &Value) -> kube::Result<DynamicObject> {
        self.apply_manifest("tests", manifest).await
    }

    /// Applies an object with this spec.
    pub(crate) async fn apply_spec(
        &self,
        kind: &str,
        name: &str,
        spec: &Value,
    ) -> kube::Result<DynamicObject> {
        self.apply_as("tests", kind, name, spec).await
    }

    /// The same, for somebody else.
    pub(crate) async fn apply_as(
        &self,
        manager: &str,
        kind: &str,
        name: &str,
        spec: &Value,
    ) -> kube::Result<DynamicObject> {
        let manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        self.apply_manifest(manager, &manifest).await
    }

    /// Applies a status, as an operator does.
    pub(crate) async fn apply_status(
        &self,
        kind: &str,
        name: &str,
        status: &Value,
    ) -> kube::Result<DynamicObject> {
        let manifest = json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": {"name": name}, "status": status});
        self.api(kind).patch_status(name, &strictly("operator"), &Patch::Apply(manifest)).await
    }

    /// The names of the objects that a field selector selects.
    pub(crate) async fn names(&self, kind: &str, fields: &str) -> Vec<String> {
        let found = self.api(kind).list(&ListParams::default().fields(fields)).await.unwrap();
        found.iter().map(kube::ResourceExt::name_any).collect()
    }

    /// How many there are and should be, as an autoscaler asks.
    pub(crate) async fn scale(&self, kind: &str, name: &str) -> Scale {
        self.api(kind).get_scale(name).await.unwrap()
    }

    async fn apply_manifest(&self, manager: &str, manifest: &Value) -> kube::Result<DynamicObject> {
        let api = self.api(manifest["kind"].as_str().unwrap());
        api.patch(manifest["metadata"]["name"].as_str().unwrap(), &strictly(manager), &Patch::Apply(manifest))
            .await
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(api::GROUP, api::VERSION, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }
}

/// Applies against everybody else, and takes no field that the kind does not have.
fn strictly(manager: &str) -> PatchParams {
    let field_validation = Some(ValidationDirective::Strict);
    PatchParams { field_validation, ..PatchParams::apply(manager).force() }
}

/// What the API server said to a refused request.
pub(crate) fn refusal(answer: kube::Result<DynamicObject>) -> String {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 422 => status.message,
        other => panic!("not refused as invalid: {other:?}"),
    }
}

async fn install(client: &Client) {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    for crd in api::crds() {
        let name = crd.name_any();
        crds.patch(&name, &PatchParams::apply("tests").force(), &Patch::Apply(&crd)).await.unwrap();
        let established = await_condition(crds.clone(), &name, is_crd_established());
        timeout(LIMIT, established).await.unwrap_or_else(|_| panic!("{name} is not taken")).unwrap();
    }
}
