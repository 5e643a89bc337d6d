//! The binary and a folder for manifests.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

/// A folder that is removed when the test is over.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Runs the binary against a deployment.
pub(crate) fn coder_operator(url: &str, token: &str, args: &[&str]) -> Output {
    named(url, token, args).output().unwrap()
}

/// The binary with a deployment that `--url` names.
pub(crate) fn named(url: &str, token: &str, args: &[&str]) -> Command {
    let mut command = bare(args);
    command.args(["--url", url]).env("CODER_SESSION_TOKEN", token);
    command
}

/// The binary with a deployment that only the environment names.
pub(crate) fn in_environment(url: &str, token: &str, args: &[&str]) -> Command {
    let mut command = bare(args);
    command.env("CODER_URL", url).env("CODER_SESSION_TOKEN", token);
    command
}

/// Variables that the binary acts upon.
const VARIABLES: [&str; 8] = [
    "CLICOLOR_FORCE",
    "CODER_AGENT_TOKEN",
    "CODER_SESSION_TOKEN",
    "CODER_URL",
    "CODER_WORKSPACE_NAME",
    "KUBECONFIG",
    "KUBERNETES_SERVICE_HOST",
    "NO_COLOR",
];

/// The binary with no deployment and no cluster: neither a variable nor a home that names one.
pub(crate) fn bare(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coder-operator"));
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command.args(args).env("HOME", "/nowhere").env("NO_PROXY", "127.0.0.0/8");
    command
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
