//! An installation of coder-k8s, taken over where it stands.

use std::sync::{Arc, Mutex};

use api::CoderControlPlane;
use futures::StreamExt as _;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{Pod, Secret, Service, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt as _, wait::await_condition, watcher},
};
use reqwest::Method;
use serde_json::{Value, json};
use testbed::{Session, coderd::sign_license};
use tokio::time::timeout;

use super::{
    operator::Operator,
    service_account::OTHERS,
    stage::{self, LIMIT, Stage, image, says},
};
use crate::coder_k8s::{TOKEN, token, write_into_tables};

const LICENSES_PORT: u16 = 8099;
const FINALIZER: &str = "coder.com/workspace-rbac-cleanup";

/// An installation of coder-k8s whose operator has been stopped.
struct Installed {
    client: Client,
    namespace: String,
    /// A person who uses it.
    human: Session,
}

/// What a person wrote, and what the definitions of coder-k8s added to it.
fn manifest() -> Value {
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main"}, "spec": {
        "image": image("bed/coder-licensed"),
        "extraEnv": [
            {"name": "CODER_PG_CONNECTION_URL", "valueFrom": {"secretKeyRef": {"name": "coder-db", "key": "url"}}},
            variable("CODER_TELEMETRY_ENABLE", "false"), variable("CODER_UPDATE_CHECK", "false"),
            variable("CODER_DERP_SERVER_STUN_ADDRESSES", "disable"), variable("CODER_PROVISIONER_DAEMONS", "0"),
            variable("BED_LICENSES_ADDRESS", &format!("0.0.0.0:{LICENSES_PORT}")),
        ],
        "licenseSecretRef": {"name": "coder-license", "key": "license"},
        "replicas": 1, "service": {"type": "ClusterIP", "port": 80}, "operatorAccess": {"disabled": false},
        "serviceAccount": {"disableCreate": false}, "rbac": {"workspacePerms": true, "enableDeployments": true},
        "tls": {}, "certs": {}, "readinessProbe": {"enabled": true, "initialDelaySeconds": 0},
        "livenessProbe": {"enabled": false, "initialDelaySeconds": 0}, "envUseClusterAccessURL": true,
    }})
}

/// The objects that coder-k8s makes of the manifest, beside the Secret with its token.
fn children(plane: &CoderControlPlane) -> Vec<Value> {
    let namespace = plane.namespace().unwrap();
    let hash = fnv(&format!("{namespace}\0main"));
    let labels = json!({"app.kubernetes.io/name": "coder-control-plane", "app.kubernetes.io/instance": "main",
        "app.kubernetes.io/managed-by": "coder-k8s"});
    let owned = |name: &str, labels: &Value| json!({"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [owner(plane)]});
    let mut workspaces = labels.clone();
    workspaces["coder.com/control-plane"] = json!("main");
    workspaces["coder.com/control-plane-namespace"] = json!(namespace);
    let for_workspaces = |name: &str| {
        let mut metadata = owned(name, &workspaces);
        metadata["annotations"] = json!({"coder.com/workspace-rbac-owner-uid": plane.uid()});
        metadata
    };
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    let rule =
        |group: &str, resource: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let role = format!("main-{hash}-workspace-perms");
    let mut variables = vec![
        json!({"name": "KUBE_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}),
        json!({"name": "CODER_DERP_SERVER_RELAY_URL", "value": "http://$(KUBE_POD_IP):8080"}),
        json!({"name": "CODER_ACCESS_URL", "value": format!("http://main.{namespace}.svc.cluster.local")}),
    ];
    variables.extend(manifest()["spec"]["extraEnv"].as_array().unwrap().clone());
    // It was declared once, and taken out of the manifest after coder-k8s was stopped.
    variables.push(json!({"name": "CODER_NO_LONGER_DECLARED", "value": "1"}));
    let probe = json!({"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10,
        "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3});
    let container = json!({"name": "coder", "image": image("bed/coder-licensed"),
        "args": ["--http-address=0.0.0.0:8080"], "env": variables, "readinessProbe": probe,
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": owned("main", &labels)}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": for_workspaces(&role),
            "rules": [rule("", "pods"), rule("", "persistentvolumeclaims"), rule("apps", "deployments")]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": for_workspaces(&format!("main-{hash}")),
            "subjects": [{"kind": "ServiceAccount", "name": "main", "namespace": namespace}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": owned("main", &labels), "spec": {
            "replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"serviceAccountName": "main", "containers": [container]}}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": owned("main", &labels), "spec": {
            "type": "ClusterIP", "selector": labels,
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]}}),
    ]
}

fn owner(plane: &CoderControlPlane) -> Value {
    json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "name": "main", "uid": plane.uid(),
        "controller": true, "blockOwnerDeletion": true})
}

fn fnv(text: &str) -> String {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{:08x}", text.bytes().fold(0x811c_9dc5, step))
}

/// Writes an object as coder-k8s does: whole, under the name of its program.
async fn create(client: &Client, object: &Value) {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap();
    let (group, version) = text("/apiVersion").split_once('/').unwrap_or_else(|| ("", text("/apiVersion")));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
    let objects =
        Api::<DynamicObject>::namespaced_with(client.clone(), text("/metadata/namespace"), &resource);
    let params = PostParams { dry_run: false, field_manager: Some("coder-k8s".to_owned()) };
    objects.create(&params, &serde_json::from_value(object.clone()).unwrap()).await.unwrap();
}

impl Installed {
    /// With a licence, a person who uses it, and everything that coder-k8s leaves behind.
    async fn new() -> Self {
        let bed = testbed::shared().unwrap();
        let client = bed.client().await.unwrap();
        stage::install(&client).await;
        let namespace = bed.namespace("takeover").await.unwrap();
        let database = bed.database().await.unwrap();
        let secret = |name: &str, values: Value| {
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
                "stringData": values})
        };
        create(&client, &secret("coder-db", json!({"url": database}))).await;
        let planes = Api::<CoderControlPlane>::namespaced(client.clone(), &namespace);
        let apply = PatchParams::apply("person").force();
        let plane = planes.patch("main", &apply, &Patch::Apply(manifest())).await.unwrap();
        let held = json!({"metadata": {"finalizers": [FINALIZER]}});
        planes.patch("main", &PatchParams::default(), &Patch::Merge(held)).await.unwrap();
        for child in children(&plane) {
            create(&client, &child).await;
        }
        let serves = |it: Option<&Deployment>| {
            it.and_then(|it| it.status.as_ref()).is_some_and(|it| it.ready_replicas == Some(1))
        };
        let deployments = Api::<Deployment>::namespaced(client.clone(), &namespace);
        timeout(LIMIT, await_condition(deployments, "main", serves)).await.unwrap().unwrap();
        write_into_tables(&database).await;

        let pods =
            Api::<Pod>::namespaced(client.clone(), &namespace).list(&ListParams::default()).await.unwrap();
        let address = pods.items.iter().find_map(|it| it.status.as_ref()?.pod_ip.clone()).unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let url = format!("http://{address}:8080");
        let human = Session::first_user(http, &url, "Human-Horse-Battery-9").await.unwrap();
        let premium = json!({"feature_set": "premium"});
        let license = sign_license(&format!("http://{address}:{LICENSES_PORT}"), &premium).await.unwrap();
        create(&client, &secret("coder-license", json!({"license": license}))).await;
        let mut token_secret = secret("main-operator-token", json!({"token": token()}));
        token_secret["metadata"]["ownerReferences"] = json!([owner(&plane)]);
        create(&client, &token_secret).await;
        let status = json!({"status": {"observedGeneration": 1, "readyReplicas": 1, "phase": "Ready",
            "url": format!("http://main.{namespace}.svc.cluster.local:80"), "operatorAccessReady": true,
            "operatorTokenSecretRef": {"name": "main-operator-token", "key": "token"}}});
        planes.patch_status("main", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        let installed = Self { client, namespace, human };
        let license = json!({"license": license});
        let uploaded = installed.as_coder_k8s(Method::POST, "/api/v2/licenses", Some(&license)).await;
        assert_eq!(uploaded, 201);
        installed
    }

    /// A request with the token of coder-k8s; what was answered.
    async fn as_coder_k8s(&self, method: Method, path: &str, body: Option<&Value>) -> u16 {
        let http = testbed::shared().unwrap().http_by_name().unwrap();
        let url = format!("http://main.{}.svc{path}", self.namespace);
        let mut request = http.request(method, url).header("Coder-Session-Token", token());
        if let Some(body) = body {
            request = request.json(body);
        }
        request.send().await.unwrap().status().as_u16()
    }

    /// The ids of the tokens that the Secret has held since now, one for each of its versions.
    fn every_token(&self) -> Arc<Mutex<Vec<Option<String>>>> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let config = watcher::Config::default().fields("metadata.name=main-operator-token");
        let seen = Arc::<Mutex<Vec<Option<String>>>>::default();
        let heard = Arc::clone(&seen);
        tokio::spawn(watcher(secrets, config).applied_objects().for_each(move |secret| {
            // A watch that failed goes on by itself, and that is no version.
            if let Ok(secret) = secret {
                let token = secret.data.and_then(|mut it| it.remove("token"));
                let id = token.and_then(|it| Some(str::from_utf8(&it.0).ok()?.split('-').next()?.to_owned()));
                heard.lock().unwrap().push(id);
            }
            std::future::ready(())
        }));
        seen
    }

    /// Which object is which, by kind and name.
    async fn uids(&self) -> Vec<String> {
        let mut found = self.uids_of::<ServiceAccount>().await;
        found.extend(self.uids_of::<Service>().await);
        found.extend(self.uids_of::<Deployment>().await);
        found.extend(self.uids_of::<Role>().await);
        found.extend(self.uids_of::<RoleBinding>().await);
        found.extend(self.uids_of::<Secret>().await);
        found.extend(self.uids_of::<CoderControlPlane>().await);
        found
    }

    async fn uids_of<K>(&self) -> Vec<String>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let objects = Api::<K>::namespaced(self.client.clone(), &self.namespace);
        let list = objects.list_metadata(&ListParams::default().labels(OTHERS)).await.unwrap().items;
        list.iter().map(|it| format!("{} {} {}", K::kind(&()), it.name_any(), it.uid().unwrap())).collect()
    }
}

fn variables(deployment: Deployment) -> Vec<String> {
    let container = deployment.spec.unwrap().template.spec.unwrap().containers.remove(0);
    container.env.unwrap().into_iter().map(|it| it.name).collect()
}

#[tokio::test]
async fn an_installation_of_coder_k8s_is_taken_over_where_it_stands() {
    let installed = Installed::new().await;
    let before = installed.uids().await;
    assert_eq!(installed.as_coder_k8s(Method::GET, "/api/v2/users/me", None).await, 200);
    let bed = testbed::shared().unwrap();
    let held = installed.every_token();
    let operator = Operator::start_with(&installed.namespace, &[], bed.proxy_variables());
    let (client, namespace) = (installed.client.clone(), installed.namespace.clone());
    let coderd = bed.coderd(testbed::Flavour::Shipped).await.unwrap();
    let stage = Stage { client, namespace, coderd, operator };
    // The pods are replaced, and the harness's licence died with the process that signed it.
    let is_taken_over = |it: &Value| says(it, "Ready", "False", "LicenseNotApplied");
    let ready = stage.wait::<CoderControlPlane>("main", "taken over", is_taken_over).await;
    stage.look_again("CoderControlPlane", "main").await;

    assert_eq!(installed.uids().await, before, "nothing came, nothing went, nothing was made anew");
    let sets = stage.api::<ReplicaSet>().list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(sets, 2, "the pods were replaced once, for their security contexts");
    let deployment = stage.api::<Deployment>().get("main").await.unwrap();
    let names = variables(deployment);
    assert!(!names.contains(&"CODER_NO_LONGER_DECLARED".to_owned()), "{names:?}");
    assert!(names.contains(&"CODER_ACCESS_URL".to_owned()));

    let status = &ready["status"];
    assert_eq!(status["operatorAccessReady"], true);
    assert_eq!(status["url"], format!("http://main.{}.svc.cluster.local:80", stage.namespace));
    let url = format!("http://main.{}.svc", stage.namespace);
    let http = bed.http_by_name().unwrap();
    let read = |path: &str| {
        let request = http.get(format!("{url}{path}")).header("Coder-Session-Token", &installed.human.token);
        async { serde_json::from_str::<Value>(&request.send().await.unwrap().text().await.unwrap()).unwrap() }
    };
    assert_eq!(read("/api/v2/licenses").await.as_array().unwrap().len(), 1, "it is not uploaded twice");
    let answered = installed.as_coder_k8s(Method::GET, "/api/v2/users/me", None).await;
    assert_eq!(answered, 401, "the token of coder-k8s is revoked");
    let uid = ready["metadata"]["uid"].as_str().unwrap();
    let ours = read(&format!("/api/v2/users/coder-operator-{}", uid.split('-').next().unwrap())).await;
    assert_eq!(ours["roles"][0]["name"], "owner", "{ours}");
    let secret = stage.api::<Secret>().get("main-operator-token").await.unwrap();
    assert!(secret.finalizers().iter().any(|it| it == "coder.com/operator-token"));
    let token = String::from_utf8(secret.data.unwrap()["token"].0.clone()).unwrap();
    assert!(!token.starts_with(TOKEN.0), "it is ours now");
    let held = held.lock().unwrap().clone();
    assert!(
        held.len() > 1 && held.iter().all(Option::is_some),
        "a crash at any time would have found one: {held:?}"
    );
    assert_eq!(ready["metadata"]["finalizers"], json!([FINALIZER]));
}
