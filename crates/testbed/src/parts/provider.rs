//! Coder's Terraform provider, in a folder from which Terraform installs providers, and the settings that name that folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{GoPart, Kind, Modules, Say, go::Toolchain, pinned};

const MODULE: &str = "github.com/coder/terraform-provider-coder/v2";
/// The place of the provider's name among all providers.
const HOST: &str = concat!("registry.", "terraform", ".io");

const BUILT: GoPart = GoPart {
    name: "terraform-provider-coder",
    module: "coder",
    kind: Kind::Command(MODULE),
    stamp: |_| Ok(String::new()),
};

/// The settings of a Terraform that installs this provider, and no other. Terraform asks no registry.
pub(super) fn ensure(modules: &Modules, toolchain: &Toolchain, say: Say<'_>) -> Result<PathBuf> {
    let program = BUILT.ensure(modules, toolchain, say)?;
    let folder = program.parent().context("a part's path has a folder")?;
    let settings = folder.join("terraform.tfrc");
    if settings.exists() {
        return Ok(settings);
    }
    let _lock = super::lock(say)?;
    let version = pinned(&modules.folder(BUILT.module), MODULE)?;
    let mirror = folder.join("mirror");
    place(&program, &mirror, version.trim_start_matches('v'))?;
    // Written last, and at once: who finds the settings finds the provider.
    let unfinished = folder.join(format!("terraform.tfrc.unfinished-{}", std::process::id()));
    fs::write(&unfinished, text(&mirror)).with_context(|| format!("write {}", unfinished.display()))?;
    fs::rename(&unfinished, &settings).with_context(|| format!("put {} in place", settings.display()))?;
    Ok(settings)
}

fn place(program: &Path, mirror: &Path, version: &str) -> Result<()> {
    let folder = mirror.join(HOST).join("coder/coder").join(version).join("linux_amd64");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let path = folder.join(format!("terraform-provider-coder_v{version}"));
    if path.exists() {
        return Ok(());
    }
    fs::hard_link(program, &path).with_context(|| format!("put {} in place", path.display()))
}

fn text(mirror: &Path) -> String {
    format!(
        "provider_installation {{\n  filesystem_mirror {{\n    path = {:?}\n  }}\n}}\n",
        mirror.display().to_string()
    )
}
