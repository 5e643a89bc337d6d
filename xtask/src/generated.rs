//! Files that programs write: who writes them, and how they get into the tree.
//!
//! `tidy` asks the same list whether they are current.

use std::{fs, process::ExitCode};

use anyhow::{Context as _, Result};

use crate::{bed::root, crdgen, docsgen, gitopsgen, rbacgen, terminal::say};

/// A program that writes files of the tree.
pub(crate) struct Generator {
    /// The verb that runs it.
    pub(crate) verb: &'static str,
    /// Which files it writes.
    pub(crate) owns: fn(&str) -> bool,
    /// Every file of it.
    pub(crate) files: fn() -> Result<Vec<File>>,
}

/// A file as it ought to be.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

pub(crate) const DOCS: Generator = Generator { verb: "docsgen", owns: docsgen::owns, files: docsgen::files };
pub(crate) const CRDS: Generator = Generator { verb: "crdgen", owns: crdgen::owns, files: crdgen::files };
pub(crate) const RBAC: Generator = Generator { verb: "rbacgen", owns: rbacgen::owns, files: rbacgen::files };

pub(crate) const GITOPS: Generator =
    Generator { verb: "gitopsgen", owns: gitopsgen::owns, files: gitopsgen::files };

/// Every generator there is.
pub(crate) const ALL: [Generator; 4] = [DOCS, CRDS, RBAC, GITOPS];

pub(crate) fn write(generator: &Generator) -> Result<ExitCode> {
    for file in (generator.files)()? {
        put(file)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes one file into the tree.
pub(crate) fn put(File { path, text }: File) -> Result<()> {
    let place = root().join(&path);
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    fs::write(&place, text).with_context(|| format!("write {path}"))?;
    say(&format!("wrote {path}"));
    Ok(())
}
