//! The operator as a process: started with the shipped rights, told to end, listened to.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    service_account::{Account, Bound},
    stage::{LIMIT, until},
};

/// A running operator that answers at a port of its own.
pub(super) struct Operator {
    pub(super) process: Child,
    url: String,
    said: Arc<Mutex<Vec<Value>>>,
    listener: Option<JoinHandle<()>>,
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Operator {
    /// How many of these the operator has counted so far.
    pub(super) async fn counted(&self, family: &str, with: &str) -> u64 {
        let metrics = self.get("/metrics").await.unwrap().1;
        let lines = metrics.lines().filter(|it| it.starts_with(family) && it.contains(with));
        lines.map(|it| it.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    pub(super) fn start(namespace: &str, args: &[&str]) -> Self {
        Self::start_with(namespace, args, Vec::new())
    }

    /// The same with more in its environment.
    pub(super) fn start_with(namespace: &str, args: &[&str], variables: Vec<(String, String)>) -> Self {
        let kubeconfig = Account::of_operator(namespace, Bound::Role).kubeconfig_for(namespace);
        Self::start_as(&kubeconfig, &[&["--namespace", namespace], args].concat(), variables)
    }

    /// The same with rights that outlive the namespace.
    pub(super) fn start_cluster_wide(namespace: &str, variables: Vec<(String, String)>) -> Self {
        let kubeconfig = Account::of_operator(namespace, Bound::ClusterRole).kubeconfig_for(namespace);
        Self::start_as(&kubeconfig, &["--namespace", namespace], variables)
    }

    /// The same as whoever that kubeconfig names, for all namespaces unless the arguments name one.
    pub(super) fn start_as(kubeconfig: &Path, args: &[&str], variables: Vec<(String, String)>) -> Self {
        let here = "127.0.0.1:0";
        let mut process = Command::new(env!("CARGO_BIN_EXE_coder-operator"))
            .args(["run", "--health-address", here, "--metrics-address", here])
            .args(args)
            // Everything that a test starts is on loopback. What is given in `variables` wins.
            .env("CODER_OPERATOR_ALLOW_LOCAL_ADDRESSES", "true")
            .env("KUBECONFIG", kubeconfig)
            .envs(variables)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        // A line that is not ours, as of a process that aborts, is kept as it is: a failed test shows it.
        let mut lines = lines.map(|it| serde_json::from_str(&it).unwrap_or_else(|_| json!({"aborted": it})));
        let listens = lines.find(|it| it["message"] == "listening for health and metrics");
        let url = listens.unwrap()["url"].as_str().unwrap().to_owned();
        let said = Arc::<Mutex<Vec<Value>>>::default();
        let heard = Arc::clone(&said);
        // Read to the end, so that it never stands still for want of a reader.
        let listener = std::thread::spawn(move || lines.for_each(|line| heard.lock().unwrap().push(line)));
        Self { process, url, said, listener: Some(listener) }
    }

    pub(super) async fn get(&self, path: &str) -> Option<(u16, String)> {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client.get(format!("{}{path}", self.url)).send().await.ok()?;
        Some((answer.status().as_u16(), answer.text().await.ok()?))
    }

    /// Every line that it has written so far.
    pub(super) fn said(&self) -> Vec<Value> {
        self.said.lock().unwrap().clone()
    }

    /// Every line that it wrote until its end.
    pub(super) fn last_line(&mut self) -> Vec<Value> {
        self.listener.take().unwrap().join().unwrap();
        self.said()
    }

    /// Waits for a line with all of these words.
    pub(super) async fn says(&self, words: &[&str]) {
        let is_it = |line: &Value| words.iter().all(|it| line.to_string().contains(it));
        until(words.join(" … "), || self.said().iter().any(is_it)).await;
    }

    /// Waits until the metrics are like that.
    pub(super) async fn shows(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let since = Instant::now();
        loop {
            let text = self.get("/metrics").await.unwrap().1;
            if is(&text) {
                return text;
            }
            assert!(since.elapsed() < LIMIT, "{what} is not in:\n{text}");
            sleep(Duration::from_millis(250)).await;
        }
    }

    /// Sends a signal.
    pub(super) fn tell(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    pub(super) async fn ended(&mut self) -> ExitStatus {
        let since = Instant::now();
        while since.elapsed() < LIMIT {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            sleep(Duration::from_millis(50)).await;
        }
        unreachable!("it did not end")
    }
}

/// The writes that the operators of a namespace have sent to the API server, Leases left out: all of those whose effect
/// somebody can have seen by now.
pub(super) async fn writes(namespace: &str) -> Vec<Value> {
    let is_write =
        |it: &Value| ["create", "update", "patch", "delete"].iter().any(|verb| it["verb"] == *verb);
    requests(namespace).await.into_iter().filter(is_write).collect()
}

/// The same with the reads. Watches are left out.
pub(super) async fn requests(namespace: &str) -> Vec<Value> {
    let log = audit_log(namespace).await;
    let users = [Bound::Role, Bound::ClusterRole].map(|it| Account::of_operator(namespace, it).user());
    let lines = log.lines().filter(|line| users.iter().any(|it| line.contains(it)));
    let entries = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_counted = |it: &Value| {
        users.iter().any(|user| it["user"]["username"] == *user)
            && it["verb"] != "watch"
            && it["objectRef"]["resource"] != "leases"
            // A question about rights is created, and changes nothing.
            && it["objectRef"]["apiGroup"] != "authorization.k8s.io"
    };
    entries.filter(is_counted).collect()
}

/// The audit log up to a request of now. A request has its line only when it is over, which those who watch its effect do
/// not wait for.
async fn audit_log(namespace: &str) -> String {
    let bed = testbed::shared().unwrap();
    let maps = Api::<ConfigMap>::namespaced(bed.client().await.unwrap(), namespace);
    let mark = uuid::Uuid::new_v4().to_string();
    assert!(maps.get_metadata_opt(&mark).await.unwrap().is_none());
    let since = Instant::now();
    loop {
        let log = std::fs::read_to_string(&bed.audit_log).unwrap();
        if log.contains(&mark) {
            return log;
        }
        assert!(since.elapsed() < LIMIT, "a request is not in the audit log");
        sleep(Duration::from_millis(20)).await;
    }
}
