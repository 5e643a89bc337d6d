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
    bare(args).env("CODER_URL", url).env("CODER_SESSION_TOKEN", token).output().unwrap()
}

/// The binary with no deployment and no cluster: neither a variable nor a home that names one.
pub(crate) fn bare(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coder-operator"));
    for variable in ["CODER_URL", "CODER_SESSION_TOKEN", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"] {
        command.env_remove(variable);
    }
    command.args(args).env("HOME", "/nowhere").env("NO_PROXY", "127.0.0.0/8");
    command
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
