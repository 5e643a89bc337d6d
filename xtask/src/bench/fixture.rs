//! What a work runs on: a namespace, a licensed coderd behind a counting proxy, and an operator.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kube::{Client, api::DeleteParams, api::ListParams};
use reqwest::Method;
use serde_json::{Value, json};
use testbed::{Bed, Coderd, Flavour, coderd::sign_license};
use tokio::time::sleep;

use super::{
    account::Account,
    calls::CallCounter,
    cluster::{Cluster, is_ready},
    operator::Operator,
};

/// How many requests the bench itself sends side by side.
pub(super) const AT_ONCE: usize = 16;
/// The Secret with the token of the control plane.
const CREDENTIALS: &str = "coder-automation";

/// What all works share.
pub(super) struct Bench<'a> {
    pub(super) bed: &'a Bed,
    pub(super) client: Client,
    /// The operator's program.
    pub(super) binary: PathBuf,
    /// How long `idle` is.
    pub(super) idle: Duration,
    /// How many provisioners of a burst run a daemon.
    pub(super) daemons: u32,
}

/// A namespace with an operator, and a coderd of its own.
pub(super) struct Fixture<'a> {
    pub(super) bench: &'a Bench<'a>,
    pub(super) cluster: Cluster,
    pub(super) coderd: Coderd,
    pub(super) calls: CallCounter,
    pub(super) account: Account,
    pub(super) operator: Option<Operator>,
}

impl<'a> Fixture<'a> {
    /// Starts a coderd without a licence, and prepares a namespace; no operator runs yet.
    pub(super) async fn bare(bench: &'a Bench<'a>) -> Result<Self> {
        let info = bench.bed.info();
        let cluster = Cluster { client: bench.client.clone(), namespace: info.namespace("bench").await? };
        let coderd = info.coderd(Flavour::Licensed).await?;
        let calls = CallCounter::start(&coderd.owner.url).await?;
        let account = Account::create(bench.bed, &cluster).await?;
        Ok(Self { bench, cluster, coderd, calls, account, operator: None })
    }

    /// Returns the same with a premium licence.
    pub(super) async fn licensed(bench: &'a Bench<'a>) -> Result<Self> {
        let fixture = Self::bare(bench).await?;
        let body = json!({"license": fixture.license().await?});
        fixture.post("/api/v2/licenses", &body).await?;
        Ok(fixture)
    }

    /// Returns the same with a premium licence, an operator, and a control plane that is Ready.
    pub(super) async fn connected(bench: &'a Bench<'a>) -> Result<Self> {
        let mut fixture = Self::licensed(bench).await?;
        fixture.start_operator().await?;
        fixture.write_token().await?;
        fixture.cluster.apply(&fixture.plane()).await?;
        fixture.cluster.wait_for("CoderControlPlane", 1, "Ready", is_ready).await?;
        Ok(fixture)
    }

    /// Returns a premium licence that only this coderd accepts.
    pub(super) async fn license(&self) -> Result<String> {
        let licenses = self.coderd.licenses.as_ref().context("this coderd signs licences")?;
        sign_license(licenses, &json!({"feature_set": "premium"})).await
    }

    /// Sends a POST to coderd, past the proxy.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let (status, answer) = self.coderd.owner.request(Method::POST, path, Some(body)).await?;
        ensure!(status == 201, "POST {path}: {status}: {answer}");
        Ok(answer)
    }

    /// Reads from coderd, past the proxy.
    pub(super) async fn get(&self, path: &str) -> Result<Value> {
        let (status, answer) = self.coderd.owner.request(Method::GET, path, None).await?;
        ensure!(status == 200, "GET {path}: {status}: {answer}");
        Ok(answer)
    }

    /// Writes the owner's token to the Secret that the control plane names.
    pub(super) async fn write_token(&self) -> Result<()> {
        self.write_secret(CREDENTIALS, "token", &self.coderd.owner.token).await
    }

    pub(super) async fn write_secret(&self, name: &str, key: &str, value: &str) -> Result<()> {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {key: value}});
        self.cluster.apply(&secret).await
    }

    /// Returns the control plane `main`: this coderd by way of the proxy.
    pub(super) fn plane(&self) -> Value {
        let external = json!({"url": self.calls.url, "credentialsSecretRef": {"name": CREDENTIALS}});
        json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main"},
            "spec": {"external": external}})
    }

    pub(super) async fn start_operator(&mut self) -> Result<()> {
        let Bench { bed, binary, .. } = self.bench;
        let started = Operator::start(bed, binary, &self.account.kubeconfig, &self.cluster.namespace).await?;
        self.operator = Some(started);
        Ok(())
    }

    pub(super) async fn stop_operator(&mut self) -> Result<()> {
        match self.operator.take() {
            Some(operator) => operator.stop().await,
            None => Ok(()),
        }
    }

    pub(super) fn operator(&self) -> Result<&Operator> {
        self.operator.as_ref().context("no operator runs")
    }

    /// Stops the operator and the daemons, so that the next work has the machine for itself.
    pub(super) async fn end(mut self) -> Result<()> {
        self.stop_operator().await?;
        let deployments = self.cluster.of("apps/v1", "Deployment");
        let everything = ListParams::default();
        deployments
            .delete_collection(&DeleteParams::background(), &everything)
            .await
            .context("delete the Deployments of a work")?;
        let pods = self.cluster.of("v1", "Pod");
        while !pods.list_metadata(&everything).await.context("list the pods of a work")?.items.is_empty() {
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }
}
