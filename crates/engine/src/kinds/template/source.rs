//! Where the files of a version are read from.

use std::{
    fs,
    path::{Path, PathBuf},
};

use api::Reason;
use k8s_openapi::api::core::v1::ConfigMap;

use super::archive::{Files, LARGEST};
use crate::{
    coder::{Coder, missing},
    pipeline::outcome::{Blocked, Trouble},
    ports::Reading,
};

/// The one hidden file that belongs to a template.
const LOCK: &str = ".terraform.lock.hcl";
/// The most files of a directory.
const MOST_FILES: usize = 5000;
/// What stands for `/` in a key of a ConfigMap.
const SLASH: &str = "__";

#[derive(Debug, Clone)]
pub(crate) enum Source {
    Inline(Files),
    ConfigMap { namespace: String, name: String },
    Directory(PathBuf),
}

impl Source {
    /// Reads the files.
    pub(crate) async fn read(&self, coder: &Coder) -> Result<Files, Trouble> {
        match self {
            Self::Inline(files) => Ok(files.clone()),
            Self::ConfigMap { namespace, name } => config_map(namespace, name, coder).await,
            Self::Directory(path) if !coder.reads_directories() || path.is_relative() => {
                let message = "spec.source.directory is for the command line, which reads it beside the manifest: \
                    use files or configMapRef instead";
                Err(unusable(message).into())
            }
            Self::Directory(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || directory(&path)).await;
                let read = read.map_err(|error| unusable(format!("spec.source.directory: {error}")))?;
                Ok(read.map_err(|why| unusable(format!("spec.source.directory: {why}")))?)
            }
        }
    }
}

/// The source cannot be published as it is.
pub(crate) fn unusable(message: impl Into<String>) -> Blocked {
    Blocked { reason: Reason::SourceNotUsable, message: message.into() }
}

async fn config_map(namespace: &str, name: &str, coder: &Coder) -> Result<Files, Trouble> {
    let cluster = coder.references()?;
    let found: Option<ConfigMap> = cluster
        .read(namespace, name, Reading::Now)
        .await
        .map_err(|error| unusable(format!("ConfigMap {name} cannot be read: {error}")))?;
    let found =
        found.ok_or_else(|| missing(format!("there is no ConfigMap {name} in this namespace: create it")))?;
    let text = found.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
    let bytes = found.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
    Ok(text.chain(bytes).map(|(key, content)| (key.replace(SLASH, "/"), content)).collect())
}

/// Whether Coder's own command line leaves an entry of a directory out: hidden ones, and Terraform's state and values of variables, which
/// hold secrets.
fn is_left_out(name: &str) -> bool {
    let is_hidden = name.starts_with('.') && name != LOCK;
    let is_values = ["terraform.tfvars", "terraform.tfvars.json"].contains(&name)
        || name.ends_with(".auto.tfvars")
        || name.ends_with(".auto.tfvars.json");
    is_hidden || is_values || name.contains(".tfstate")
}

/// Reads a directory with everything in it. Links are refused: what they lead to may be another file elsewhere.
fn directory(root: &Path) -> Result<Files, String> {
    let mut files = Files::new();
    let mut size = 0;
    let mut open = vec![root.to_path_buf()];
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in entries {
            let entry = entry.map_err(|error| format!("{}: {error}", folder.display()))?;
            let path = entry.path();
            let fail = |why: String| format!("{}: {why}", path.display());
            if is_left_out(&entry.file_name().to_string_lossy()) {
                continue;
            }
            let kind = entry.file_type().map_err(|error| fail(error.to_string()))?;
            if kind.is_dir() {
                open.push(path);
                continue;
            }
            if !kind.is_file() {
                return Err(fail("is neither a file nor a folder".to_owned()));
            }
            size += entry.metadata().map_err(|error| fail(error.to_string()))?.len();
            if size > LARGEST as u64 || files.len() >= MOST_FILES {
                return Err(format!("has more than {LARGEST} bytes or {MOST_FILES} files"));
            }
            let name = path.strip_prefix(root).ok().and_then(Path::to_str);
            let name = name.ok_or_else(|| fail("its name is no text".to_owned()))?;
            let name = name.replace(std::path::MAIN_SEPARATOR, "/");
            files.insert(name, fs::read(&path).map_err(|error| fail(error.to_string()))?);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_entries_state_and_values_are_left_out() {
        for name in [
            ".git",
            ".env",
            ".terraform",
            "prod.tfstate",
            "terraform.tfstate.backup",
            "terraform.tfvars",
            "a.auto.tfvars.json",
        ] {
            assert!(is_left_out(name), "{name}");
        }
        for name in ["main.tf", LOCK, "example.tfvars", "README.md", "build"] {
            assert!(!is_left_out(name), "{name}");
        }
    }
}
