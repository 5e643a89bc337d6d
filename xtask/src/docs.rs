//! `cargo xtask docs`: the book of the pages under `docs`, built by mdBook.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};

use crate::{bed::root, terminal::say, tool::MDBOOK};

/// Where the book is written.
const BOOK: &str = "target/book";

pub(crate) fn run() -> Result<ExitCode> {
    let mdbook = MDBOOK.ensure()?;
    let book = root().join(BOOK);
    let status = Command::new(&mdbook)
        .arg("build")
        .arg(root())
        .arg("--dest-dir")
        .arg(&book)
        .status()
        .with_context(|| format!("run {}", mdbook.display()))?;
    ensure!(status.success(), "mdBook could not build the book: its messages are above");
    say(&format!("the book is at {}", book.join("index.html").display()));
    Ok(ExitCode::SUCCESS)
}
