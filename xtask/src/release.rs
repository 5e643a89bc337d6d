//! `cargo xtask release`: everything that a release consists of, in one folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};
use testbed::parts;

use crate::{
    bed::root,
    crdgen, image,
    terminal::{print, say},
    tool::CARGO_CYCLONEDX,
};

/// The file with the checksums of all others, in the format of `sha256sum --check`.
const CHECKSUMS: &str = "SHA256SUMS";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Release this binary instead of building one with the profile `dist`
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Where to put the files; `target/release-VERSION` when absent. Files of an earlier run are replaced
    #[arg(long, short, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let version = image::version();
    let folder = args.output.clone().unwrap_or_else(|| root().join(format!("target/release-{version}")));
    if folder.join(CHECKSUMS).exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => image::build_binary()?,
    };
    let platform = format!("{version}-linux-{}", std::env::consts::ARCH);
    copy(&binary, &folder.join(format!("coder-operator-{platform}")))?;
    image::write(&binary, &folder.join(format!("coder-operator-{platform}.oci.tar")))?;
    fs::write(folder.join("crds.yaml"), crds()?).context("write crds.yaml")?;
    copy(&root().join("deploy/install.yaml"), &folder.join("install.yaml"))?;
    chart(&folder)?;
    sbom(&folder.join(format!("coder-operator-{version}.cdx.json")))?;
    let names = checksums(&folder)?;
    for name in names {
        print(&folder.join(name).display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Every CRD in one file.
fn crds() -> Result<String> {
    Ok(crdgen::definitions()?.into_iter().flat_map(|file| ["---\n".to_owned(), file.text]).collect())
}

/// Packages the chart.
fn chart(folder: &Path) -> Result<()> {
    let mut command = Command::new(parts::find("helm", &say)?);
    command.args(["package", "deploy/chart", "--destination"]).arg(folder).current_dir(root());
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().context("run helm package")?;
    anyhow::ensure!(status.success(), "helm package failed: {status}");
    Ok(())
}

/// The components of the operator as `CycloneDX`.
fn sbom(output: &Path) -> Result<()> {
    let program = CARGO_CYCLONEDX.ensure()?;
    let status = Command::new(program)
        .args(["cyclonedx", "--format", "json", "--override-filename", "sbom", "--manifest-path"])
        .arg(root().join("crates/operator/Cargo.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("run cargo-cyclonedx")?;
    // It writes beside every manifest of the workspace, whichever it was asked for.
    let made: Vec<PathBuf> = manifests()?.into_iter().map(|it| it.with_file_name("sbom.json")).collect();
    let own = root().join("crates/operator/sbom.json");
    if !status.success() || !own.exists() {
        bail!("cargo-cyclonedx did not describe the operator");
    }
    copy(&own, output)?;
    for path in made {
        fs::remove_file(path).ok();
    }
    say(&format!("wrote {}", output.display()));
    Ok(())
}

/// The manifests of the workspace's crates.
fn manifests() -> Result<Vec<PathBuf>> {
    let crates = fs::read_dir(root().join("crates")).context("list the crates")?;
    let mut manifests = vec![root().join("xtask/Cargo.toml")];
    for entry in crates {
        manifests.push(entry?.path().join("Cargo.toml"));
    }
    Ok(manifests)
}

/// Writes the checksums of a folder's files, and returns the files' names, sorted, with that of the checksums.
fn checksums(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let mut lines = String::new();
    for name in &names {
        let content = fs::read(folder.join(name)).with_context(|| format!("read {name}"))?;
        let digest = base16ct::lower::encode_string(&Sha256::digest(content));
        lines.extend([digest.as_str(), "  ", name, "\n"]);
    }
    fs::write(folder.join(CHECKSUMS), lines).with_context(|| format!("write {CHECKSUMS}"))?;
    names.push(CHECKSUMS.to_owned());
    Ok(names)
}
