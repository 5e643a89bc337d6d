//! The operator's ServiceAccount: the shipped Role in the namespace that is watched, and nothing else.

use std::{fs, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::{
    authentication::v1::TokenRequest, authorization::v1::SelfSubjectAccessReview, core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use testbed::Bed;

use super::cluster::{Cluster, LIMIT};
use crate::bed::root;

const NAME: &str = "coder-operator";
/// The manifests that users apply for an operator of one namespace.
const FILES: [&str; 2] = ["namespaced/role.yaml", "leader-election/role.yaml"];
/// The validity of the token: longer than any bench takes.
const TOKEN_SECONDS: i64 = 6 * 60 * 60;

/// A ServiceAccount with the shipped rules.
#[derive(Debug, Clone)]
pub(super) struct Account {
    /// The name in the audit log.
    pub(super) user: String,
    pub(super) kubeconfig: PathBuf,
}

impl Account {
    /// Creates the account in a namespace, binds the shipped rules, and waits until the API server knows them.
    pub(super) async fn create(bed: &Bed, cluster: &Cluster) -> Result<Self> {
        let namespace = &cluster.namespace;
        cluster
            .apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}}))
            .await?;
        for file in FILES {
            for mut object in documents(file)? {
                for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten()
                {
                    subject["namespace"] = json!(namespace);
                }
                cluster.apply(&object).await?;
            }
        }
        let kubeconfig = kubeconfig(bed, cluster).await?;
        let client = testbed::kubernetes::client(&kubeconfig).await?;
        wait_until_allowed(&client, namespace, "coder.com", "codercontrolplanes", "watch").await?;
        wait_until_allowed(&client, namespace, "coordination.k8s.io", "leases", "create").await?;
        Ok(Self { user: format!("system:serviceaccount:{namespace}:{NAME}"), kubeconfig })
    }
}

/// Returns the objects of a file under `deploy/rbac`.
fn documents(file: &str) -> Result<Vec<Value>> {
    let path = root().join("deploy/rbac").join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("understand {}", path.display()))
}

/// Writes a kubeconfig with a token of the account.
async fn kubeconfig(bed: &Bed, cluster: &Cluster) -> Result<PathBuf> {
    let spec = json!({"audiences": [], "expirationSeconds": TOKEN_SECONDS});
    let request: TokenRequest = serde_json::from_value(json!({"metadata": {}, "spec": spec}))?;
    let accounts = Api::<ServiceAccount>::namespaced(cluster.client.clone(), &cluster.namespace);
    let issued = accounts
        .create_token_request(NAME, &PostParams::default(), &request)
        .await
        .context("request a token of the operator's ServiceAccount")?;
    let token = issued.status.context("the API server issued no token")?.token;
    let admin = fs::read_to_string(&bed.info().kubeconfig).context("read the bed's kubeconfig")?;
    let mut content: Value = serde_json::from_str(&admin).context("understand the bed's kubeconfig")?;
    content["users"][0]["user"] = json!({"token": token});
    let path = bed.folder().join(format!("{}.kubeconfig", cluster.namespace));
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all(content.to_string().as_bytes()))
        .with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// Waits until the API server, which learns of Roles and bindings by a watch, knows those that were just written.
async fn wait_until_allowed(
    client: &Client,
    namespace: &str,
    group: &str,
    resource: &str,
    verb: &str,
) -> Result<()> {
    let attributes = json!({"namespace": namespace, "group": group, "resource": resource, "verb": verb});
    let review = json!({"metadata": {}, "spec": {"resourceAttributes": attributes}});
    let review: SelfSubjectAccessReview = serde_json::from_value(review)?;
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    let since = tokio::time::Instant::now();
    while since.elapsed() < LIMIT {
        let answer = reviews.create(&PostParams::default(), &review).await.context("ask for rights")?;
        if answer.status.is_some_and(|it| it.allowed) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("the operator may not {verb} {resource} in {namespace}")
}
