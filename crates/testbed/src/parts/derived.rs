//! The module of another version of Coder than the pinned one, derived in the cache from that version's own `go.mod`.
//!
//! The harness is the pinned module's. Requirements and replacements are those of the version, because Coder builds with its
//! forks only.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::{
    CODER, MODULES, Say,
    build::sources,
    go::{Trouble, diagnose},
    pinned,
};

/// The folder of the module that has this version of Coder, which may be written without its `v`.
pub(super) fn module(version: &str, say: Say<'_>) -> Result<PathBuf> {
    let pins = Path::new(MODULES).join("coder");
    let version = normalized(version)?;
    if pinned(&pins, CODER)? == version {
        return Ok(pins);
    }
    let mut key = Sha256::new();
    for source in sources(&pins)? {
        key.update(fs::read(&source).with_context(|| format!("read {}", source.display()))?);
    }
    let key = base16ct::lower::encode_string(&key.finalize()[..8]);
    let parts = crate::cache::folder()?.join("parts");
    let folder = parts.join(format!("module-coder-{version}-{key}"));
    if folder.exists() {
        return Ok(folder);
    }
    let _lock = super::lock(say)?;
    if folder.exists() {
        return Ok(folder);
    }
    say(&format!("resolving the modules of Coder {version}"));
    let unfinished = parts.join(format!("module-unfinished-{}", std::process::id()));
    fs::create_dir_all(&unfinished).with_context(|| format!("create {}", unfinished.display()))?;
    let derived = derive(&version, &pins, &unfinished, say);
    if let Err(error) = derived {
        fs::remove_dir_all(&unfinished).ok();
        return Err(error.context(format!("derive the module of Coder {version}")));
    }
    fs::rename(&unfinished, &folder).with_context(|| format!("put {} in place", folder.display()))?;
    Ok(folder)
}

/// Writes the module into an empty folder.
fn derive(version: &str, pins: &Path, folder: &Path, say: Say<'_>) -> Result<()> {
    let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    let write =
        |name: &str, text: &str| fs::write(folder.join(name), text).with_context(|| format!("write {name}"));
    let ours = read(&pins.join("go.mod"))?;
    write("go.mod", &header(&ours))?;
    write("go.sum", "")?;
    let downloaded = download(&format!("{CODER}@{version}"), folder)?;
    let path = |field: &str| {
        let path = downloaded.get(field).and_then(Value::as_str);
        path.map(PathBuf::from).with_context(|| format!("`go mod download` names no {field}"))
    };
    let theirs = read(&path("GoMod")?)?;
    let sums = [read(&path("Dir")?.join("go.sum"))?, read(&pins.join("go.sum"))?].concat();
    let sums: BTreeSet<&str> = sums.lines().collect();
    let sums: String = sums.into_iter().flat_map(|it| [it, "\n"]).collect();
    write("go.sum", &sums)?;
    let mut go_mod = derived(&theirs, &ours, version);
    for (from, to) in substitutes(&theirs, &ours) {
        if download(&from.replacen(' ', "@", 1), folder).is_err() {
            say(&format!("{from} cannot be had: Coder {version} is built with {to}"));
            go_mod = go_mod.replace(&from, &to);
        }
    }
    write("go.mod", &go_mod)?;
    write("go.sum", &sums)?;
    for source in sources(pins)?.iter().filter(|it| it.extension().is_some_and(|it| it == "go")) {
        let name = source.file_name().context("a source has a name")?;
        fs::copy(source, folder.join(name)).with_context(|| format!("copy {}", source.display()))?;
    }
    let command = format!("{CODER}/enterprise/cmd/coder");
    go(&["list", "-mod=mod", "-deps", "-test", ".", &command], folder)?;
    Ok(())
}

/// What `go mod download` says of a module, which is in Go's cache from then on.
pub(super) fn download(module: &str, folder: &Path) -> Result<Value> {
    let answer = go(&["mod", "download", "-json", module], folder)?;
    serde_json::from_str(&answer).with_context(|| format!("read what `go mod download {module}` answered"))
}

fn go(arguments: &[&str], folder: &Path) -> Result<String> {
    let output = Command::new("go")
        .args(arguments)
        .current_dir(folder)
        .envs([("GOTOOLCHAIN", "local"), ("GOWORK", "off"), ("GOFLAGS", "-mod=mod")])
        .output()
        .context("run go")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let complaint = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    match diagnose(&complaint) {
        Some(Trouble::ForAPerson(sentence)) => bail!("{sentence} ({})", complaint.trim()),
        _ => bail!("`go {}` failed: {}", arguments.join(" "), complaint.trim()),
    }
}

/// The version as a module spells it.
fn normalized(version: &str) -> Result<String> {
    let numbers = version.trim_start_matches('v');
    let is_number = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    let is_version = numbers.split('.').count() == 3 && numbers.split('.').all(is_number);
    ensure!(is_version, "{version} is no released version of Coder: name one as 2.35.3");
    Ok(format!("v{numbers}"))
}

/// The lines that name our module.
fn header(ours: &str) -> String {
    let is_header = |it: &&str| it.starts_with("module ") || it.starts_with("go ");
    ours.lines().filter(is_header).flat_map(|it| [it, "\n"]).collect()
}

/// The `go.mod` of the version as one of ours: another name, the version itself among its requirements, no tools.
fn derived(theirs: &str, ours: &str, version: &str) -> String {
    let name = ours.lines().find(|it| it.starts_with("module ")).unwrap_or("module derived");
    let mut lines = Vec::new();
    let mut in_tools = false;
    for line in theirs.lines() {
        if in_tools {
            in_tools = !line.starts_with(')');
        } else if line.starts_with("tool (") {
            in_tools = true;
        } else if line.starts_with("module ") {
            lines.push(name.to_owned());
        } else if !line.starts_with("tool ") && !line.starts_with("toolchain ") {
            lines.push(line.to_owned());
        }
    }
    lines.push(format!("require {CODER} {version}\n"));
    lines.join("\n")
}

/// Forks that the version and our pins take at different commits, as `module version` of the one and of the other. A fork
/// whose commit the registry does not serve is taken as we pin it.
fn substitutes(theirs: &str, ours: &str) -> Vec<(String, String)> {
    let ours = replacements(ours);
    let differing = replacements(theirs).into_iter().filter_map(|(module, to)| {
        let pinned = ours.iter().find(|(it, _)| *it == module).map(|(_, it)| it.clone())?;
        (pinned != to).then_some((to, pinned))
    });
    differing.collect()
}

/// What is replaced by what.
fn replacements(go_mod: &str) -> Vec<(String, String)> {
    let lines = go_mod.lines().filter(|it| !it.trim_start().starts_with("//"));
    let pairs = lines.filter_map(|it| it.trim().trim_start_matches("replace ").split_once(" => "));
    pairs.map(|(module, to)| (module.trim().to_owned(), to.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "// Ours.\nmodule ours.test/coder\n\ngo 1.26.5\n\ntool a/b\n\nrequire (\n\tgithub.com/coder/coder/v2 v2.36.1\n)\n\n\
                        replace (\n\tx/y => fork/y v2.0.0\n\tz/z => fork/z v1.0.0\n)\n";
    const THEIRS: &str = "module github.com/coder/coder/v2\n\ngo 1.26.4\n\n// x/y => nothing\nreplace x/y => fork/y v1.0.0\n\n\
                          replace z/z => fork/z v1.0.0\n\nrequire (\n\ta/b v1.2.3\n)\n\ntool (\n\tc/d\n)\n";

    #[test]
    fn derived_module_is_the_versions_own_under_our_name() {
        let derived = derived(THEIRS, OURS, "v2.35.3");
        assert!(derived.starts_with("module ours.test/coder\n\ngo 1.26.4\n"), "{derived}");
        assert!(derived.ends_with("require github.com/coder/coder/v2 v2.35.3\n"), "{derived}");
        assert!(derived.contains("\ta/b v1.2.3\n") && derived.contains("replace x/y => fork/y v1.0.0"));
        assert!(!derived.contains("tool") && !derived.contains("c/d"), "{derived}");
        assert_eq!(super::super::pinned_in(&derived, CODER).as_deref(), Some("v2.35.3"));
    }

    #[test]
    fn forks_at_another_commit_have_a_substitute() {
        let pair = ("fork/y v1.0.0".to_owned(), "fork/y v2.0.0".to_owned());
        assert_eq!(substitutes(THEIRS, OURS), [pair]);
    }

    #[test]
    fn versions_are_spelled_with_or_without_their_letter() {
        assert_eq!(normalized("2.35.3").unwrap(), "v2.35.3");
        assert_eq!(normalized("v2.35.3").unwrap(), "v2.35.3");
        for wrong in ["2.35", "latest", "2.35.x", "../2.35.3"] {
            assert!(normalized(wrong).unwrap_err().to_string().contains("as 2.35.3"), "{wrong}");
        }
    }
}
