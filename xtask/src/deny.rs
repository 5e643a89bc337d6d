//! `cargo xtask deny`: licences, bans, sources and known vulnerabilities of our dependencies.

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};

use crate::{
    bed::{exit_code, root},
    terminal::say,
    tool::CARGO_DENY,
};

pub(crate) fn run() -> Result<ExitCode> {
    let program = CARGO_DENY.ensure()?;
    let deny = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["--locked"]).args(args).current_dir(root()).stdin(Stdio::null());
        command
    };
    let fetched = deny(&["fetch", "db"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let mut checks = vec!["check", "--hide-inclusion-graph", "bans", "licenses", "sources"];
    if fetched.context("run cargo-deny")?.success() {
        checks.push("advisories");
    } else {
        say(
            "the advisory database cannot be fetched here: licences, bans and sources are checked, advisories are not",
        );
    }
    Ok(exit_code(deny(&checks).status().context("run cargo-deny")?))
}
