//! A control plane on the bed, and somebody who carries its plans out.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use api::CoderControlPlane;
use engine::{
    kinds::control_plane::{Desired, KINDS, PlaneFacts, children::Deployed, desire},
    objects::{
        Child, ChildEffect, FIELD_MANAGER, Key, Live, ObjectsSituation, Planned, plan,
        references::{Source, references},
    },
};
use k8s_openapi::{
    NamespaceResourceScope, api::core::v1::Namespace,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
    },
    core::GroupVersionKind,
    runtime::{conditions::is_crd_established, wait::await_condition},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{sync::OnceCell, time::timeout};

/// Far more than anything here takes; only a failure ever waits this long.
const LIMIT: Duration = Duration::from_mins(4);
static INSTALLED: OnceCell<()> = OnceCell::const_new();

/// A control plane in a namespace of its own. Its manifest is there because owners have to be; what it declares is `spec`.
pub(super) struct Plane {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) spec: Value,
    uid: String,
}

impl Plane {
    pub(super) async fn new(word: &str, spec: &Value) -> Self {
        let bed = testbed::shared().unwrap();
        let client = bed.client().await.unwrap();
        INSTALLED.get_or_init(|| install(&client)).await;
        let namespace = bed.namespace(word).await.unwrap();
        let planes = Api::<CoderControlPlane>::namespaced(client.clone(), &namespace);
        let plane = CoderControlPlane::new("main", api::CoderControlPlaneSpec::default());
        let uid = planes.create(&PostParams::default(), &plane).await.unwrap().uid().unwrap();
        Self { client, namespace, spec: spec.clone(), uid }
    }

    /// Pods of this namespace have to be restricted.
    pub(super) async fn restrict(&self) {
        let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
        let namespaces = Api::<Namespace>::all(self.client.clone());
        namespaces.patch(&self.namespace, &PatchParams::default(), &Patch::Merge(&labels)).await.unwrap();
    }

    pub(super) async fn plan(&self) -> Planned {
        let live = self.live().await;
        let plane = self.manifest();
        let desired = self.desired(&live);
        plan(&ObjectsSituation { keeper: &plane, children: &desired.children, live: &live, rolled_out: true })
    }

    /// Carries out a plan; how many writes that took. Where an object changed meanwhile, another plan is made.
    pub(super) async fn converge(&self) -> usize {
        let mut writes = 0;
        'plans: loop {
            for step in self.plan().await.plan.steps {
                match self.write(&step.effect).await {
                    Ok(()) => writes += 1,
                    Err(kube::Error::Api(status)) if status.code == 409 => continue 'plans,
                    Err(error) => panic!("{error} for {:?}", step.effect),
                }
            }
            return writes;
        }
    }

    pub(super) async fn get<K>(&self, name: &str) -> K
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        Api::<K>::namespaced(self.client.clone(), &self.namespace).get(name).await.unwrap()
    }

    /// Makes what coder-k8s would have made: whole objects, written as it writes them.
    pub(super) async fn install_as_coder_k8s(&self) {
        for child in self.desired(&[]).children {
            let mut object = child.object;
            // It knows nothing of the configuration's annotation, nor of Pod Security.
            for (at, key) in [
                ("/spec/template/metadata", "annotations"),
                ("/spec/template/spec", "securityContext"),
                ("/spec/ports/0", "protocol"),
            ] {
                if let Some(fields) = object.pointer_mut(at).and_then(Value::as_object_mut) {
                    fields.remove(key);
                }
            }
            let parameters = PostParams { dry_run: false, field_manager: Some("coder-k8s".to_owned()) };
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            self.api(&child.key).create(&parameters, &object).await.unwrap();
        }
    }

    fn desired(&self, live: &[Live]) -> Desired {
        let deployment = live.iter().find(|it| it.key.kind == "Deployment");
        let plane = self.manifest();
        // Nothing runs here: what pods would read need not be there.
        let source = Source { keys: ["url".to_owned()].into(), ..Source::default() };
        let sources: BTreeMap<_, _> =
            references(&plane.spec).into_iter().map(|it| (it, source.clone())).collect();
        let deployed = deployment.map(|it| Deployed::of(&it.object, &sources));
        desire(&plane, &PlaneFacts { sources, deployed, ..PlaneFacts::default() }).unwrap()
    }

    fn manifest(&self) -> CoderControlPlane {
        serde_json::from_value(json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main", "namespace": self.namespace, "uid": self.uid}, "spec": self.spec}))
        .unwrap()
    }

    async fn live(&self) -> Vec<Live> {
        let mut found = Vec::new();
        for (group, version, kind) in KINDS {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &self.namespace, &resource);
            for object in api.list(&ListParams::default()).await.unwrap() {
                let mut object = serde_json::to_value(object).unwrap();
                object["apiVersion"] = Value::from(resource.api_version.clone());
                object["kind"] = Value::from(kind);
                found.extend(Live::new(object));
            }
        }
        found
    }

    async fn write(&self, effect: &ChildEffect) -> kube::Result<()> {
        match effect {
            ChildEffect::Create(Child { key, object, .. })
            | ChildEffect::Apply { key, object }
            | ChildEffect::Release { key, object } => {
                let parameters = PatchParams::apply(FIELD_MANAGER).force();
                self.api(key).patch(&key.name, &parameters, &Patch::Apply(object)).await?;
            }
            ChildEffect::Migrate { key, patch } => {
                self.api(key).patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
            ChildEffect::Delete { key, uid, .. } => {
                let preconditions = Some(Preconditions { uid: Some(uid.clone()), resource_version: None });
                let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
                self.api(key).delete(&key.name, &parameters).await?;
            }
        }
        Ok(())
    }

    fn api(&self, key: &Key) -> Api<DynamicObject> {
        let (group, version) = key.api_version.split_once('/').unwrap_or(("", &key.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &key.kind));
        Api::namespaced_with(self.client.clone(), &key.namespace, &resource)
    }
}

/// What a plan would write.
pub(super) fn effects(planned: &Planned) -> Vec<ChildEffect> {
    planned.plan.steps.iter().map(|it| it.effect.clone()).collect()
}

async fn install(client: &Client) {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    let crd = api::crds().into_iter().find(|it| it.spec.names.kind == "CoderControlPlane").unwrap();
    let name = crd.name_any();
    crds.patch(&name, &PatchParams::apply("tests").force(), &Patch::Apply(&crd)).await.unwrap();
    let established = await_condition(crds, &name, is_crd_established());
    timeout(LIMIT, established).await.unwrap_or_else(|_| panic!("{name} is not taken")).unwrap();
}
