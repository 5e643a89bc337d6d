//! Directories that manifests name: relative to the file of the manifest.

use std::path::absolute;

use serde_json::Value;

use super::read::Document;

const DIRECTORY: &str = "/spec/source/directory";

/// The manifest with the absolute path of the directory that it names. A manifest of the cluster stays as it is: it has no
/// file that a path could be relative to.
pub(super) fn located(document: &Document) -> Value {
    let mut manifest = document.value.clone();
    let Some(folder) = document.folder() else { return manifest };
    if let Some(directory) = manifest.pointer_mut(DIRECTORY)
        && let Some(path) = directory.as_str()
        && let Ok(path) = absolute(folder.join(path))
        && let Some(path) = path.to_str()
    {
        *directory = path.into();
    }
    manifest
}
