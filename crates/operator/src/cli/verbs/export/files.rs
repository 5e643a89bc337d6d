//! An export as files: one per object, and the list of Secrets.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use engine::export::Export;

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
        match fs::read_to_string(&path) {
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
fn files(deployment: &DeploymentRef, export: &Export) -> BTreeMap<PathBuf, String> {
    let path = |kind: &str, name: &str| Path::new(&kind.to_lowercase()).join(format!("{name}.yaml"));
    let manifests = export.manifests.iter().map(|it| (path(&it.kind, &it.name), text::file(it)));
    let mut files: BTreeMap<PathBuf, String> = manifests.collect();
    if !text::needed(export).is_empty() {
        files.insert(SECRETS.into(), text::list(deployment, export));
    }
    files
}

/// Files beside those of this export: in the folders of its kinds, and of a whole export in those of every kind.
fn stale(folder: &Path, files: &BTreeMap<PathBuf, String>, is_whole: bool) -> Vec<PathBuf> {
    let mut folders: BTreeSet<PathBuf> =
        files.keys().filter_map(|it| Some(it.parent()?.to_owned())).collect();
    if is_whole {
        folders.extend(api::kinds::ALL.iter().map(|it| it.to_lowercase().into()));
    }
    let mut stale = Vec::new();
    for kind in folders.iter().filter(|it| *it != Path::new("")) {
        for entry in fs::read_dir(folder.join(kind)).into_iter().flatten().flatten() {
            if !files.contains_key(&kind.join(entry.file_name())) {
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
