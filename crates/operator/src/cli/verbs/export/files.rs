//! An export as files: one per object, the files of templates in a folder each, and the list of Secrets.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use engine::export::{Export, Exported};

use super::text;
use crate::cli::{deployment::DeploymentRef, exit::Failure, terminal::say};

/// The list of Secrets to supply. It is no manifest, and no verb reads it.
const SECRETS: &str = "SECRETS.txt";

/// Writes the files, and returns how many. Nothing is written where a file differs and may not be replaced. `is_whole` is whether
/// all of the deployment is exported.
pub(super) fn write(
    folder: &Path,
    deployment: &DeploymentRef,
    export: &Export,
    (is_whole, overwrite): (bool, bool),
) -> Result<String, Failure> {
    let files = files(deployment, export);
    let mut changed = Vec::new();
    for (path, content) in &files {
        let path = folder.join(path);
        match fs::read(&path) {
            Ok(found) if found == *content => {}
            Ok(_) if !overwrite => {
                return Err(Failure::refused(format!(
                    "{} exists and differs; nothing was written: give --overwrite to replace it, or another --output-dir",
                    path.display()
                )));
            }
            Ok(_) => changed.push((path, content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => changed.push((path, content)),
            Err(error) => {
                return Err(anyhow::Error::from(error).context(format!("read {}", path.display())).into());
            }
        }
    }
    let surplus = surplus(folder, export)?;
    if let Some(path) = surplus.first().filter(|_| !overwrite) {
        return Err(Failure::refused(format!(
            "{} is no file of the template, and would be published with it; nothing was written: give --overwrite to delete it, or \
             another --output-dir",
            path.display()
        )));
    }
    for path in &surplus {
        fs::remove_file(path).with_context(|| format!("delete {}", path.display()))?;
        say(&format!("{}: deleted, no file of the template any more", path.display()));
    }
    for (path, content) in &changed {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        }
        fs::write(path, content).with_context(|| format!("write {}", path.display()))?;
    }
    for stale in stale(folder, &files, is_whole) {
        say(&format!("{}: no object of this export; delete the file if the object is gone", stale.display()));
    }
    let manifests = text::count(export.manifests.len(), "manifest");
    Ok(format!("{manifests} ({} written)", text::count(changed.len(), "file")))
}

/// The files by their paths in the folder.
fn files(deployment: &DeploymentRef, export: &Export) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for exported in &export.manifests {
        let manifest = kind_folder(exported).join(format!("{}.yaml", exported.name));
        files.insert(manifest, text::file(exported).into_bytes());
        for (path, content) in &exported.files {
            files.insert(source_folder(exported).join(path), content.clone());
        }
    }
    if !text::needed(export).is_empty() {
        files.insert(SECRETS.into(), text::list(deployment, export).into_bytes());
    }
    files
}

fn kind_folder(exported: &Exported) -> PathBuf {
    exported.kind.to_lowercase().into()
}

/// The folder with the files of a template, beside its manifest.
fn source_folder(exported: &Exported) -> PathBuf {
    kind_folder(exported).join(&exported.name)
}

/// Files in the folders of templates that are not of this export: they would be published.
fn surplus(folder: &Path, export: &Export) -> Result<Vec<PathBuf>, Failure> {
    let mut surplus = Vec::new();
    for exported in export.manifests.iter().filter(|it| !it.files.is_empty()) {
        let root = folder.join(source_folder(exported));
        let known: BTreeSet<PathBuf> = exported.files.keys().map(|it| root.join(it)).collect();
        let mut open = vec![root];
        while let Some(place) = open.pop() {
            let entries = match fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    return Err(anyhow::Error::from(error)
                        .context(format!("list {}", place.display()))
                        .into());
                }
            };
            for entry in entries {
                let entry = entry.with_context(|| format!("list {}", place.display()))?;
                let path = entry.path();
                if entry.file_type().is_ok_and(|it| it.is_dir()) {
                    open.push(path);
                } else if !known.contains(&path) {
                    surplus.push(path);
                }
            }
        }
    }
    surplus.sort();
    Ok(surplus)
}

/// Files beside those of this export: in the folders of its kinds, and of a whole export in those of every kind.
fn stale(folder: &Path, files: &BTreeMap<PathBuf, Vec<u8>>, is_whole: bool) -> Vec<PathBuf> {
    let in_folders = files.keys().filter(|it| it.components().count() > 1);
    let mut folders: BTreeSet<PathBuf> =
        in_folders.filter_map(|it| it.components().next()).map(|it| PathBuf::from(it.as_os_str())).collect();
    if is_whole {
        folders.extend(api::kinds::ALL.iter().map(|it| it.to_lowercase().into()));
    }
    let mut stale = Vec::new();
    for kind in &folders {
        for entry in fs::read_dir(folder.join(kind)).into_iter().flatten().flatten() {
            let path = kind.join(entry.file_name());
            if !files.keys().any(|it| it.starts_with(&path)) {
                stale.push(entry.path());
            }
        }
    }
    let list = folder.join(SECRETS);
    if is_whole && !files.contains_key(Path::new(SECRETS)) && list.exists() {
        stale.push(list);
    }
    stale.sort();
    stale
}
