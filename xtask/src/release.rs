//! `cargo xtask release`: everything that a release consists of, in one folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
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
    /// Where to put the files: a folder that is empty or does not exist. `target/release-VERSION` when absent, which is replaced
    #[arg(long, short, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let version = image::version();
    let folder = args.output.clone().unwrap_or_else(|| root().join(format!("target/release-{version}")));
    prepare(&folder, args.output.is_none())?;
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => image::build_binary()?,
    };
    for name in collect(&folder, &binary, &Tools { package_chart, write_sbom })? {
        print(&folder.join(name).display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates the folder, empty. Only the default folder is replaced: any other one may hold files of somebody else.
fn prepare(folder: &Path, is_default: bool) -> Result<()> {
    if is_default && folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let mut entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    ensure!(entries.next().is_none(), "{} is not empty: give --output an empty folder", folder.display());
    Ok(())
}

/// The parts of a release that other programs make.
struct Tools {
    /// Writes the chart's package into a folder.
    package_chart: fn(&Path) -> Result<()>,
    /// Writes the SBOM to a file.
    write_sbom: fn(&Path) -> Result<()>,
}

/// Puts every file of the release into an empty folder, and returns their names.
fn collect(folder: &Path, binary: &Path, tools: &Tools) -> Result<Vec<String>> {
    let version = image::version();
    let platform = format!("{version}-linux-{}", std::env::consts::ARCH);
    copy(binary, &folder.join(format!("coder-operator-{platform}")))?;
    image::write(binary, &folder.join(format!("coder-operator-{platform}.oci.tar")))?;
    fs::write(folder.join("crds.yaml"), crds()?).context("write crds.yaml")?;
    copy(&root().join("deploy/install.yaml"), &folder.join("install.yaml"))?;
    (tools.package_chart)(folder)?;
    let sbom = folder.join(format!("coder-operator-{version}.cdx.json"));
    (tools.write_sbom)(&sbom)?;
    check_sbom(&sbom)?;
    checksums(folder)
}

/// Refuses an SBOM that is not `CycloneDX` or names no component.
fn check_sbom(path: &Path) -> Result<()> {
    let text = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let sbom: Value = serde_json::from_slice(&text).with_context(|| format!("parse {}", path.display()))?;
    ensure!(sbom["bomFormat"] == "CycloneDX", "{} is not CycloneDX", path.display());
    let components = sbom["components"].as_array().is_some_and(|it| !it.is_empty());
    ensure!(components, "{} names no component", path.display());
    Ok(())
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
fn package_chart(folder: &Path) -> Result<()> {
    let mut command = Command::new(parts::find("helm", &say)?);
    command.args(["package", "deploy/chart", "--destination"]).arg(folder).current_dir(root());
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().context("run helm package")?;
    ensure!(status.success(), "helm package failed: {status}");
    Ok(())
}

/// The components of the operator as `CycloneDX`.
fn write_sbom(output: &Path) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is removed when the test is over.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("release-{name}-{}", std::process::id()));
            fs::remove_dir_all(&path).ok();
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    const SBOM: &str =
        r#"{"bomFormat": "CycloneDX", "specVersion": "1.3", "components": [{"name": "kube"}]}"#;

    fn chart_package() -> String {
        format!("coder-operator-{}.tgz", image::version())
    }

    const TOOLS: Tools = Tools {
        package_chart: |folder| Ok(fs::write(folder.join(chart_package()), "chart")?),
        write_sbom: |path| Ok(fs::write(path, SBOM)?),
    };

    #[test]
    fn release_has_every_file_and_its_checksum() {
        let scratch = Scratch::new("contents");
        let binary = scratch.0.join("binary");
        fs::write(&binary, "not an executable").unwrap();
        let folder = scratch.0.join("release");
        prepare(&folder, false).unwrap();
        let names = collect(&folder, &binary, &TOOLS).unwrap();
        let (version, arch) = (image::version(), std::env::consts::ARCH);
        let mut expected = vec![
            format!("coder-operator-{version}-linux-{arch}"),
            format!("coder-operator-{version}-linux-{arch}.oci.tar"),
            format!("coder-operator-{version}.cdx.json"),
            chart_package(),
            "crds.yaml".to_owned(),
            "install.yaml".to_owned(),
        ];
        expected.push(CHECKSUMS.to_owned());
        assert_eq!(names, expected);
        let checked = Command::new("sha256sum")
            .args(["--check", "--strict", CHECKSUMS])
            .current_dir(&folder)
            .output()
            .unwrap();
        let answer = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.status.success(), "{answer}");
        assert_eq!(answer.lines().count(), expected.len() - 1, "{answer}");
        let crds: Vec<Value> =
            serde_saphyr::from_multiple(&fs::read_to_string(folder.join("crds.yaml")).unwrap()).unwrap();
        assert_eq!(crds.len(), api::crds().len());
    }

    #[test]
    fn sbom_that_is_not_cyclonedx_is_refused() {
        let scratch = Scratch::new("sbom");
        let path = scratch.0.join("sbom.json");
        for (text, words) in [
            ("", "parse"),
            (r#"{"spdxVersion": "SPDX-2.3"}"#, "is not CycloneDX"),
            (r#"{"bomFormat": "CycloneDX", "components": []}"#, "names no component"),
        ] {
            fs::write(&path, text).unwrap();
            let error = format!("{:#}", check_sbom(&path).unwrap_err());
            assert!(error.contains(words), "{error}");
        }
        fs::write(&path, SBOM).unwrap();
        check_sbom(&path).unwrap();
    }

    #[test]
    fn folder_with_files_is_replaced_only_where_it_is_the_default() {
        let scratch = Scratch::new("prepare");
        let kept = scratch.0.join("kept");
        fs::write(&kept, "of somebody else").unwrap();
        fs::write(scratch.0.join(CHECKSUMS), "").unwrap();
        let error = prepare(&scratch.0, false).unwrap_err().to_string();
        assert!(error.contains("is not empty: give --output"), "{error}");
        assert!(kept.exists());
        prepare(&scratch.0, true).unwrap();
        assert!(!kept.exists());
        prepare(&scratch.0.join("new"), false).unwrap();
    }
}
