//! The operator as a process: started as a user of its own, told to end, listened to.

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

use super::stage::{LIMIT, until};

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
    pub(super) fn start(namespace: &str, args: &[&str]) -> Self {
        Self::start_with(namespace, args, Vec::new())
    }

    /// The same with more in its environment.
    pub(super) fn start_with(namespace: &str, args: &[&str], variables: Vec<(String, String)>) -> Self {
        let here = "127.0.0.1:0";
        let mut process = Command::new(env!("CARGO_BIN_EXE_coder-operator"))
            .args(["run", "--namespace", namespace, "--health-address", here, "--metrics-address", here])
            .args(args)
            .env("KUBECONFIG", kubeconfig(namespace))
            .envs(variables)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut lines = lines.map(|it| serde_json::from_str::<Value>(&it).unwrap());
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
    pub(super) fn last_words(&mut self) -> Vec<Value> {
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

/// A kubeconfig with a user of that namespace's own, by whom the audit log can tell the operator's requests.
fn kubeconfig(namespace: &str) -> std::path::PathBuf {
    let given = std::fs::read_to_string(&testbed::shared().unwrap().kubeconfig).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&given).unwrap();
    kubeconfig["users"][0]["user"]["as"] = json!(user(namespace));
    kubeconfig["users"][0]["user"]["as-groups"] = json!(["system:masters"]);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{namespace}.kubeconfig"));
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

fn user(namespace: &str) -> String {
    format!("operator-of-{namespace}")
}

/// The writes that the operators of a namespace have sent to the API server, Leases left out: all of those whose effect
/// somebody can have seen by now.
pub(super) async fn writes(namespace: &str) -> Vec<Value> {
    let log = audit_log(namespace).await;
    let user = user(namespace);
    let lines = log.lines().filter(|it| it.contains(&user));
    let entries = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_write = |it: &Value| {
        it["impersonatedUser"]["username"] == user
            && ["create", "update", "patch", "delete"].iter().any(|verb| it["verb"] == *verb)
            && it["objectRef"]["resource"] != "leases"
    };
    entries.filter(is_write).collect()
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
