//! `cargo xtask demo`: the product in seconds on the sandbox, or in about a minute on the bed, narrated.
//!
//! Every line that it runs is one that a person could type; [`steps`] and [`sandbox_steps`] have them with what each must show.

mod real;
mod runner;
mod sandbox;
mod sandbox_steps;
mod steps;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run on the bed of real programs: install, connect a Coder, drift, approval, key rotation, deletion
    #[arg(long)]
    real: bool,
    /// Leave the sandbox running at the end, until Ctrl-C
    #[arg(long, conflicts_with = "real")]
    keep: bool,
    /// Take the manifests from this folder
    #[arg(long, value_name = "FOLDER", default_value = "examples/demo", hide = true)]
    manifests: PathBuf,
    /// Take our own binaries from this folder instead of building them
    #[arg(long, value_name = "FOLDER", hide = true)]
    binaries: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.real { real::run(args) } else { sandbox::run(args) }
}
