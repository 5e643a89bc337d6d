//! The files that are, or are about to be, in the repository.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, bail};

use crate::bed::root;

/// Every file that git tracks or would.
pub(super) struct Tree {
    pub(super) files: Vec<File>,
}

/// A file, by its path from the root.
pub(super) struct File {
    pub(super) path: String,
    /// Its text; nothing when it is no text.
    pub(super) text: Option<String>,
}

/// Something to mend.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub(super) path: String,
    pub(super) line: usize,
    pub(super) what: String,
}

impl Complaint {
    pub(super) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl Tree {
    pub(super) fn read() -> Result<Self> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root())
            .output()
            .context("ask git for the files")?;
        if !output.status.success() {
            bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let names = String::from_utf8(output.stdout).context("read the names of the files")?;
        let mut files = Vec::new();
        for path in names.split_terminator('\0') {
            // A file that was removed and not yet committed is still listed.
            let Ok(bytes) = fs::read(root().join(path)) else { continue };
            let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
            files.push(File { path: path.to_owned(), text });
        }
        Ok(Self { files })
    }

    /// The text of one file.
    pub(super) fn text(&self, path: &str) -> Option<&String> {
        self.files.iter().find(|file| file.path == path)?.text.as_ref()
    }

    /// The files of a language, with their texts.
    pub(super) fn with_ending<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files
            .iter()
            .filter(move |file| file.path.ends_with(ending))
            .filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)))
    }
}
