//! Which crates may know each other, where versions stand, and what must not be in the tree of dependencies.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::tree::{Complaint, Tree};
use crate::bed::root;

/// The crates of this workspace, and which of the others each may depend on. Tests may go further down, not up.
const MAY_KNOW: [(&str, &[&str]); 7] = [
    ("api", &[]),
    ("client", &[]),
    ("engine", &["api", "client"]),
    ("operator", &["api", "client", "engine", "sim"]),
    ("sim", &["api", "client", "engine"]),
    ("testbed", &[]),
    ("xtask", &["api", "client", "engine", "operator", "sim", "testbed"]),
];

/// Crates that only tests may depend on, from anywhere.
const FOR_TESTS: [&str; 2] = ["sim", "testbed"];

/// A crate that must not come back, and why.
const UNWANTED: (&str, &str) = ("ring", "there is one crypto provider, aws-lc-rs");

pub(super) fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let metadata = cargo(&["metadata", "--format-version", "1", "--no-deps"])?;
    let metadata: Value = serde_json::from_str(&metadata).context("read cargo's metadata")?;
    let mut complaints = directions(&metadata);
    complaints.extend(named_in_architecture(tree, &metadata));
    complaints.extend(tree.with_ending("Cargo.toml").flat_map(|(path, text)| versions(path, text)));
    let (name, reason) = UNWANTED;
    // Cargo prints nothing when no feature or target brings the crate in.
    if !cargo(&["tree", "--workspace", "--target", "all", "--invert", name])?.trim().is_empty() {
        complaints.push(Complaint::new("Cargo.lock", 1, format!("{name} is in the tree, but {reason}")));
    }
    Ok(complaints)
}

fn cargo(args: &[&str]) -> Result<String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program).args(args).current_dir(root()).output().context("run cargo")?;
    let said = String::from_utf8_lossy(&output.stderr);
    // A crate that is not even in the lock file is an error to `cargo tree`, and good news to us.
    if !output.status.success() && !said.contains("did not match any packages") {
        bail!("cargo {} failed: {}", args.join(" "), said.trim());
    }
    String::from_utf8(output.stdout).context("read cargo's answer")
}

fn packages(metadata: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages.filter_map(|it| Some((it["name"].as_str()?, it)))
}

fn directions(metadata: &Value) -> Vec<Complaint> {
    let members: Vec<&str> = packages(metadata).map(|(name, _)| name).collect();
    let mut complaints = Vec::new();
    for (name, package) in packages(metadata) {
        let manifest = format!("crates/{name}/Cargo.toml").replace("crates/xtask", "xtask");
        let Some((_, allowed)) = MAY_KNOW.iter().find(|(it, _)| *it == name) else {
            complaints.push(Complaint::new(&manifest, 1, "is not in tidy's table of who may know whom"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let known = dependency["name"].as_str().unwrap_or_default();
            let for_tests = dependency["kind"] == "dev" && FOR_TESTS.contains(&known);
            if members.contains(&known) && !allowed.contains(&known) && !for_tests {
                complaints.push(Complaint::new(&manifest, 1, format!("`{name}` must not know `{known}`")));
            }
        }
    }
    complaints
}

fn named_in_architecture(tree: &Tree, metadata: &Value) -> Vec<Complaint> {
    let page = "ARCHITECTURE.md";
    let text = tree.text(page).map_or("", String::as_str);
    let missing = packages(metadata).filter(|(name, _)| !text.contains(&format!("`{name}`")));
    missing.map(|(name, _)| Complaint::new(page, 1, format!("says nothing of the crate `{name}`"))).collect()
}

/// Versions stand in the workspace's manifest, once.
fn versions(path: &str, text: &str) -> Vec<Complaint> {
    if path == "Cargo.toml" {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    let mut in_dependencies = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(table) = line.strip_prefix('[') {
            in_dependencies = table.trim_end_matches(']').ends_with("dependencies");
        } else if in_dependencies && line.contains('=') && !line.contains("workspace = true") {
            complaints.push(Complaint::new(
                path,
                index + 1,
                "a version that does not come from the workspace",
            ));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, dependency: &str, kind: Option<&str>) -> Value {
        json!({"name": name, "dependencies": [{"name": dependency, "kind": kind}]})
    }

    #[test]
    fn dependencies_point_one_way() {
        let engine = package("engine", "operator", None);
        let metadata = json!({"packages": [engine, package("operator", "engine", None)]});
        let complaints = directions(&metadata);
        assert_eq!(
            complaints,
            [Complaint::new("crates/engine/Cargo.toml", 1, "`engine` must not know `operator`")]
        );
    }

    #[test]
    fn tests_may_use_the_bed_and_the_product_may_not() {
        let bed = json!({"name": "testbed", "dependencies": []});
        let in_tests = json!({"packages": [bed, package("engine", "testbed", Some("dev"))]});
        assert_eq!(directions(&in_tests), []);
        let in_product = json!({"packages": [bed, package("engine", "testbed", None)]});
        assert_eq!(directions(&in_product).len(), 1);
    }

    #[test]
    fn a_version_outside_the_workspace_manifest_is_found() {
        let manifest = "[package]\nversion = \"1\"\n\n[dependencies]\nserde = \"1\"\nkube.workspace = true\n";
        assert_eq!(versions("crates/a/Cargo.toml", manifest).len(), 1);
        assert_eq!(versions("Cargo.toml", manifest), []);
    }
}
