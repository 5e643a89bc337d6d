//! Terraform: the machine's own where Coder accepts its version, else built like the other parts.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{GoPart, Kind, Modules, Say, go::Toolchain};

/// `terraform_data` is built in since 1.4; the pinned Coder refuses 1.15.
const ACCEPTED: std::ops::Range<(u32, u32)> = (1, 4)..(1, 15);

const BUILT: GoPart = GoPart {
    name: "terraform",
    module: "terraform",
    kind: Kind::Command("github.com/hashicorp/terraform"),
    // It knows its version by itself.
    stamp: |_| Ok(String::new()),
};

pub(super) fn ensure(modules: &Modules, toolchain: &Toolchain, say: Say<'_>) -> Result<PathBuf> {
    match machines_own() {
        Some(path) => Ok(path),
        None => BUILT.ensure(modules, toolchain, say),
    }
}

fn machines_own() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("terraform"))
        .find(|program| version(program).is_some_and(|version| ACCEPTED.contains(&version)))
}

fn version(program: &Path) -> Option<(u32, u32)> {
    let output = Command::new(program)
        .args(["version", "-json"])
        .env("TF_CLI_CONFIG_FILE", "/dev/null")
        .env("CHECKPOINT_DISABLE", "1")
        .output()
        .ok()?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let mut numbers = answer.get("terraform_version")?.as_str()?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
