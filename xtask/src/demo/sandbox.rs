//! The demo on the sandbox: needs our own binary and a shell, nothing else.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
    time::timeout,
};

use super::{
    Args,
    runner::Runner,
    sandbox_steps::{APPLY, APPROVE, APPROVED, DRIFT, GROUP, HASH, QUOTA},
    steps::Step,
};
use crate::{
    bed::{build_operator, root},
    terminal::say,
};

/// How long the sandbox may take to start.
const START: Duration = Duration::from_secs(30);

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let building = Instant::now();
    let binaries = match &args.binaries {
        Some(folder) => folder.clone(),
        None => build_operator()?,
    };
    let binaries = binaries.canonicalize().context("find our own binaries")?;
    let built = building.elapsed();
    let begun = Instant::now();
    let folder = Folder::with_manifests(&root().join(&args.manifests))?;
    let runtime = tokio::runtime::Runtime::new().context("start a runtime")?;
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let mut interrupts = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
        let interrupted = async {
            tokio::select! {
                _ = interrupts.recv() => 2,
                _ = terminated.recv() => 15,
            }
        };
        tokio::pin!(interrupted);
        let shown = async {
            let sandbox = Sandbox::start(&binaries, &folder.0).await?;
            show(&sandbox, &binaries, &folder.0).await?;
            Ok::<_, anyhow::Error>(sandbox)
        };
        let mut sandbox = tokio::select! {
            shown = shown => shown?,
            signal = &mut interrupted => return Ok(ExitCode::from(128 + signal)),
        };
        say(&format!(
            "\nDone in {:.1} s, after {:.1} s of building. `cargo xtask demo --real` shows the controllers, key rotation and deletion on a real Kubernetes and a real Coder; docs/quickstart.md has the same commands to type.",
            begun.elapsed().as_secs_f64(),
            built.as_secs_f64()
        ));
        say(&sandbox.how_to_go_on(args.keep, &binaries, &folder.0));
        if args.keep {
            tokio::select! {
                status = sandbox.process.wait() => bail!("the sandbox ended: {}", status?),
                _ = interrupted => {}
            }
        }
        sandbox.process.kill().await.context("stop the sandbox")?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Runs every step and checks it.
async fn show(sandbox: &Sandbox, binaries: &Path, folder: &Path) -> Result<()> {
    let runner = Runner::on_sandbox(binaries, folder, &sandbox.url, &sandbox.token)?;
    run_step(&runner, 2, &APPLY).await?;
    sandbox.change_by_hand().await.context("change a quota by hand, before step 3 of the demo")?;
    run_step(&runner, 3, &DRIFT).await?;
    let refusal = run_step(&runner, 4, &APPROVE).await?;
    let hash = approved_hash(&refusal).context("find the hash in the refusal, in step 4 of the demo")?;
    for command in &APPROVED {
        let line = command.line.replace(HASH, hash);
        runner.run_line(&line, command).await.context("step 4 of the demo")?;
    }
    sandbox.check_authors().await.context("see on the page who changed what, at the end of the demo")
}

/// Runs the commands of a step and returns the last answer.
async fn run_step(runner: &Runner, number: usize, step: &Step) -> Result<String> {
    say(&step.heading(number));
    let mut answer = String::new();
    for command in step.commands {
        let ran = runner.run_line(command.line, command).await;
        answer = ran.with_context(|| format!("step {number} of the demo"))?;
    }
    Ok(answer)
}

/// The hash that a refusal asks for.
fn approved_hash(refusal: &str) -> Option<&str> {
    refusal.split("--approve ").nth(1)?.split_whitespace().next()
}

/// A folder with a copy of the manifests, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn with_manifests(manifests: &Path) -> Result<Self> {
        let folder = Self(std::env::temp_dir().join(format!("coder-operator-demo-{}", std::process::id())));
        let copy = folder.0.join("state");
        fs::create_dir_all(&copy).with_context(|| format!("create {}", copy.display()))?;
        let source = manifests.join("state");
        let entries = fs::read_dir(&source).with_context(|| format!("read {}", source.display()))?;
        for entry in entries {
            let entry = entry.context("read a manifest")?;
            fs::copy(entry.path(), copy.join(entry.file_name())).context("copy a manifest")?;
        }
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// A sandbox that ends with the demo.
struct Sandbox {
    process: Child,
    url: String,
    token: String,
    client: reqwest::Client,
}

impl Sandbox {
    async fn start(binaries: &Path, folder: &Path) -> Result<Self> {
        say(
            "\n1. Start a Coder\nThe sandbox imitates Coder in memory. It prints two lines to paste into a shell.",
        );
        say("\n$ coder-operator sandbox");
        let mut process = Command::new(binaries.join("coder-operator"))
            .arg("sandbox")
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start the sandbox")?;
        let output = process.stdout.take().context("read what the sandbox prints")?;
        let mut lines = BufReader::new(output).lines();
        let mut next = async |name: &str| -> Result<String> {
            let line = timeout(START, lines.next_line()).await.context("the sandbox did not start")??;
            let value = line.as_deref().and_then(|it| it.strip_prefix(name)).map(str::to_owned);
            value.with_context(|| format!("the sandbox printed no {name}"))
        };
        let url = next("export CODER_URL=").await?;
        let token = next("export CODER_SESSION_TOKEN=").await?;
        say(&format!("export CODER_URL={url}\nexport CODER_SESSION_TOKEN=… (not shown here)"));
        let client = reqwest::Client::builder().no_proxy().build().context("make a client for the page")?;
        Ok(Self { process, url, token, client })
    }

    async fn state(&self) -> Result<Value> {
        let answer = self.client.get(format!("{}/sandbox/state", self.url)).send().await?;
        Ok(answer.error_for_status()?.json().await?)
    }

    /// Sets the quota of a group as the page does.
    async fn change_by_hand(&self) -> Result<()> {
        let state = self.state().await?;
        let is_it = |it: &&Value| it["organization"] == GROUP.0 && it["name"] == GROUP.1;
        let group = state["groups"].as_array().into_iter().flatten().find(is_it);
        let group = group.with_context(|| format!("there is no group {}/{}", GROUP.0, GROUP.1))?;
        let change = json!({"what": "quota", "group": group["id"], "quota": QUOTA});
        let request = self.client.post(format!("{}/sandbox/change", self.url));
        let answer = request.header("origin", &self.url).json(&change).send().await?;
        answer.error_for_status()?;
        Ok(())
    }

    /// Checks that the page names who made and who healed the drift.
    async fn check_authors(&self) -> Result<()> {
        let state = self.state().await?;
        let changes = state["changes"].as_array().into_iter().flatten();
        let of_quota: Vec<&Value> = changes
            .filter(|it| {
                it["fields"].as_array().is_some_and(|it| it.iter().any(|it| it["name"] == "quota_allowance"))
            })
            .map(|it| &it["who"])
            .collect();
        ensure!(of_quota == ["coder-operator", "a person on this page"], "the page says {of_quota:?}");
        Ok(())
    }

    /// What a person does next.
    fn how_to_go_on(&self, is_kept: bool, binaries: &Path, folder: &Path) -> String {
        let Self { url, token, .. } = self;
        if !is_kept {
            return format!(
                "The page {url}/ showed the state, and who changed it: `cargo xtask demo --keep` leaves it running."
            );
        }
        let program = binaries.join("coder-operator");
        format!(
            "The sandbox goes on until Ctrl-C. Change something on its page, {url}/, and run in another shell:\n\nexport CODER_URL={url}\nexport CODER_SESSION_TOKEN={token}\n{} verify -f {} --url \"$CODER_URL\"",
            program.display(),
            folder.join("state").display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_taken_from_the_refusal() {
        let refusal = "1 refused\nCoderOrganization alpha: to apply this plan, give --approve 0a1b2c\n";
        assert_eq!(approved_hash(refusal), Some("0a1b2c"));
        assert_eq!(approved_hash("7 equal"), None);
    }
}
