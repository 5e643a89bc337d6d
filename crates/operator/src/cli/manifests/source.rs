//! Directories that manifests name: relative to the file of the manifest, and inside of its folder.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::read::{DIRECTORY, Document};

/// The field as messages name it.
pub(super) const FIELD: &str = "spec.source.directory";

/// The manifest with the absolute path of the directory that it names. A manifest of the cluster stays as it is: it has no
/// file that a path could be relative to. The error says why the directory is refused.
pub(super) fn located(document: &Document) -> Result<Value, String> {
    let mut manifest = document.value.clone();
    let Some(folder) = document.folder() else { return Ok(manifest) };
    if let Some(directory) = manifest.pointer_mut(DIRECTORY)
        && let Some(path) = directory.as_str()
    {
        let found = inside(folder, path)?;
        *directory = found.to_str().ok_or("its path is no text")?.into();
    }
    Ok(manifest)
}

/// The real path of a directory, which has to be below the folder, whatever links lead to it.
fn inside(folder: &Path, path: &str) -> Result<PathBuf, String> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let unreadable = |place: &Path, error: std::io::Error| format!("{}: {error}", place.display());
    let root = folder.canonicalize().map_err(|error| unreadable(folder, error))?;
    let wanted = folder.join(path);
    let found = wanted.canonicalize().map_err(|error| unreadable(&wanted, error))?;
    if found.starts_with(&root) {
        return Ok(found);
    }
    Err(format!(
        "leads to {}, which is outside of the folder of the manifest: move the manifest beside the directory, or to a folder above it",
        found.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn directory_has_to_be_below_the_folder_of_the_manifest() {
        let base = std::env::temp_dir().join(format!("coder-operator-inside-{}", std::process::id()));
        let folder = base.join("manifests");
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::create_dir_all(base.join("other")).unwrap();
        symlink(base.join("other"), folder.join("link")).unwrap();
        symlink(folder.join("a"), folder.join("own-link")).unwrap();
        for path in ["a", "./a/b", "a/../a", "own-link", "."] {
            assert!(inside(&folder, path).is_ok(), "{path}");
        }
        for path in ["..", "../other", "../../..", "a/../../other", "link", "link/../other", "/", "/etc"] {
            let refused = inside(&folder, path).unwrap_err();
            assert!(
                refused.contains("outside of the folder") || refused.contains("No such file"),
                "{path}: {refused}"
            );
        }
        assert!(inside(&folder, "missing").unwrap_err().contains("missing"));
        fs::remove_dir_all(&base).unwrap();
    }
}
