//! A bed of its own to install the operator on: one that watches all namespaces would act on the objects of other tests.

use std::{
    path::{Path, PathBuf},
    process::Output,
};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use reqwest::Method;
use serde_json::{Value, json};
use testbed::{Bed, Options, Session, coderd::sign_license, shared::parts};
use tokio::{process::Command, time::Instant};

use crate::bed::stage::LIMIT;

/// The chart, seen from the root of the workspace.
pub(super) const CHART: &str = "deploy/chart";
/// The image that the chart names, without registry and tag.
const IMAGE: &str = "coder-operator/coder-operator";
/// The namespace of the operator.
pub(super) const OPERATOR: &str = "operators";
/// The namespace of the objects.
pub(super) const PLATFORM: &str = "platform";

/// The root of the workspace.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a command printed on both streams. Panics with it where the command failed.
pub(super) fn output_of(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{error}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The bed, with our binary as the operator's image and a licensed Coder.
pub(super) struct Site {
    bed: Bed,
    pub(super) client: Client,
    pub(super) coder: Session,
    /// The address of the Coder as the operator's pods reach it: the name of a Service, because a loopback address is refused.
    url: String,
}

impl Site {
    pub(super) async fn start() -> Self {
        let bed = Bed::start(parts().unwrap(), Options { coderds: true }).await.unwrap();
        let info = bed.info();
        info.add_image(IMAGE, Path::new(env!("CARGO_BIN_EXE_coder-operator"))).unwrap();
        let licensed = info.licensed.clone().unwrap();
        let coder = licensed.session().unwrap();
        let license = sign_license(&licensed.licenses, &json!({"feature_set": "premium"})).await.unwrap();
        let body = json!({"license": license});
        assert_eq!(coder.request(Method::POST, "/api/v2/licenses", Some(&body)).await.unwrap().0, 201);
        let client = info.client().await.unwrap();
        let address = reqwest::Url::parse(&coder.url).unwrap();
        let port = address.port().unwrap();
        let url = format!("http://coder.{PLATFORM}.svc:{port}");
        let site = Self { bed, client, coder, url };
        site.kubectl(&["create", "namespace", PLATFORM]).await;
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "coder"},
            "spec": {"type": "ExternalName", "externalName": address.host_str(), "ports": [{"port": port}]}});
        site.apply(PLATFORM, &service).await;
        site.kubectl(&["create", "namespace", OPERATOR]).await;
        let restricted = "pod-security.kubernetes.io/enforce=restricted";
        site.kubectl(&["label", "namespace", OPERATOR, restricted]).await;
        site
    }

    /// Runs kubectl, and returns what it printed.
    pub(super) async fn kubectl(&self, args: &[&str]) -> String {
        output_of(&self.try_kubectl(args).await)
    }

    pub(super) async fn try_kubectl(&self, args: &[&str]) -> Output {
        self.command(&self.bed.info().kubectl, args).output().await.unwrap()
    }

    /// Runs Helm in the operator's namespace, and returns what it printed.
    pub(super) async fn helm(&self, args: &[&str]) -> String {
        output_of(&self.try_helm(args).await)
    }

    pub(super) async fn try_helm(&self, args: &[&str]) -> Output {
        self.helm_command(args).output().await.unwrap()
    }

    pub(super) fn helm_command(&self, args: &[&str]) -> Command {
        self.command(&self.bed.info().helm, &[args, &["--namespace", OPERATOR]].concat())
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(root()).env("KUBECONFIG", &self.bed.info().kubeconfig);
        command
    }

    /// Applies manifests, as YAML or JSON, to a namespace.
    pub(super) async fn apply(&self, namespace: &str, manifest: &Value) {
        let file = crate::support::Folder::new(&format!("apply-{}", uuid::Uuid::new_v4()));
        let path = file.write("manifest.json", &manifest.to_string());
        self.kubectl(&["apply", "--namespace", namespace, "-f", &path]).await;
    }

    /// Applies a control plane `main` in a namespace, and the Secret with the token that it refers to.
    pub(super) async fn connect(&self, namespace: &str) {
        let token = json!({"token": self.coder.token});
        self.apply(
            namespace,
            &json!({"apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": crate::bed::stage::CREDENTIALS}, "stringData": token}),
        )
        .await;
        self.apply(namespace, &crate::bed::stage::plane("main", &self.url)).await;
    }

    pub(super) fn kind(&self, namespace: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("coder.com", "v1alpha1", kind));
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    /// Waits until an object is like that, and returns it; panics with the operator's log where it never is.
    pub(super) async fn wait(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        self.wait_in(PLATFORM, (kind, name), what, is).await
    }

    /// The same for an object in another namespace.
    pub(super) async fn wait_in(
        &self,
        namespace: &str,
        (kind, name): (&str, &str),
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        let (objects, since) = (self.kind(namespace, kind), Instant::now());
        loop {
            let object = serde_json::to_value(objects.get(name).await.unwrap()).unwrap();
            if is(&object) {
                return object;
            }
            if since.elapsed() > LIMIT {
                let logs = self.logs().await;
                unreachable!("{kind} {name} never was {what}: {:#}\n{logs}", object["status"]);
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    /// The logs of the operator's pods.
    pub(super) async fn logs(&self) -> String {
        let label = "app.kubernetes.io/name=coder-operator";
        let logs = ["logs", "--namespace", OPERATOR, "--selector", label, "--tail=100", "--prefix"];
        String::from_utf8_lossy(&self.try_kubectl(&logs).await.stdout).into_owned()
    }

    /// The operator's pods that run in a namespace and are not being deleted, by name.
    pub(super) async fn pods(&self, namespace: &str) -> Vec<String> {
        let operators = ListParams::default().labels("app.kubernetes.io/name=coder-operator");
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace).list(&operators).await.unwrap();
        let stays = |it: &Pod| it.metadata.deletion_timestamp.is_none();
        pods.items.into_iter().filter(stays).map(|it| it.name_any()).collect()
    }

    pub(super) fn leases(&self, namespace: &str) -> Api<Lease> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The pod that leads, once one of these does.
    pub(super) async fn leader(&self, namespace: &str, pods: &[String]) -> String {
        let since = Instant::now();
        loop {
            let lease = self.leases(namespace).get_opt("coder-operator").await.unwrap();
            let holder = lease.and_then(|it| it.spec).and_then(|it| it.holder_identity).unwrap_or_default();
            if let Some(pod) = pods.iter().find(|it| holder.starts_with(&format!("{it}_"))) {
                return pod.clone();
            }
            assert!(since.elapsed() < LIMIT, "{holder} leads, and none of {pods:?}");
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    /// The audit log of the API server, whole lines only.
    pub(super) fn audited(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.bed.info().audit_log).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}
