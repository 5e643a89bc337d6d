//! Where the files of a version are read from.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use api::Reason;
use k8s_openapi::api::core::v1::ConfigMap;

use super::{
    archive::{self, EXECUTABLE, Files, LARGEST, MOST_FILES, is_left_out},
    fetch::{Archive, unusable},
};
use crate::{
    coder::{Coder, missing},
    pipeline::{
        export::SourceFile,
        outcome::{Blocked, Trouble},
    },
    ports::Reading,
};

/// What stands for `/` in a key of a ConfigMap.
const SLASH: &str = "__";

#[derive(Debug, Clone)]
pub(crate) enum Source {
    Inline(Files),
    ConfigMap {
        namespace: String,
        name: String,
    },
    Directory(PathBuf),
    /// Read only when a version of it is published or compared.
    Archive(Archive),
}

impl Source {
    /// Whether the source tells which files are executable.
    pub(crate) fn has_modes(&self) -> bool {
        matches!(self, Self::Directory(_) | Self::Archive(_))
    }

    /// Reads the files, and packs them. Those of an archive on another host are read by [`Archive::packed`].
    pub(crate) async fn packed(&self, coder: &Coder) -> Result<Vec<u8>, Trouble> {
        let files = self.read(coder).await?;
        Ok(archive::pack(&files).map_err(|why| unusable(format!("spec.source: {why}")))?)
    }

    async fn read(&self, coder: &Coder) -> Result<Files, Trouble> {
        match self {
            Self::Archive(_) => Ok(Files::new()),
            Self::Inline(files) => Ok(files.clone()),
            Self::ConfigMap { namespace, name } => config_map(namespace, name, coder).await,
            Self::Directory(path) if !coder.reads_directories() || path.is_relative() => {
                let message = "spec.source.directory is for the command line, which reads it beside the manifest: \
                    use files, configMapRef or archive instead";
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

async fn config_map(namespace: &str, name: &str, coder: &Coder) -> Result<Files, Trouble> {
    let cluster = coder.references()?;
    let unread = |error| Blocked {
        reason: Reason::ClusterError,
        message: format!("ConfigMap {name} cannot be read: {error}"),
    };
    let found: Option<ConfigMap> = cluster.read(namespace, name, Reading::Now).await.map_err(unread)?;
    let found =
        found.ok_or_else(|| missing(format!("there is no ConfigMap {name} in this namespace: create it")))?;
    let text = found.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
    let bytes = found.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
    Ok(text.chain(bytes).map(|(key, content)| (key.replace(SLASH, "/"), content.into())).collect())
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
            let metadata = entry.metadata().map_err(|error| fail(error.to_string()))?;
            size += metadata.len();
            if size > LARGEST as u64 || files.len() >= MOST_FILES {
                return Err(format!("has more than {LARGEST} bytes or {MOST_FILES} files"));
            }
            let name = path.strip_prefix(root).ok().and_then(Path::to_str);
            let name = name.ok_or_else(|| fail("its name is no text".to_owned()))?;
            let name = name.replace(std::path::MAIN_SEPARATOR, "/");
            let content = fs::read(&path).map_err(|error| fail(error.to_string()))?;
            let is_executable = metadata.permissions().mode() & EXECUTABLE != 0;
            files.insert(name, SourceFile { content, is_executable });
        }
    }
    Ok(files)
}
