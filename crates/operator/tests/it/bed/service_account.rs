//! ServiceAccounts on the bed, first of all the operator's: with the shipped rules and nothing else.
//!
//! Roles and bindings are read from `deploy/rbac`, where users find them; only their namespaces are replaced, as kustomize would.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::{
    authentication::v1::TokenRequest, authorization::v1::SelfSubjectAccessReview, core::v1::ServiceAccount,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testbed::BedInfo;
use tokio::time::{Instant, sleep};

use super::stage::LIMIT;

/// Selects objects that are none of the operator's own.
pub(super) const OTHERS: &str = "app.kubernetes.io/name!=coder-operator";

const NAME: &str = "coder-operator";
const RBAC: &str = "rbac.authorization.k8s.io";
/// The namespace in the shipped manifests.
const SHIPPED_NAMESPACE: &str = "coder-operator-system";
/// Longer than any test run.
const TOKEN_SECONDS: i64 = 6 * 60 * 60;

/// How the operator's rules are bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// By a Role in the namespace that is reconciled, where the operator is too.
    Role,
    /// By a ClusterRole, with the operator in a namespace of its own: both outlive the namespace that is reconciled.
    ClusterRole,
}

/// A ServiceAccount, and how the rules of an operator are bound to it.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) namespace: String,
    pub(super) name: String,
    bound: Bound,
}

impl Account {
    /// The account of a namespace's operator.
    pub(super) fn of_operator(namespace: &str, bound: Bound) -> Self {
        let namespace = match bound {
            Bound::Role => namespace.to_owned(),
            Bound::ClusterRole => format!("{namespace}-operator"),
        };
        Self { namespace, name: NAME.to_owned(), bound }
    }

    /// Another account. After a whole test run, requests of operators that were refused are an error; those of others are not.
    pub(super) fn named(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), bound: Bound::Role }
    }

    /// The name by which the audit log knows the account.
    pub(super) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// Binds the shipped rules for a namespace on the shared bed. For whoever cannot await.
    pub(super) fn kubeconfig_for(self, namespace: &str) -> PathBuf {
        let namespace = namespace.to_owned();
        let work = async move {
            let bed = testbed::shared().unwrap();
            let client = bed.client().await.unwrap();
            self.bind_shipped(&client, &namespace).await;
            let kubeconfig = self.kubeconfig(bed, &client).await;
            let as_operator = testbed::kubernetes::client(&kubeconfig).await.unwrap();
            wait_until_allowed(&as_operator, &namespace, ("coder.com", "codercontrolplanes", "watch")).await;
            wait_until_allowed(&as_operator, &namespace, ("coordination.k8s.io", "leases", "create")).await;
            kubeconfig
        };
        let run =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
        std::thread::spawn(run).join().unwrap()
    }

    /// Creates the account with the shipped Roles and bindings for an operator of that namespace.
    pub(super) async fn bind_shipped(&self, client: &Client, watched: &str) {
        self.create(client).await;
        let folder = if self.bound == Bound::Role { "namespaced" } else { "cluster" };
        for mut object in documents(&format!("{folder}/role.yaml")) {
            if self.bound == Bound::Role {
                object["metadata"]["namespace"] = json!(watched);
            } else if object["kind"] == "ClusterRoleBinding" {
                // There is one for each operator of the bed.
                object["metadata"]["name"] = json!(format!("{NAME}-{watched}"));
            }
            apply(client, &self.subject_of(object)).await;
        }
        // With `--namespace`, the Lease is in that namespace.
        self.bind_file(client, watched, "leader-election/role.yaml").await;
    }

    /// Lets the operator make workspaces possible in another namespace.
    pub(super) async fn serve_workspaces(&self, client: &Client, workspaces: &str) {
        self.bind_file(client, workspaces, "workspaces.yaml").await;
    }

    async fn bind_file(&self, client: &Client, namespace: &str, file: &str) {
        for mut object in documents(file) {
            object["metadata"]["namespace"] = json!(namespace);
            apply(client, &self.subject_of(object)).await;
        }
    }

    /// Puts this account in the place of the shipped one.
    fn subject_of(&self, mut binding: Value) -> Value {
        for subject in binding.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            assert_eq!((&subject["name"], &subject["namespace"]), (&json!(NAME), &json!(SHIPPED_NAMESPACE)));
            subject["name"] = json!(self.name);
            subject["namespace"] = json!(self.namespace);
        }
        binding
    }

    /// Creates the account and its namespace, if need be.
    pub(super) async fn create(&self, client: &Client) {
        if self.bound == Bound::ClusterRole {
            let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
            apply(client, &own).await;
        }
        let metadata = Self::metadata(&self.name, &self.namespace);
        apply(client, &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})).await;
    }

    /// Gives the account a Role of these rules in a namespace.
    pub(super) async fn add_rules(&self, client: &Client, namespace: &str, rules: &Value) {
        let role = format!("{}-further", self.name);
        let metadata = Self::metadata(&role, namespace);
        let version = format!("{RBAC}/v1");
        apply(client, &json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules}))
            .await;
        self.bind(client, namespace, ("Role", &role)).await;
    }

    /// Binds a Role or a ClusterRole to the account in a namespace.
    pub(super) async fn bind(&self, client: &Client, namespace: &str, (kind, role): (&str, &str)) {
        let binding = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
            "metadata": Self::metadata(role, namespace), "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}]});
        apply(client, &binding).await;
    }

    fn metadata(name: &str, namespace: &str) -> Value {
        json!({"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": NAME}})
    }

    /// A kubeconfig with a token of this account.
    pub(super) async fn kubeconfig(&self, bed: &BedInfo, client: &Client) -> PathBuf {
        let given = std::fs::read_to_string(&bed.kubeconfig).unwrap();
        let mut kubeconfig: Value = serde_json::from_str(&given).unwrap();
        kubeconfig["users"][0]["user"] = json!({"token": self.token(client).await});
        let name = format!("{}-{}.kubeconfig", self.namespace, self.name);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        path
    }

    async fn token(&self, client: &Client) -> String {
        let spec = json!({"audiences": [], "expirationSeconds": TOKEN_SECONDS});
        let request: TokenRequest = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), &self.namespace);
        let given =
            accounts.create_token_request(&self.name, &PostParams::default(), &request).await.unwrap();
        given.status.unwrap().token
    }
}

/// Whether whoever owns the client may do that.
pub(super) async fn is_allowed(
    client: &Client,
    namespace: &str,
    (group, resource, verb): (&str, &str, &str),
) -> bool {
    let attributes = json!({"namespace": namespace, "group": group, "resource": resource, "verb": verb});
    let review = json!({"metadata": {}, "spec": {"resourceAttributes": attributes}});
    let review: SelfSubjectAccessReview = serde_json::from_value(review).unwrap();
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
}

/// Waits until the API server, which learns of Roles and bindings by a watch, knows those that were just written.
pub(super) async fn wait_until_allowed(client: &Client, namespace: &str, right: (&str, &str, &str)) {
    let since = Instant::now();
    while !is_allowed(client, namespace, right).await {
        assert!(since.elapsed() < LIMIT, "{right:?} is not allowed in {namespace}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The objects of a file under `deploy/rbac`.
pub(super) fn documents(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rbac").join(file);
    serde_saphyr::from_multiple(&std::fs::read_to_string(&path).unwrap()).unwrap()
}

pub(super) async fn apply(client: &Client, object: &Value) {
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &text(&object["kind"])));
    let objects: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply("test").force();
    objects.patch(&text(&object["metadata"]["name"]), &params, &Patch::Apply(object)).await.unwrap();
}
