//! The parts of the bed: what they are, and how each is had on this machine.
//!
//! Go parts are pinned by the modules under `parts/` and built once; PostgreSQL and Terraform are the machine's own
//! where they fit.

mod build;
mod go;
mod postgres;
mod terraform;

use std::path::{Path, PathBuf};

use anyhow::Result;

pub use build::{GoPart, Kind};
pub use postgres::PostgresTools;

/// Tells a person what is going on, a line at a time.
pub type Say<'a> = &'a (dyn Fn(&str) + Sync);

/// Where the pinned modules are.
const MODULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/parts");

/// Every part that is built with Go, dearest first: what the later ones share is then compiled already.
const GO_PARTS: [GoPart; 6] = [
    GoPart {
        name: "kube-apiserver",
        module: "kubernetes",
        kind: Kind::Command("k8s.io/kubernetes/cmd/kube-apiserver"),
        stamp: stamp_kubernetes,
    },
    GoPart {
        name: "kube-controller-manager",
        module: "kubernetes",
        kind: Kind::Command("k8s.io/kubernetes/cmd/kube-controller-manager"),
        stamp: stamp_kubernetes,
    },
    GoPart {
        name: "kubectl",
        module: "kubernetes",
        kind: Kind::Command("k8s.io/kubernetes/cmd/kubectl"),
        stamp: stamp_kubernetes,
    },
    GoPart {
        name: "etcd",
        module: "kubernetes",
        kind: Kind::Command("go.etcd.io/etcd/server/v3"),
        stamp: stamp_kubernetes,
    },
    GoPart {
        name: "coder",
        module: "coder",
        kind: Kind::Command("github.com/coder/coder/v2/enterprise/cmd/coder"),
        stamp: stamp_coder,
    },
    GoPart { name: "coder-licensed", module: "coder", kind: Kind::Test, stamp: stamp_coder },
];

/// The parts, ready to be started.
#[derive(Debug, Clone)]
pub struct Parts {
    pub etcd: PathBuf,
    pub kube_apiserver: PathBuf,
    pub kube_controller_manager: PathBuf,
    pub kubectl: PathBuf,
    pub coder: PathBuf,
    pub coder_licensed: PathBuf,
    pub terraform: PathBuf,
    pub postgres: PostgresTools,
    /// The version of Coder that the parts are.
    pub coder_version: String,
}

impl Parts {
    /// Finds, installs or builds every part. Costs milliseconds when all of them are there.
    pub fn ensure(say: Say<'_>) -> Result<Self> {
        let toolchain = go::Toolchain::find()?;
        let postgres = PostgresTools::ensure(say)?;
        let [kube_apiserver, kube_controller_manager, kubectl, etcd, coder, coder_licensed] =
            GO_PARTS.try_map_parts(|part| part.ensure(&toolchain, say))?;
        let terraform = terraform::ensure(&toolchain, say)?;
        Ok(Self {
            etcd,
            kube_apiserver,
            kube_controller_manager,
            kubectl,
            coder,
            coder_licensed,
            terraform,
            postgres,
            coder_version: pinned("coder", "github.com/coder/coder/v2")?,
        })
    }
}

/// `[T; N]::map` for a function that may fail, which stable Rust does not have.
trait TryMapParts<const N: usize> {
    fn try_map_parts(&self, apply: impl Fn(&GoPart) -> Result<PathBuf>) -> Result<[PathBuf; N]>;
}

impl<const N: usize> TryMapParts<N> for [GoPart; N] {
    fn try_map_parts(&self, apply: impl Fn(&GoPart) -> Result<PathBuf>) -> Result<[PathBuf; N]> {
        let mut built = [const { PathBuf::new() }; N];
        for (slot, part) in built.iter_mut().zip(self) {
            *slot = apply(part)?;
        }
        Ok(built)
    }
}

/// Keeps everybody else from building parts for as long as the file is open.
pub(crate) fn lock(say: Say<'_>) -> Result<std::fs::File> {
    build::lock(&crate::cache::folder()?.join("parts"), "build.lock", say)
}

/// A built part, for `bed status`.
#[derive(Debug)]
pub struct PartState {
    pub name: &'static str,
    /// Where it is, if it is built.
    pub built: Option<PathBuf>,
}

/// What of the Go parts is in the cache.
pub fn states() -> Result<Vec<PartState>> {
    let toolchain = go::Toolchain::find()?;
    GO_PARTS
        .iter()
        .map(|part| {
            let path = part.path(&toolchain)?;
            Ok(PartState { name: part.name, built: path.exists().then_some(path) })
        })
        .collect()
}

/// The version, with its `v`, at which one of our modules pins another.
fn pinned(module: &str, dependency: &str) -> Result<String> {
    let path = Path::new(MODULES).join(module).join("go.mod");
    let text = std::fs::read_to_string(&path)
        .map_err(|error| anyhow::anyhow!("read the pins in {}: {error}", path.display()))?;
    pinned_in(&text, dependency)
        .ok_or_else(|| anyhow::anyhow!("{} does not require {dependency}", path.display()))
}

fn pinned_in(go_mod: &str, dependency: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next() == Some(dependency))
            .then(|| words.next())
            .flatten()
            .filter(|version| version.starts_with('v'))
            .map(str::to_owned)
    })
}

/// Without these kubectl refuses to read the server's version.
fn stamp_kubernetes() -> Result<String> {
    let version = pinned("kubernetes", "k8s.io/kubernetes")?;
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or("0"), numbers.next().unwrap_or("0"));
    let package = "k8s.io/component-base/version";
    Ok(format!(
        "-X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    ))
}

/// Without this Coder calls itself a development build and switches experiments on.
fn stamp_coder() -> Result<String> {
    let version = pinned("coder", "github.com/coder/coder/v2")?;
    Ok(format!("-X github.com/coder/coder/v2/buildinfo.tag={}", version.trim_start_matches('v')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_pins() {
        let go_mod = "module x\n\ntool a/b\n\nrequire a/b v1.2.3\n\nrequire (\n\tc/d v0.1.0 // indirect\n)\n";
        assert_eq!(pinned_in(go_mod, "a/b").as_deref(), Some("v1.2.3"));
        assert_eq!(pinned_in(go_mod, "c/d").as_deref(), Some("v0.1.0"));
        assert_eq!(pinned_in(go_mod, "e/f"), None);
    }

    #[test]
    fn stamps_carry_the_pinned_versions() {
        assert!(stamp_kubernetes().unwrap().contains("gitVersion=v1.36.3"));
        assert!(stamp_coder().unwrap().ends_with("buildinfo.tag=2.36.0"));
    }
}
