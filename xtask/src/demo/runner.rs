//! Runs the demo's commands in a shell, shows them and their answers, and checks them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use testbed::{BedInfo, coderd::sign_license, run};
use tokio::process::Command;

use super::steps::{self, Check};
use crate::{bed::root, terminal::say};

/// What the commands of a demo are run with.
pub(super) struct Runner {
    variables: Vec<(String, String)>,
    /// The run's mark, by which nothing that is started outlives the bed.
    mark: String,
}

impl Runner {
    /// Prepares what a platform engineer has on their machine: a kubeconfig, the tools, an address, a token, a licence.
    pub(super) async fn new(bed: &BedInfo, binaries: PathBuf, manifests: &Path) -> Result<Self> {
        let licensed = bed.licensed.as_ref().context("the bed has a licensed Coder")?;
        let license = sign_license(&licensed.licenses, &json!({"feature_set": "premium"})).await?;
        bed.add_image("coder-operator/coder-operator", &binaries.join("coder-operator"))?;
        let tools = tools(bed)?;
        // A copy: the demo chooses a namespace in it.
        let kubeconfig = tools.join("kubeconfig");
        fs::copy(&bed.kubeconfig, &kubeconfig).context("copy the kubeconfig")?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = [tools, binaries].into_iter().chain(std::env::split_paths(&path));
        let path = std::env::join_paths(path).context("put the tools on PATH")?;
        let variables = [
            ("PATH", path.to_string_lossy().into_owned()),
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("DEMO", manifests.display().to_string()),
            ("CODER_URL", licensed.url.clone()),
            ("CODER_SESSION_TOKEN", licensed.token.clone()),
            ("CODER_LICENSE", license),
        ];
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(Self { variables, mark: bed.run.clone() })
    }

    /// Runs a command as a person would: shown before, its answer after, and checked.
    pub(super) async fn run(&self, command: &steps::Command) -> Result<()> {
        say(&format!("\n$ {}", command.line));
        let output = Command::new("sh")
            .args(["-euc", &format!("{} 2>&1", grouped(command.line))])
            .current_dir(root())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env(run::MARKER, &self.mark)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
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
        for check in command.checks {
            match check {
                Check::Has(words) => ensure!(answer.contains(words), "the answer does not say {words:?}"),
                Check::Lacks(words) => ensure!(!answer.contains(words), "the answer still says {words:?}"),
            }
        }
        Ok(())
    }
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
