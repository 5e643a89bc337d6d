//! `cargo xtask image`: the container image as an OCI archive, made without a container engine.

mod archive;
mod rootfs;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    bed::root,
    terminal::{print, say},
};
use archive::Labels;

/// The profile that releases are built with.
const PROFILE: &str = "dist";
/// The image's name without its registry; the chart's default repository ends with it.
const NAME: &str = "coder-operator";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Put this binary into the image instead of building one with the profile `dist`
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Where to write the archive; `target/dist/coder-operator-VERSION-ARCH.oci.tar` when absent
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => build_binary()?,
    };
    let output = args.output.clone().unwrap_or_else(|| {
        let file = format!("{NAME}-{}-{}.oci.tar", version(), std::env::consts::ARCH);
        root().join("target").join(PROFILE).join(file)
    });
    write(&binary, &output)?;
    print(&output.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Builds the operator as it is released, and returns its path.
pub(crate) fn build_binary() -> Result<PathBuf> {
    say("building coder-operator with the profile dist: link-time optimization takes a few minutes");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--locked", "--profile", PROFILE, "--package", "operator"])
        .current_dir(root())
        .status()
        .context("build coder-operator with cargo")?;
    if !status.success() {
        bail!("coder-operator does not build with the profile {PROFILE}");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(target.join(PROFILE).join(NAME))
}

/// Writes the image of a binary.
pub(crate) fn write(binary: &Path, output: &Path) -> Result<()> {
    let files = rootfs::collect(binary)?;
    let labels = labels();
    let archive = archive::pack(&files, &labels)?;
    if let Some(folder) = output.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    fs::write(output, &archive).with_context(|| format!("write {}", output.display()))?;
    say(&format!("wrote {} ({:.1} MB)", output.display(), megabytes(archive.len())));
    Ok(())
}

/// The version of the workspace.
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

fn labels() -> Labels {
    Labels {
        version: version().to_owned(),
        revision: git(&["rev-parse", "HEAD"]),
        // Equal sources give equal bytes: no clock is read.
        created: git(&["log", "-1", "--format=%ct"]).and_then(|it| it.parse().ok()).unwrap_or_default(),
    }
}

/// The answer of a git command; `None` outside a checkout.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).current_dir(root()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1_000_000.0
}
