//! An export as files: one per object, the files of templates in a folder each, and the list of Secrets. No link below the folder is
//! followed: files that an export replaces may be those of a clone that others write to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use engine::{
    export::{Export, Exported},
    kinds::template::is_left_out,
    pipeline::export::SourceFile,
};

use super::text;
use crate::cli::{deployment::DeploymentRef, exit::Failure, terminal::say};

/// The list of Secrets to supply. It is no manifest, and no verb reads it.
const SECRETS: &str = "SECRETS.txt";
/// The bit of a mode by which a file is executable, as Git reads it.
const EXECUTABLE: u32 = 0o100;

/// A file of the export.
struct Planned {
    content: Vec<u8>,
    /// `None` for files whose mode does not matter.
    is_executable: Option<bool>,
}

impl Planned {
    fn text(text: String) -> Self {
        Self { content: text.into_bytes(), is_executable: None }
    }

    /// Whether the file at a path is this one. `None` where there is no file.
    fn is_at(&self, path: &Path) -> io::Result<Option<bool>> {
        let found = match fs::read(path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let has_mode = match self.is_executable {
            Some(wanted) => (fs::metadata(path)?.permissions().mode() & EXECUTABLE != 0) == wanted,
            None => true,
        };
        Ok(Some(has_mode && found == self.content))
    }

    /// Writes a new file beside the path, and renames it: a link at the path is replaced, not followed.
    fn write(&self, path: &Path) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let new = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
        let mode = if self.is_executable == Some(true) { 0o777 } else { 0o666 };
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new);
        let written =
            file.and_then(|mut it| it.write_all(&self.content)).and_then(|()| fs::rename(&new, path));
        if written.is_err() {
            drop(fs::remove_file(&new));
        }
        written
    }
}

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
    for (path, planned) in &files {
        refuse_links(folder, path)?;
        let path = folder.join(path);
        let found = planned.is_at(&path).with_context(|| format!("read {}", path.display()))?;
        if found == Some(false) && !overwrite {
            return Err(Failure::refused(format!(
                "{} exists and differs; nothing was written: give --overwrite to replace it, or another --output-dir",
                path.display()
            )));
        }
        if found != Some(true) {
            changed.push((path, planned));
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
    for (path, planned) in &changed {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        }
        planned.write(path).with_context(|| format!("write {}", path.display()))?;
    }
    for stale in stale(folder, &files, is_whole) {
        say(&format!("{}: no object of this export; delete the file if the object is gone", stale.display()));
    }
    let manifests = text::count(export.manifests.len(), "manifest");
    Ok(format!("{manifests} ({} written)", text::count(changed.len(), "file")))
}

/// Refuses a path that leads through a link, or is one. The folder itself is the choice of the person who named it.
fn refuse_links(folder: &Path, below: &Path) -> Result<(), Failure> {
    let mut path = folder.to_path_buf();
    for part in below.components() {
        path.push(part);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.file_type().is_symlink() => {
                return Err(Failure::refused(format!(
                    "{} is a symbolic link, and export writes through none; nothing was written: remove the link, or give another \
                     --output-dir",
                    path.display()
                )));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                return Err(anyhow::Error::from(error).context(format!("read {}", path.display())).into());
            }
        }
    }
    Ok(())
}

/// The files by their paths in the folder.
fn files(deployment: &DeploymentRef, export: &Export) -> BTreeMap<PathBuf, Planned> {
    let mut files = BTreeMap::new();
    for exported in &export.manifests {
        let manifest = kind_folder(exported).join(format!("{}.yaml", exported.name));
        files.insert(manifest, Planned::text(text::file(exported)));
        for (path, SourceFile { content, is_executable }) in &exported.files {
            let planned = Planned { content: content.clone(), is_executable: Some(*is_executable) };
            files.insert(source_folder(exported).join(path), planned);
        }
    }
    if !text::needed(export).is_empty() {
        files.insert(SECRETS.into(), Planned::text(text::list(deployment, export)));
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

/// Files in the folders of templates that are not of this export: they would be published. Those that are never published, as values
/// of variables, are left alone.
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
                if is_left_out(&entry.file_name().to_string_lossy()) {
                    continue;
                }
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
fn stale(folder: &Path, files: &BTreeMap<PathBuf, Planned>, is_whole: bool) -> Vec<PathBuf> {
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
