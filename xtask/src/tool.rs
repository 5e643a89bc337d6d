//! Tools of the Rust ecosystem that are installed from their crates, once per version, into the shared cache.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use testbed::cache;

use crate::terminal::say;

/// A program that one of our commands runs.
pub(crate) struct Tool {
    /// The crate, which is also the name of its program.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Further arguments of `cargo install`; a tool that runs for seconds is built without optimizations.
    pub(crate) install: &'static [&'static str],
}

pub(crate) const CARGO_DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", install: &["--debug"] };
pub(crate) const CARGO_CYCLONEDX: Tool =
    Tool { name: "cargo-cyclonedx", version: "0.5.9", install: &["--debug"] };
/// Without `serve` and `watch`, which nothing here needs, it builds in half of the time.
pub(crate) const MDBOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    install: &["--debug", "--no-default-features", "--features", "search"],
};

impl Tool {
    /// Returns the program's path, and installs it first where it is not in the cache.
    pub(crate) fn ensure(&self) -> Result<PathBuf> {
        let Self { name, version, install } = self;
        let folder = cache::folder()?.join("tools").join(format!("{name}-{version}"));
        let program = folder.join("bin").join(name);
        if program.exists() {
            return Ok(program);
        }
        say(&format!("installing {name} {version} from its crate, once: this takes a few minutes"));
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["install", "--locked", "--no-track", "--version", version, name])
            .args(*install)
            .arg("--root")
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // Its dependencies are compiled beside our own, not among them.
            .env_remove("CARGO_TARGET_DIR")
            .status()
            .with_context(|| format!("install {name} with cargo"))?;
        if !status.success() {
            bail!(
                "{name} {version} cannot be installed: check that the crates registry can be reached, then run this again"
            );
        }
        Ok(program)
    }
}
