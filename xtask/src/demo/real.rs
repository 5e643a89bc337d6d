//! The demo on the bed: Kubernetes, PostgreSQL and a licensed Coder as real programs.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use tokio::time::Instant;

use super::{Args, runner::Runner, steps::STEPS};
use crate::{
    bed::{build_own_binaries, with_bed},
    terminal::say,
};

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let binaries = match &args.binaries {
        Some(folder) => folder.clone(),
        None => build_own_binaries()?,
    };
    say("A Kubernetes control plane, PostgreSQL and a licensed Coder start: real programs, on this machine.");
    let begun = Instant::now();
    with_bed(async |bed| {
        let bed_ready = begun.elapsed();
        let runner = Runner::on_bed(&bed, binaries, &args.manifests).await?;
        for (number, step) in STEPS.iter().enumerate() {
            say(&step.heading(number + 1));
            for command in step.commands {
                runner.run(command).await.with_context(|| format!("step {} of the demo", number + 1))?;
            }
        }
        say(&format!(
            "\nDone in {} s, of which the start of the bed took {} s. `cargo xtask bed exec -- sh` starts the same bed around a shell; docs/in-a-cluster.md goes on with a Coder of your own.",
            begun.elapsed().as_secs(),
            bed_ready.as_secs()
        ));
        Ok(ExitCode::SUCCESS)
    })
}
