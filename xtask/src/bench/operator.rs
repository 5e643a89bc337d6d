//! The operator as a process, started as the chart starts it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use testbed::{
    Bed,
    process::{Launch, Process},
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    cluster::LIMIT,
    proc::{self, Memory},
};

/// How long the operator may take to end after SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// How often metrics are read while something is awaited.
const POLL: Duration = Duration::from_millis(50);

/// A running operator. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct Operator {
    process: Process,
    pub(super) id: u32,
    url: String,
    http: reqwest::Client,
}

impl Operator {
    /// Starts the operator for a namespace, with leader election, and waits until it serves its metrics.
    pub(super) async fn start(bed: &Bed, binary: &Path, kubeconfig: &Path, namespace: &str) -> Result<Self> {
        let name = unique_name();
        let args = [
            "run",
            "--health-address=127.0.0.1:0",
            "--metrics-address=127.0.0.1:0",
            "--leader-elect",
            "--namespace",
            namespace,
        ];
        let env = [
            ("KUBECONFIG", kubeconfig.display().to_string()),
            // Everything on the bed is at loopback addresses.
            ("CODER_OPERATOR_ALLOW_LOCAL_ADDRESSES", "true".to_owned()),
        ];
        let mut process = bed.spawn(Launch {
            name: &name,
            binary,
            args: args.map(str::to_owned).to_vec(),
            env: env.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            user: None,
            read_output: false,
        })?;
        let log = log_of(bed, &name);
        process.ready(|| async { metrics_url(&log).is_some() }).await?;
        let url = metrics_url(&log).context("the operator does not report where its metrics are")?;
        let id = process.id().context("the operator ended while it started")?;
        let http = reqwest::Client::builder().no_proxy().build().context("make an HTTP client")?;
        Ok(Self { process, id, url, http })
    }

    /// Waits until so many objects of a kind have been reconciled and found up to date.
    pub(super) async fn wait_until_reconciled(&self, kind: &str, count: u32) -> Result<()> {
        let since = Instant::now();
        let mut reconciled = 0;
        while since.elapsed() < LIMIT {
            let answer = self.http.get(format!("{}/metrics", self.url)).send().await;
            let text = answer.context("read the operator's metrics")?.text().await?;
            reconciled = reconciles(&text, kind);
            if reconciled >= count {
                return Ok(());
            }
            sleep(POLL).await;
        }
        bail!("the operator reconciled {reconciled} of {count} {kind} objects")
    }

    pub(super) fn memory(&self) -> Result<Memory> {
        proc::memory(self.id)
    }

    /// Ends the operator as a kubelet does, and waits for it.
    pub(super) async fn stop(mut self) -> Result<()> {
        let sent = Command::new("kill").args(["-TERM", &self.id.to_string()]).status();
        ensure!(sent.context("run kill")?.success(), "the operator cannot be told to end");
        timeout(ENDS_WITHIN, self.process.wait())
            .await
            .context("the operator did not end after SIGTERM")??;
        Ok(())
    }
}

/// Returns a name for a process of which there are several.
pub(super) fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("coder-operator-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the log of a process of the bed.
pub(super) fn log_of(bed: &Bed, name: &str) -> PathBuf {
    bed.folder().join(format!("{name}.log"))
}

/// Reads from the operator's log where its metrics are. `None` until it listens.
fn metrics_url(log: &Path) -> Option<String> {
    url_in(&fs::read_to_string(log).ok()?)
}

fn url_in(log: &str) -> Option<String> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut listens = lines.filter(|it| {
        it["message"].as_str().is_some_and(|it| it.starts_with("listening") && it.contains("metrics"))
    });
    listens.next()?["url"].as_str().map(str::to_owned)
}

/// Returns how many reconciles of a kind found the object up to date.
fn reconciles(metrics: &str, kind: &str) -> u32 {
    let kind = format!("kind=\"{kind}\"");
    let reason = format!("reason=\"{}\"", api::Reason::UpToDate);
    let lines = metrics.lines().filter(|it| it.starts_with("coder_operator_reconciles_total{"));
    let lines = lines.filter(|it| it.contains(&kind) && it.contains(&reason));
    lines.filter_map(|it| it.rsplit(' ').next()?.parse::<u32>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconciles_of_one_kind_that_found_it_up_to_date_are_counted() {
        let metrics = r#"# HELP coder_operator_reconciles x
coder_operator_reconciles_total{kind="CoderGroup",reason="UpToDate"} 7
coder_operator_reconciles_total{kind="CoderGroup",reason="Blocked"} 9
coder_operator_reconciles_total{kind="CoderGroupSync",reason="UpToDate"} 5
"#;
        assert_eq!(reconciles(metrics, "CoderGroup"), 7);
        assert_eq!(reconciles(metrics, "CoderProvisioner"), 0);
    }

    #[test]
    fn metrics_address_is_read_from_the_log() {
        let log = "{\"message\":\"starting\"}\n{\"message\":\"listening for health and metrics\",\"url\":\"http://127.0.0.1:5\"}\n";
        assert_eq!(url_in(log).as_deref(), Some("http://127.0.0.1:5"));
        assert_eq!(url_in("no JSON\n"), None);
    }
}
