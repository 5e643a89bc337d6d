//! `cargo xtask demo`: the product in about a minute, narrated.
//!
//! Every line that it runs is one that a person could type; [`steps`] has them with what each must show.

mod runner;
mod steps;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use tokio::time::Instant;

use crate::{
    bed::{build_own_binaries, with_bed},
    terminal::say,
};
use runner::Runner;
use steps::STEPS;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run on the bed of real parts, which is the default until there is a sandbox
    #[arg(long)]
    real: bool,
    /// Take the manifests from this folder
    #[arg(long, value_name = "FOLDER", default_value = "examples/demo", hide = true)]
    manifests: PathBuf,
    /// Take our own binaries from this folder instead of building them
    #[arg(long, value_name = "FOLDER", hide = true)]
    binaries: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let binaries = match &args.binaries {
        Some(folder) => folder.clone(),
        None => build_own_binaries()?,
    };
    say("A Kubernetes control plane, PostgreSQL and a licensed Coder start: real programs, on this machine.");
    let begun = Instant::now();
    with_bed(async |bed| {
        let bed_ready = begun.elapsed();
        let runner = Runner::new(&bed, binaries, &args.manifests).await?;
        for (number, step) in STEPS.iter().enumerate() {
            say(&format!("\n{}. {}\n{}", number + 1, step.title, step.story));
            for command in step.commands {
                runner.run(command).await.with_context(|| format!("step {} of the demo", number + 1))?;
            }
        }
        say(&format!(
            "\nDone in {} s, of which the start of the bed took {} s. `cargo xtask bed exec -- sh` starts the same bed around a shell; docs/quickstart.md goes on with a Coder of your own.",
            begun.elapsed().as_secs(),
            bed_ready.as_secs()
        ));
        Ok(ExitCode::SUCCESS)
    })
}
