//! `cargo xtask test`: every test, on one bed.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use crate::{
    bed::{exit_code, root, with_bed_of},
    rbac_usage,
    terminal::say,
};

/// Tests that need the bed are in a module of this name, in every crate.
const BED_TESTS: &str = "bed::";
/// Tests on the bed mostly wait; more of them at once than there are cores is what keeps the cores busy.
const THREADS: &str = "6";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave out the tests that need the bed
    #[arg(long)]
    fast: bool,
    /// Run the tests on this version of Coder instead of the pinned one, as 2.35.3; its parts are built once, which takes minutes
    #[arg(long, value_name = "VERSION", conflicts_with = "fast")]
    coder: Option<String>,
    /// Words that a test's name must contain one of
    filters: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.fast {
        let mut command = cargo();
        command
            .args(["test", "--workspace", "--no-fail-fast", "--"])
            .args(&args.filters)
            .args(["--skip", BED_TESTS]);
        return Ok(exit_code(command.status().context("run cargo test")?));
    }
    // What does not compile is said before the bed starts.
    let built = cargo().args(["test", "--workspace", "--no-run"]).status().context("build the tests")?;
    if !built.success() {
        return Ok(exit_code(built));
    }
    if let Err(error) = testbed::parts::Browser::ensure(&say) {
        say(&format!("the test of the sandbox's page will fail: {error:#}"));
    }
    with_bed_of(args.coder.as_deref(), async |info| {
        let mut command = tokio::process::Command::from(cargo());
        command
            .args(["test", "--workspace", "--no-fail-fast", "--"])
            .args(&args.filters)
            .args(["--test-threads", THREADS])
            .envs(info.variables())
            .env(testbed::run::MARKER, &info.run)
            .kill_on_drop(true);
        let status = command.status().await.context("run cargo test")?;
        let rules_fit = rbac_usage::check(&info.audit_log, args.filters.is_empty())?;
        if status.success() && !rules_fit {
            return Ok(ExitCode::FAILURE);
        }
        Ok(exit_code(status))
    })
}

fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}
