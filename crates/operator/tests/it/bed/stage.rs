//! What the tests of the controllers have in common: an operator in a namespace of its own, for one coderd.

use std::{fmt::Debug, time::Duration};

use futures::{StreamExt as _, stream::BoxStream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Namespace, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
    runtime::{
        conditions::is_crd_established,
        wait::{await_condition, conditions::is_deleted},
        watcher::{self, Event},
    },
};
use serde_json::{Value, json};
use testbed::Coderd;
use tokio::time::timeout;

use super::operator::Operator;
use crate::examples::{AI_KEYS, ai_keys};

/// Far more than anything here takes, also where everything is slow; only a failure ever waits this long.
pub(super) const LIMIT: Duration = Duration::from_mins(4);
/// Less than the time after which whatever waits is looked at in any case.
pub(super) const BEFORE_THE_CLOCK: Duration = Duration::from_secs(100);

/// The Secret that holds the token of the control plane `main`.
pub(super) const CREDENTIALS: &str = "coder-automation";

/// `C` is the coderd; where the operator runs one by itself, there is no other.
pub(super) struct Stage<C = Coderd> {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) coderd: C,
    pub(super) operator: Operator,
}

impl Stage {
    /// With the control plane `main`, which is that coderd.
    pub(super) async fn new(coderd: Coderd) -> Self {
        let url = coderd.owner.url.clone();
        Self::at(coderd, &url).await
    }

    /// The same with another address for the coderd.
    pub(super) async fn at(coderd: Coderd, url: &str) -> Self {
        let stage = Self::bare(coderd).await;
        stage.write_token(&stage.coderd.owner.token).await;
        stage.apply(&plane("main", url)).await;
        stage
    }

    /// The same with an operator whose rights outlive the namespace, for tests that delete it.
    pub(super) async fn cluster_wide(coderd: Coderd, url: &str) -> Self {
        let stage = Self::bare_cluster_wide(coderd).await;
        stage.write_token(&stage.coderd.owner.token).await;
        stage.apply(&plane("main", url)).await;
        stage
    }

    /// The same without a control plane and without a token.
    pub(super) async fn bare_cluster_wide(coderd: Coderd) -> Self {
        Self::with(coderd, |namespace| Operator::start_cluster_wide(namespace, Vec::new())).await
    }

    /// Without a control plane and without a token.
    pub(super) async fn bare(coderd: Coderd) -> Self {
        Self::with(coderd, |namespace| Operator::start(namespace, &[])).await
    }

    async fn with(coderd: Coderd, start: impl FnOnce(&str) -> Operator) -> Self {
        let bed = testbed::shared().unwrap();
        let client = bed.client().await.unwrap();
        install(&client).await;
        let namespace = bed.namespace("run").await.unwrap();
        let operator = start(&namespace);
        let stage = Self { client, namespace, coderd, operator };
        stage.write_secret(AI_KEYS, &ai_keys()).await;
        stage
    }
}

impl<C> Stage<C> {
    pub(super) fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The objects of a kind by its name.
    pub(super) fn kind(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("coder.com", "v1alpha1", kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    pub(super) async fn write_token(&self, token: &str) {
        self.write_secret(CREDENTIALS, &json!({"token": token})).await;
    }

    pub(super) async fn write_secret(&self, name: &str, values: &Value) {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": values});
        let apply = PatchParams::apply("test").force();
        self.api::<Secret>().patch(name, &apply, &Patch::Apply(secret)).await.unwrap();
    }

    /// Changes what is written down beside the value of a key.
    pub(super) async fn edit_record(&self, secret: &str, change: impl Fn(&mut Value)) {
        let secrets = self.api::<Secret>();
        loop {
            let mut found = secrets.get(secret).await.unwrap();
            let written = found.annotations_mut().get_mut(api::annotation::PROVISIONER_KEY).unwrap();
            let mut record = serde_json::from_str(written).unwrap();
            change(&mut record);
            *written = record.to_string();
            // The operator may have written it just now.
            match secrets.replace(secret, &PostParams::default(), &found).await {
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                done => break drop(done.unwrap()),
            }
        }
    }

    pub(super) async fn apply(&self, manifest: &Value) {
        let objects = self.kind(manifest["kind"].as_str().unwrap());
        let name = manifest["metadata"]["name"].as_str().unwrap();
        objects.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(manifest)).await.unwrap();
    }

    /// Waits until the second is over in which an object was made, so that whatever is made next is younger: two of one second
    /// are told apart by their uids.
    pub(super) async fn is_outlived(&self, object: &Value) {
        let made: jiff::Timestamp =
            object["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
        while jiff::Timestamp::now().as_second() <= made.as_second() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sets an annotation, or takes it away.
    pub(super) async fn annotate(&self, kind: &str, name: &str, annotation: &str, value: Option<&str>) {
        let patch = json!({"metadata": {"annotations": {annotation: value}}});
        self.kind(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Asks for a pass now, and waits until it is over.
    pub(super) async fn look_again(&self, kind: &str, name: &str) -> Value {
        let now = uuid::Uuid::new_v4().to_string();
        self.annotate(kind, name, api::annotation::RECONCILE_REQUESTED_AT, Some(&now)).await;
        self.wait_for(kind, name, "looked at", |it| it["status"]["lastHandledReconcileAt"] == now).await
    }

    pub(super) async fn delete(&self, kind: &str, name: &str) {
        self.kind(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until an object that is being deleted, or will be, is gone; panics with what it says instead.
    pub(super) async fn gone(&self, made: &Value) {
        let (kind, name) = (made["kind"].as_str().unwrap(), made["metadata"]["name"].as_str().unwrap());
        let uid = made["metadata"]["uid"].as_str().unwrap();
        // A watch that the API server ends, as one does that has too much to do, says nothing of the object.
        let gone = async { while await_condition(self.kind(kind), name, is_deleted(uid)).await.is_err() {} };
        if timeout(LIMIT, gone).await.is_err() {
            let now = self.kind(kind).get_opt(name).await.unwrap().map(shown);
            unreachable!("{kind} {name} did not go: {now:#?}\n{:#?}", self.operator.said())
        }
    }

    /// Deletes the namespace, and waits until it is gone.
    pub(super) async fn delete_namespace(&self) {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await.unwrap();
        let is_gone = |it: Option<&Namespace>| it.is_none();
        let gone =
            async { while await_condition(namespaces.clone(), &self.namespace, is_gone).await.is_err() {} };
        if timeout(LIMIT, gone).await.is_err() {
            unreachable!("the namespace did not go: {:#?}", self.operator.said())
        }
    }

    /// The notes of the Events about what deletions left behind.
    pub(super) async fn left_behind(&self) -> Vec<String> {
        let events = self.api::<k8s_openapi::api::events::v1::Event>();
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let left = events.into_iter().filter(|it| it.reason.as_deref() == Some("LeftBehind"));
        left.filter_map(|it| it.note).collect()
    }

    /// Begins to watch an object. What it says for a moment only is not missed, if the watch begins before the cause.
    pub(super) async fn watch(&self, kind: &str, name: &str) -> Watch<'_> {
        let this_one = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = watcher::watcher(self.kind(kind), this_one).boxed();
        let began = async { while !matches!(events.next().await.unwrap(), Ok(Event::InitDone)) {} };
        assert!(timeout(LIMIT, began).await.is_ok(), "{kind} {name} cannot be watched");
        Watch { of: format!("{kind} {name}"), events, operator: &self.operator }
    }

    /// Waits until an object says that, and goes on saying it; panics with what it says instead.
    pub(super) async fn wait<K>(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        self.wait_for(&K::kind(&()), name, what, is).await
    }

    /// The same for a kind by its name.
    pub(super) async fn wait_for(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        self.wait_within(LIMIT, (kind, name), what, is).await
    }

    /// The same for what somebody has to have noticed: by the clock alone it would come later.
    pub(super) async fn is_noticed(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        self.wait_within(BEFORE_THE_CLOCK, (kind, name), what, is).await
    }

    async fn wait_within(
        &self,
        limit: Duration,
        (kind, name): (&str, &str),
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        let condition = |object: Option<&DynamicObject>| object.is_some_and(|it| is(&shown(it.clone())));
        // The same of a watch that ends.
        let found = async {
            loop {
                if let Ok(Some(found)) = await_condition(self.kind(kind), name, &condition).await {
                    return found;
                }
            }
        };
        let Ok(found) = timeout(limit, found).await else {
            let now = self.kind(kind).get_opt(name).await.unwrap().map(shown);
            unreachable!("{kind} {name} never was {what}: {now:#?}\n{:#?}", self.operator.said())
        };
        shown(found)
    }
}

/// Every version of an object since the watch began.
pub(super) struct Watch<'a> {
    of: String,
    events: BoxStream<'a, watcher::Result<Event<DynamicObject>>>,
    operator: &'a Operator,
}

impl Watch<'_> {
    /// Waits until a version says that; panics with those that were instead.
    pub(super) async fn until(mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let mut seen = Vec::new();
        let found = async {
            loop {
                // The watch goes on by itself after a failure.
                let event = self.events.next().await.unwrap();
                let Ok(Event::Apply(version) | Event::InitApply(version)) = event else { continue };
                let version = shown(version);
                if is(&version) {
                    return version;
                }
                seen.push(version["status"].clone());
            }
        };
        let Ok(found) = timeout(LIMIT, found).await else {
            unreachable!("{} never was {what}: {seen:#?}\n{:#?}", self.of, self.operator.said())
        };
        found
    }
}

/// An object for somebody to read: who wrote which field is long, and hides the rest.
fn shown(mut object: DynamicObject) -> Value {
    object.metadata.managed_fields = None;
    serde_json::to_value(object).unwrap()
}

/// The image of that name at the version of the bed's Coder.
pub(super) fn image(name: &str) -> String {
    testbed::shared().unwrap().image(name)
}

pub(super) async fn install(client: &Client) {
    for crd in api::crds() {
        define(client, &crd).await;
    }
}

/// Defines a kind, and waits until the API server knows it.
pub(super) async fn define(client: &Client, crd: &CustomResourceDefinition) {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    let name = crd.name_any();
    crds.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(crd)).await.unwrap();
    timeout(LIMIT, await_condition(crds.clone(), &name, is_crd_established())).await.unwrap().unwrap();
}

/// Asks until it is so.
pub(super) async fn until(what: impl Debug, is: impl Fn() -> bool) {
    let so = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let waited = timeout(LIMIT, so).await;
    assert!(waited.is_ok(), "it never was so: {what:?}");
}

/// Waits until that is so.
pub(super) async fn eventually<T, F>(what: &str, ask: impl Fn() -> F, is: impl Fn(&T) -> bool) -> T
where
    T: Debug,
    F: Future<Output = T>,
{
    let since = tokio::time::Instant::now();
    loop {
        let found = ask().await;
        if is(&found) {
            return found;
        }
        assert!(since.elapsed() < LIMIT, "it never was {what}: {found:#?}");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// A condition's status and reason.
pub(super) fn says(object: &Value, kind: &str, status: &str, reason: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == kind && it["status"] == status && it["reason"] == reason)
}

/// Whether `Ready` is false for that reason, and of this very manifest.
pub(super) fn is_held_up(reason: &str) -> impl Fn(&Value) -> bool {
    move |it| says(it, "Ready", "False", reason) && is_current(it)
}

pub(super) fn is_ready(object: &Value) -> bool {
    says(object, "Ready", "True", "UpToDate") && is_current(object)
}

fn is_current(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

/// What the condition `Ready` says in words.
pub(super) fn words(object: &Value) -> &str {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.into_iter().filter(|it| it["type"] == "Ready");
    ready.next().and_then(|it| it["message"].as_str()).unwrap_or_default()
}

/// An external control plane whose token is in [`CREDENTIALS`].
pub(super) fn plane(name: &str, url: &str) -> Value {
    let external = json!({"url": url, "credentialsSecretRef": {"name": CREDENTIALS}});
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": name},
        "spec": {"external": external, "interval": "10s"}})
}

/// The manifest `developers` of a group of that name, with more in its spec.
pub(super) fn group(spec: &Value) -> Value {
    group_named("developers", spec)
}

/// The same under another name.
pub(super) fn group_named(name: &str, spec: &Value) -> Value {
    let mut whole = json!({"controlPlaneRef": {"name": "main"}, "interval": "10s", "name": name});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup", "metadata": {"name": name}, "spec": whole})
}
