//! `cargo xtask demo`: the quickstart, narrated.
//!
//! It uses only what a person could type: kubectl, and HTTP by the Service's name.

use std::{path::Path, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, bail};
use testbed::BedInfo;
use tokio::{process::Command, time::Instant};

use crate::{
    bed::{root, with_bed},
    terminal::say,
};

const NAMESPACE: &str = "demo";
const MANIFEST: &str = "examples/demo/coder.yaml";
/// The proxy sees a ready pod within milliseconds; this is for machines that are busy with something else.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run on the bed of real parts, which is what it does anyhow until there is a sandbox
    #[arg(long)]
    real: bool,
}

pub(crate) fn run(_: &Args) -> Result<ExitCode> {
    say(
        "1. The bed: etcd, kube-apiserver, kube-controller-manager, PostgreSQL, and two coderds for the tests.",
    );
    with_bed(async |bed| {
        say("\n2. A namespace, and the URL of an empty database in a Secret.");
        kubectl(&bed, &["create", "namespace", NAMESPACE]).await?;
        let url = format!("--from-literal=url={}", bed.database().await?);
        // The URL has no password here; it is not shown all the same, because elsewhere it has one.
        run_kubectl(&bed, &["create", "secret", "generic", "coder-database", &url]).await?;

        say(
            "\n3. A Deployment of coderd and its Service. The pod is a real coderd: a process of this machine.",
        );
        let manifest = root().join(MANIFEST);
        kubectl(&bed, &["apply", "-f", &short(&manifest)]).await?;
        kubectl(&bed, &["rollout", "status", "deployment/coder", "--timeout=120s"]).await?;
        kubectl(&bed, &["get", "pods", "-o", "wide"]).await?;

        say("\n4. Its API, by the name of its Service.");
        let address = format!("http://coder.{NAMESPACE}.svc/api/v2/buildinfo");
        say(&format!("$ curl {address}"));
        say(&ask(&bed, &address).await?);

        say(
            "\n5. Done. `cargo xtask bed up` gives you the same to play with; everything above is gone in a moment.",
        );
        Ok(ExitCode::SUCCESS)
    })
}

/// Shows a kubectl command, runs it and shows its answer.
async fn kubectl(bed: &BedInfo, args: &[&str]) -> Result<()> {
    say(&format!("$ kubectl {}", args.join(" ")));
    say(run_kubectl(bed, args).await?.trim_end());
    Ok(())
}

async fn run_kubectl(bed: &BedInfo, args: &[&str]) -> Result<String> {
    let output = Command::new(&bed.kubectl)
        .args(["--namespace", NAMESPACE])
        .args(args)
        .current_dir(root())
        .env("KUBECONFIG", &bed.kubeconfig)
        .output()
        .await
        .context("run kubectl")?;
    if !output.status.success() {
        bail!(
            "kubectl {} failed: {}",
            args.first().unwrap_or(&""),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Asks until a pod answers behind the name.
async fn ask(bed: &BedInfo, address: &str) -> Result<String> {
    let http = bed.http_by_name()?;
    let deadline = Instant::now() + ANSWERS_WITHIN;
    loop {
        let answer = http.get(address).send().await.with_context(|| format!("ask {address}"))?;
        let status = answer.status();
        let text = answer.text().await.with_context(|| format!("read the answer of {address}"))?;
        if status.is_success() {
            return Ok(text.trim_end().to_owned());
        }
        if Instant::now() > deadline {
            bail!("{address} answers {status}: {}", text.trim());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn short(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
