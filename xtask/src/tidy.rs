//! `cargo xtask tidy`: checks of the sources, the docs and the generated files.
//!
//! Each check is a function from the tree's files to complaints; it neither fixes nor prints.

mod cases;
mod conformance;
mod crates;
mod finalizers;
mod headers;
mod modules;
mod pages;
pub(crate) mod released;
mod schema;
mod sizes;
mod tree;
mod words;

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    generated::{self, Generator},
    terminal::say,
};
use tree::{Complaint, Tree};

pub(crate) fn run() -> Result<ExitCode> {
    let tree = Tree::read()?;
    let mut complaints = Vec::new();
    complaints.extend(sizes::check(&tree));
    complaints.extend(headers::check(&tree));
    complaints.extend(words::check(&tree));
    complaints.extend(modules::check(&tree));
    complaints.extend(finalizers::check(&tree));
    complaints.extend(conformance::check(&tree));
    complaints.extend(cases::check(&tree));
    complaints.extend(pages::check(&tree));
    complaints.extend(crates::check(&tree)?);
    complaints.extend(released::check(&tree)?);
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

/// What is generated is what is in the tree, and nothing else is beside it.
fn generated(tree: &Tree) -> Result<Vec<Complaint>> {
    let mut complaints = Vec::new();
    for Generator { verb, owns, files } in generated::ALL {
        let files = files()?;
        let stale = files.iter().filter(|file| tree.text(&file.path) != Some(&file.text));
        let left =
            tree.files.iter().filter(|it| owns(&it.path) && files.iter().all(|file| file.path != it.path));
        let paths = stale.map(|file| &file.path).chain(left.map(|file| &file.path));
        let what =
            format!("is not what `cargo xtask {verb}` writes: run it, and remove what it does not write");
        complaints.extend(paths.map(|path| Complaint::new(path, 1, what.as_str())));
    }
    Ok(complaints)
}
