//! Runs the demo's commands in a shell, shows them and their answers, and checks them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use testbed::{BedInfo, coderd::sign_license, run};
use tokio::{process::Command, time::timeout};

use super::steps::{self, Check};
use crate::{
    bed::{OPERATOR_IMAGE, root},
    terminal::say,
};

/// How long a command may take. Every wait of the steps ends before by itself, with a message of its own.
const LIMIT: Duration = Duration::from_mins(5);

/// What the commands of a demo are run with.
pub(super) struct Runner {
    /// How long a command may take.
    limit: Duration,
    /// Where commands run.
    folder: PathBuf,
    variables: Vec<(String, String)>,
    /// The mark of a bed, by which nothing that is started outlives it.
    mark: Option<String>,
}

impl Runner {
    /// Prepares what a platform engineer has on their machine: a kubeconfig, the tools, an address, a token, a licence.
    pub(super) async fn on_bed(bed: &BedInfo, binaries: PathBuf, manifests: &Path) -> Result<Self> {
        let licensed = bed.licensed.as_ref().context("the bed has a licensed Coder")?;
        let license = sign_license(&licensed.licenses, &json!({"feature_set": "premium"})).await?;
        bed.add_image(OPERATOR_IMAGE, &binaries.join("coder-operator"))?;
        let tools = tools(bed)?;
        // A copy: the demo chooses a namespace in it.
        let kubeconfig = tools.join("kubeconfig");
        fs::copy(&bed.kubeconfig, &kubeconfig).context("copy the kubeconfig")?;
        let variables = [
            ("PATH", with_path([tools, binaries])?),
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("DEMO", manifests.display().to_string()),
            ("CODER_URL", licensed.url.clone()),
            ("CODER_SESSION_TOKEN", licensed.token.clone()),
            ("CODER_LICENSE", license),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
        Ok(Self { limit: LIMIT, folder: root().to_owned(), variables, mark: Some(bed.run.clone()) })
    }

    /// Prepares the two variables that a sandbox prints.
    pub(super) fn on_sandbox(binaries: &Path, folder: &Path, url: &str, token: &str) -> Result<Self> {
        let variables = [
            ("PATH", with_path([binaries.to_owned()])?),
            ("NO_PROXY", "127.0.0.1".to_owned()),
            ("CODER_URL", url.to_owned()),
            ("CODER_SESSION_TOKEN", token.to_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
        Ok(Self { limit: LIMIT, folder: folder.to_owned(), variables, mark: None })
    }

    /// Runs a command as a person would: shown before, its answer after, and checked.
    pub(super) async fn run(&self, command: &steps::Command) -> Result<()> {
        self.run_line(command.line, command).await.map(drop)
    }

    /// The same with another line, for what is known only by then. Returns the answer.
    pub(super) async fn run_line(&self, line: &str, command: &steps::Command) -> Result<String> {
        say(&format!("\n$ {line}"));
        let mut shell = Command::new("sh");
        shell
            .args(["-euc", &format!("{} 2>&1", grouped(line))])
            .current_dir(&self.folder)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .envs(self.mark.iter().map(|it| (run::MARKER, it)))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = timeout(self.limit, shell.output())
            .await
            .with_context(|| format!("the command did not end within {} s", self.limit.as_secs()))?
            .context("run a shell")?;
        let answer = String::from_utf8_lossy(&output.stdout);
        let answer = answer.trim_end();
        for secret in ["CODER_SESSION_TOKEN", "CODER_LICENSE"] {
            let value = self.variables.iter().find(|(name, _)| name == secret);
            ensure!(value.is_none_or(|(_, it)| !answer.contains(it.as_str())), "the answer shows {secret}");
        }
        if !answer.is_empty() {
            say(answer);
        }
        let code = output.status.code().unwrap_or(-1);
        if code != command.exit {
            bail!("exit code {code}, expected {}", command.exit);
        }
        if command.shows_exit {
            say(&format!("exit code {code}"));
        }
        for check in command.checks {
            match check {
                Check::Has(words) => ensure!(answer.contains(words), "the answer does not say {words:?}"),
                Check::Lacks(words) => ensure!(!answer.contains(words), "the answer still says {words:?}"),
            }
        }
        Ok(answer.to_owned())
    }
}

/// The search path with these folders in front.
fn with_path(folders: impl IntoIterator<Item = PathBuf>) -> Result<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = folders.into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).context("put the tools on PATH")?;
    Ok(path.to_string_lossy().into_owned())
}

/// A whole line as one command, so that its errors are shown with its output.
fn grouped(line: &str) -> String {
    format!("{{ {line}; }}")
}

/// A folder with kubectl and helm under these names.
fn tools(bed: &BedInfo) -> Result<PathBuf> {
    let folder = bed.kubeconfig.parent().context("the kubeconfig is in a folder")?.join("demo");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    for (name, program) in [("kubectl", &bed.kubectl), ("helm", &bed.helm)] {
        std::os::unix::fs::symlink(program, folder.join(name)).with_context(|| format!("link {name}"))?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A runner for which `kubectl` is a script with that body, and `sleep` takes no time.
    fn runner(name: &str, kubectl: &str) -> Runner {
        let tools = std::env::temp_dir().join(format!("demo-{name}-{}", std::process::id()));
        fs::create_dir_all(&tools).unwrap();
        for (program, body) in [("kubectl", kubectl), ("sleep", "exit 0")] {
            let path = tools.join(program);
            fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
        let variables = vec![("PATH".to_owned(), path)];
        Runner { limit: LIMIT, folder: root().to_owned(), variables, mark: None }
    }

    async fn run(runner: &Runner, line: &'static str) -> Result<()> {
        runner.run(&steps::Command { line, exit: 0, shows_exit: true, checks: &[] }).await
    }

    #[tokio::test]
    async fn command_that_does_not_end_fails_the_demo() {
        let hasty = Runner { limit: Duration::from_millis(100), ..runner("hangs", "exit 0") };
        let error = run(&hasty, "/bin/sleep 600").await.unwrap_err();
        assert!(format!("{error:#}").contains("did not end within"), "{error:#}");
    }

    #[tokio::test]
    async fn wait_for_the_revocation_ends_whatever_kubectl_answers() {
        run(&runner("revoked", "exit 0"), steps::UNTIL_REVOKED).await.unwrap();
        let failing = run(&runner("failing", "exit 7"), steps::UNTIL_REVOKED).await.unwrap_err();
        assert!(format!("{failing:#}").contains("exit code 7"), "{failing:#}");
        let retiring = run(&runner("retiring", "echo alpha"), steps::UNTIL_REVOKED).await.unwrap_err();
        assert!(format!("{retiring:#}").contains("exit code 1"), "{retiring:#}");
    }
}
