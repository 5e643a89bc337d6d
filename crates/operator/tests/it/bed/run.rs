//! `coder-operator run` in a cluster of real parts.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use api::{CoderControlPlane, CoderGroup, CoderOrganization};
use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams},
    runtime::{
        conditions::is_crd_established,
        wait::{await_condition, conditions::is_deleted},
    },
};
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::{BedInfo, Coderd, Flavour};
use tokio::time::timeout;

use super::{MANIFESTS, counted::Counted, get, license, licensed};

/// Far more than anything here takes; only a failure ever waits this long.
const LIMIT: Duration = Duration::from_secs(90);

/// An operator in a namespace of its own, for one coderd.
pub(super) struct Stage {
    client: Client,
    pub(super) namespace: String,
    pub(super) coderd: Coderd,
    operator: Option<Child>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(operator) = &mut self.operator {
            operator.kill().ok();
            operator.wait().ok();
        }
    }
}

impl Stage {
    pub(super) async fn new(coderd: Coderd) -> Self {
        let url = coderd.owner.url.clone();
        Self::at(coderd, &url).await
    }

    /// The same with another address for the coderd.
    async fn at(coderd: Coderd, url: &str) -> Self {
        let mut stage = Self::prepare(coderd, url).await;
        stage.operator = Some(start(testbed::shared().unwrap(), &stage.namespace));
        stage
    }

    /// The same without an operator: the test starts its own.
    pub(super) async fn idle(coderd: Coderd) -> Self {
        let url = coderd.owner.url.clone();
        Self::prepare(coderd, &url).await
    }

    async fn prepare(coderd: Coderd, url: &str) -> Self {
        let bed = testbed::shared().unwrap();
        let client = bed.client().await.unwrap();
        install(&client).await;
        let namespace = bed.namespace("run").await.unwrap();
        let stage = Self { client, namespace, coderd, operator: None };
        stage.write_token(&stage.coderd.owner.token).await;
        let external = json!({"url": url, "credentialsSecretRef": {"name": "coder-automation"}});
        stage
            .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane",
            "metadata": {"name": "main"}, "spec": {"external": external, "interval": "10s"}}))
            .await;
        stage
    }

    fn api<K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(super) async fn delete<K>(&self, name: &str)
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        self.api::<K>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(super) async fn write_token(&self, token: &str) {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "coder-automation"},
            "stringData": {"token": token}});
        let apply = PatchParams::apply("test").force();
        self.api::<Secret>().patch("coder-automation", &apply, &Patch::Apply(secret)).await.unwrap();
    }

    pub(super) async fn apply(&self, manifest: &Value) {
        let kind = manifest["kind"].as_str().unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("coder.com", "v1alpha1", kind));
        let objects = Api::<DynamicObject>::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let name = manifest["metadata"]["name"].as_str().unwrap();
        objects.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(manifest)).await.unwrap();
    }

    /// Waits until an object says that; panics with what it says instead.
    pub(super) async fn wait<K>(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + serde::Serialize
            + Send
            + 'static,
    {
        let json = |object: &K| serde_json::to_value(object).unwrap();
        let condition = |object: Option<&K>| object.is_some_and(|it| is(&json(it)));
        let waited = timeout(LIMIT, await_condition(self.api::<K>(), name, condition)).await;
        let Ok(found) = waited else {
            let now = self.api::<K>().get_opt(name).await.unwrap().map(|it| json(&it));
            unreachable!("{name} never was {what}: {now:#?}")
        };
        json(&found.unwrap().unwrap())
    }
}

/// Starts the operator as a user of its own, by whom the audit log can tell its requests.
fn start(bed: &BedInfo, namespace: &str) -> Child {
    let mut kubeconfig: Value =
        serde_json::from_str(&std::fs::read_to_string(&bed.kubeconfig).unwrap()).unwrap();
    kubeconfig["users"][0]["user"]["as"] = json!(operator_user(namespace));
    kubeconfig["users"][0]["user"]["as-groups"] = json!(["system:masters"]);
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("{namespace}.kubeconfig"));
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    Command::new(env!("CARGO_BIN_EXE_coder-operator"))
        .args(["run", "--namespace", namespace])
        .env("KUBECONFIG", &path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn operator_user(namespace: &str) -> String {
    format!("operator-of-{namespace}")
}

/// The writes that the operator of a namespace has sent to the API server, Leases left out.
fn writes(namespace: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(&testbed::shared().unwrap().audit_log).unwrap();
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_write = |it: &Value| {
        it["impersonatedUser"]["username"] == operator_user(namespace)
            && ["create", "update", "patch", "delete"].iter().any(|verb| it["verb"] == *verb)
            && it["objectRef"]["resource"] != "leases"
    };
    entries.filter(is_write).collect()
}

pub(super) async fn install(client: &Client) {
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    for crd in api::crds() {
        let name = crd.name_any();
        crds.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&crd)).await.unwrap();
        timeout(LIMIT, await_condition(crds.clone(), &name, is_crd_established())).await.unwrap().unwrap();
    }
}

/// A condition's status and reason.
fn says(object: &Value, kind: &str, status: &str, reason: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == kind && it["status"] == status && it["reason"] == reason)
}

pub(super) fn is_ready(object: &Value) -> bool {
    says(object, "Ready", "True", "UpToDate")
        && object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

pub(super) fn group(spec: &Value) -> Value {
    let mut whole = json!({"controlPlaneRef": {"name": "main"}, "interval": "10s", "name": "developers"});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderGroup", "metadata": {"name": "developers"}, "spec": whole})
}

#[tokio::test]
async fn a_set_in_any_order_becomes_ready_and_heals() {
    let stage = Stage::new(licensed().await).await;
    let mut manifests = Vec::new();
    for text in MANIFESTS.split("---\n") {
        let mut manifest: Value = serde_saphyr::from_str(text).unwrap();
        manifest["metadata"].as_object_mut().unwrap().remove("namespace");
        manifest["spec"]["interval"] = json!("10s");
        manifests.push(manifest);
    }
    for manifest in &manifests {
        stage.apply(manifest).await;
    }
    for manifest in &manifests {
        let name = manifest["metadata"]["name"].as_str().unwrap();
        match manifest["kind"].as_str().unwrap() {
            "CoderOrganization" => stage.wait::<CoderOrganization>(name, "ready", is_ready).await,
            "CoderGroup" => stage.wait::<CoderGroup>(name, "ready", is_ready).await,
            "CoderGroupSync" => stage.wait::<api::CoderGroupSync>(name, "ready", is_ready).await,
            "CoderRoleSync" => stage.wait::<api::CoderRoleSync>(name, "ready", is_ready).await,
            "CoderOrganizationSync" => {
                stage.wait::<api::CoderOrganizationSync>(name, "ready", is_ready).await
            }
            _ => stage.wait::<api::CoderAppearance>(name, "ready", is_ready).await,
        };
    }
    let id = stage.wait::<CoderGroup>("alpha-developers", "ready", is_ready).await["status"]["id"].clone();
    let before = stage.api::<CoderGroup>().get("alpha-developers").await.unwrap();
    let path = format!("/api/v2/groups/{}", id.as_str().unwrap());
    let by_hand = json!({"name": "", "quota_allowance": 3});
    stage.coderd.owner.request(Method::PATCH, &path, Some(&by_hand)).await.unwrap();
    let applied = serde_json::to_value(before).unwrap()["status"]["lastAppliedTime"].clone();
    stage
        .wait::<CoderGroup>("alpha-developers", "healed", |it| {
            is_ready(it) && it["status"]["lastAppliedTime"] != applied
        })
        .await;
    assert_eq!(get(&stage.coderd, &path).await["quota_allowance"], 20);
}

#[tokio::test]
async fn without_a_licence_an_object_waits_and_goes_on_by_itself_when_one_comes() {
    let coderd = testbed::shared().unwrap().coderd(Flavour::Licensed).await.unwrap();
    let stage = Stage::new(coderd).await;
    stage.apply(&group(&json!({}))).await;
    stage.wait::<CoderGroup>("developers", "waiting", |it| says(it, "Ready", "False", "NotEntitled")).await;
    license(&stage.coderd).await;
    stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
}

#[tokio::test]
async fn what_is_observed_is_shown_and_left_alone() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&group(&json!({"quotaAllowance": 7}))).await;
    let made = stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    stage.apply(&group(&json!({"quotaAllowance": 9, "mode": "Observe"}))).await;
    let seen =
        stage.wait::<CoderGroup>("developers", "observed", |it| says(it, "Ready", "False", "Observed")).await;
    assert_eq!(seen["status"]["drift"], json!([{"field": "quotaAllowance", "expected": "9", "found": "7"}]));
    assert!(says(&seen, "Drifted", "True", "DriftFound"));
    let path = format!("/api/v2/groups/{}", made["status"]["id"].as_str().unwrap());
    assert_eq!(get(&stage.coderd, &path).await["quota_allowance"], 7);
}

#[tokio::test]
async fn deleting_a_manifest_keeps_the_object_unless_its_policy_is_delete() {
    let stage = Stage::new(licensed().await).await;
    let organization = |name: &str, policy: &str| {
        json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderOrganization", "metadata": {"name": name},
            "spec": {"controlPlaneRef": {"name": "main"}, "deletionPolicy": policy}})
    };
    for (name, policy) in [("kept", "Retain"), ("gone", "Delete")] {
        stage.apply(&organization(name, policy)).await;
        let made = stage.wait::<CoderOrganization>(name, "ready", is_ready).await;
        let organizations = stage.api::<CoderOrganization>();
        organizations.delete(name, &DeleteParams::default()).await.unwrap();
        let uid = made["metadata"]["uid"].as_str().unwrap();
        timeout(LIMIT, await_condition(organizations, name, is_deleted(uid))).await.unwrap().unwrap();
    }
    let organizations = get(&stage.coderd, "/api/v2/organizations").await;
    let names: Vec<&str> =
        organizations.as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    assert!(names.contains(&"kept") && !names.contains(&"gone"), "{names:?}");
}

#[tokio::test]
async fn what_somebody_else_made_is_taken_over_only_when_it_is_equal() {
    let stage = Stage::new(licensed().await).await;
    let by_hand = json!({"name": "developers", "quota_allowance": 5});
    stage
        .coderd
        .owner
        .request(Method::POST, "/api/v2/organizations/default/groups", Some(&by_hand))
        .await
        .unwrap();
    stage.apply(&group(&json!({"quotaAllowance": 6}))).await;
    let refused = stage
        .wait::<CoderGroup>("developers", "refused", |it| says(it, "Ready", "False", "AdoptionRefused"))
        .await;
    assert!(says(&refused, "Stalled", "True", "AdoptionRefused"));
    assert_eq!(refused["status"]["plan"]["steps"][0]["field"], "quotaAllowance");
    assert_eq!(refused["status"]["id"], Value::Null);
    stage.apply(&group(&json!({"quotaAllowance": 5}))).await;
    stage.wait::<CoderGroup>("developers", "taken over", is_ready).await;
}

#[tokio::test]
async fn a_token_that_stops_working_is_told_and_a_new_one_acts_at_once() {
    let stage = Stage::new(licensed().await).await;
    let is_up = |it: &Value| says(it, "Ready", "True", "UpToDate");
    stage.wait::<CoderControlPlane>("main", "ready", is_up).await;
    stage.write_token("0123456789-0123456789012345678901").await;
    let told = stage
        .wait::<CoderControlPlane>("main", "signed out", |it| says(it, "Ready", "False", "Unauthorized"))
        .await;
    assert!(!told.to_string().contains("0123456789012345678901"), "{told}");
    stage.apply(&group(&json!({}))).await;
    stage
        .wait::<CoderGroup>("developers", "waiting", |it| says(it, "Ready", "False", "ControlPlaneNotReady"))
        .await;
    stage.write_token(&stage.coderd.owner.token).await;
    stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
}

#[tokio::test]
async fn an_object_of_a_control_plane_that_is_gone_is_let_go_and_one_of_a_silent_plane_is_not() {
    let stage = Stage::new(licensed().await).await;
    let organization = |name: &str, plane: &str| {
        json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderOrganization", "metadata": {"name": name},
            "spec": {"controlPlaneRef": {"name": plane}, "deletionPolicy": "Delete"}})
    };
    stage.apply(&organization("alpha", "main")).await;
    let made = stage.wait::<CoderOrganization>("alpha", "ready", is_ready).await;
    stage.write_token("0123456789-0123456789012345678901").await;
    stage
        .wait::<CoderControlPlane>("main", "signed out", |it| says(it, "Ready", "False", "Unauthorized"))
        .await;
    let organizations = stage.api::<CoderOrganization>();
    organizations.delete("alpha", &DeleteParams::default()).await.unwrap();
    stage
        .wait::<CoderOrganization>("alpha", "being deleted", |it| {
            it["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
    // It goes only with its plane, or when that answers again: here the plane goes.
    let planes = stage.api::<CoderControlPlane>();
    assert!(organizations.get_opt("alpha").await.unwrap().is_some());
    planes.delete("main", &DeleteParams::default()).await.unwrap();
    let uid = made["metadata"]["uid"].as_str().unwrap();
    timeout(LIMIT, await_condition(organizations, "alpha", is_deleted(uid))).await.unwrap().unwrap();
    let names = get(&stage.coderd, "/api/v2/organizations").await;
    assert!(
        names.as_array().unwrap().iter().any(|it| it["name"] == "alpha"),
        "what could not be reached is left"
    );
}

#[tokio::test]
async fn of_two_manifests_for_one_object_the_older_keeps_it_and_the_other_says_who() {
    let stage = Stage::new(licensed().await).await;
    stage.apply(&group(&json!({"quotaAllowance": 1}))).await;
    stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    let mut second = group(&json!({"quotaAllowance": 2}));
    second["metadata"]["name"] = json!("pretender");
    stage.apply(&second).await;
    let told =
        stage.wait::<CoderGroup>("pretender", "told", |it| says(it, "Ready", "False", "HeldByOther")).await;
    assert!(
        told["status"]["conditions"][0]["message"].as_str().unwrap().starts_with("developers "),
        "{told}"
    );
}

#[tokio::test]
async fn what_is_converged_costs_no_write_to_either_side() {
    let coderd = licensed().await;
    let counted = Counted::start(&coderd.owner.url).await;
    let stage = Stage::at(coderd, &counted.url).await;
    stage.apply(&group(&json!({"quotaAllowance": 7, "displayName": "Developers"}))).await;
    let appearance =
        json!({"controlPlaneRef": {"name": "main"}, "applicationName": "Mission Cloud", "interval": "10s"});
    stage
        .apply(&json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderAppearance",
        "metadata": {"name": "appearance"}, "spec": appearance}))
        .await;
    stage.wait::<CoderGroup>("developers", "ready", is_ready).await;
    stage.wait::<api::CoderAppearance>("appearance", "ready", is_ready).await;
    stage.wait::<CoderControlPlane>("main", "ready", |it| says(it, "Ready", "True", "UpToDate")).await;
    let looks = |path: &'static str| move |it: &(Method, String)| it.0 == Method::GET && it.1.ends_with(path);
    let seen = |path: &'static str| counted.requests().iter().filter(|it| looks(path)(it)).count();
    // Events come beside the status; one more look at everything, and all that the changes caused has been sent.
    let (groups, appearances) = (seen("/groups"), seen("/appearance"));
    let passes = |more: usize| seen("/groups") >= groups + more && seen("/appearance") >= appearances + more;
    until(|| passes(1)).await;
    let (kubernetes, coder) = (writes(&stage.namespace).len(), counted.writes());
    until(|| passes(4)).await;
    assert_eq!(counted.writes(), coder, "{:?}", counted.requests());
    let written = writes(&stage.namespace);
    assert_eq!(written.len(), kubernetes, "{:#?}", written.last());
}

/// Asks until it is so.
async fn until(is: impl Fn() -> bool) {
    let so = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(LIMIT, so).await.unwrap();
}
