//! `cargo xtask fmt`: formats the sources, those that only a table declares included.
//!
//! `cargo fmt` follows written `mod` lines. The modules of kinds are declared by the table of kinds, so they are given to
//! `rustfmt` by name.

use std::{
    fs,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, bail};
use clap::Args as ClapArgs;

use crate::bed::root;

/// Folders with modules that the table of kinds declares.
const DECLARED_BY_TABLE: [&str; 2] = ["crates/api/src", "crates/engine/src/kinds"];

#[derive(ClapArgs)]
pub(crate) struct Args {
    /// Change no file; fail where one is not formatted
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let check: &[&str] = if args.check { &["--check"] } else { &[] };
    let mut all = Command::new("cargo");
    all.args(["fmt", "--all"]).args(check);
    let mut declared = Command::new("rustfmt");
    declared.args(["--edition", "2024"]).args(check);
    for folder in DECLARED_BY_TABLE.map(|it| root().join(it)) {
        for entry in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "rs") {
                declared.arg(path);
            }
        }
    }
    for mut command in [all, declared] {
        let status = command.status().with_context(|| format!("run {}", command.get_program().display()))?;
        if !status.success() {
            bail!("the sources are not formatted: run `cargo xtask fmt`");
        }
    }
    Ok(ExitCode::SUCCESS)
}
