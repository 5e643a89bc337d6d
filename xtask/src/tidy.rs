//! `cargo xtask tidy`: what goodwill does not keep.
//!
//! Each check is a function from the tree's files to complaints; it neither fixes nor prints.

mod crates;
mod headers;
mod sizes;
mod tree;
mod words;

use std::process::ExitCode;

use anyhow::Result;

use crate::{docsgen, terminal::say};
use tree::{Complaint, Tree};

pub(crate) fn run() -> Result<ExitCode> {
    let tree = Tree::read()?;
    let mut complaints = Vec::new();
    complaints.extend(sizes::check(&tree));
    complaints.extend(headers::check(&tree));
    complaints.extend(words::check(&tree));
    complaints.extend(crates::check(&tree)?);
    complaints.extend(generated(&tree)?);
    for Complaint { path, line, what } in &complaints {
        say(&format!("{path}:{line}: {what}"));
    }
    if complaints.is_empty() {
        say(&format!("tidy: {} files, no complaint", tree.files.len()));
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("tidy: {} complaints", complaints.len()));
    Ok(ExitCode::FAILURE)
}

/// What is generated is what is in the tree.
fn generated(tree: &Tree) -> Result<Vec<Complaint>> {
    let stale = |path: &str| Complaint::new(path, 1, "is not what `cargo xtask docsgen` writes: run it");
    let files = docsgen::files()?;
    Ok(files
        .into_iter()
        .filter(|(path, text)| tree.text(path) != Some(text))
        .map(|(path, _)| stale(path))
        .collect())
}
