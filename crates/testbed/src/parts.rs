//! The parts of the bed: what they are, and how each is had on this machine.
//!
//! Go parts are pinned by the modules under `parts/` and built once; PostgreSQL and Terraform are the machine's own
//! where they fit.

mod browser;
mod build;
mod crds;
mod derived;
mod go;
mod postgres;
mod provider;
mod terraform;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

pub use browser::Browser;
pub use build::{GoPart, Kind};
pub use crds::push_secrets;
pub use postgres::PostgresTools;

/// Tells a person what is going on, a line at a time.
pub type Say<'a> = &'a (dyn Fn(&str) + Sync);

/// Where the pinned modules are.
const MODULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/parts");
/// Coder's own module.
const CODER: &str = "github.com/coder/coder/v2";

/// Every part that is built with Go, dearest first: what the later ones share is then compiled already.
const GO_PARTS: [GoPart; 7] = [
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
    GoPart {
        name: "helm",
        module: "helm",
        kind: Kind::Command("helm.sh/helm/v3/cmd/helm"),
        stamp: stamp_helm,
    },
];

/// The parts, ready to be started.
#[derive(Debug, Clone)]
pub struct Parts {
    pub etcd: PathBuf,
    pub kube_apiserver: PathBuf,
    pub kube_controller_manager: PathBuf,
    pub kubectl: PathBuf,
    pub helm: PathBuf,
    pub coder: PathBuf,
    pub coder_licensed: PathBuf,
    pub terraform: PathBuf,
    /// The settings of a Terraform that installs Coder's provider, and asks no registry.
    pub terraform_settings: PathBuf,
    pub postgres: PostgresTools,
    /// The version of Coder that the parts are.
    pub coder_version: String,
}

impl Parts {
    /// Finds, installs or builds every part. Costs milliseconds when all of them are there.
    pub fn ensure(say: Say<'_>) -> Result<Self> {
        Self::ensure_with(None, say)
    }

    /// The same with that version of Coder instead of the pinned one.
    pub fn ensure_with(coder: Option<&str>, say: Say<'_>) -> Result<Self> {
        let modules = Modules::of(coder, say)?;
        let toolchain = go::Toolchain::find()?;
        let postgres = PostgresTools::ensure(say)?;
        let [kube_apiserver, kube_controller_manager, kubectl, etcd, coder, coder_licensed, helm] =
            GO_PARTS.try_map_parts(|part| part.ensure(&modules, &toolchain, say))?;
        let terraform = terraform::ensure(&modules, &toolchain, say)?;
        let terraform_settings = provider::ensure(&modules, &toolchain, say)?;
        Ok(Self {
            etcd,
            kube_apiserver,
            kube_controller_manager,
            kubectl,
            helm,
            coder,
            coder_licensed,
            terraform,
            terraform_settings,
            postgres,
            coder_version: pinned(&modules.folder("coder"), CODER)?,
        })
    }
}

/// The folders of the modules that parts are built from.
struct Modules {
    /// The one of Coder: the pinned one, or one that is derived for another version.
    coder: PathBuf,
}

impl Modules {
    fn of(coder: Option<&str>, say: Say<'_>) -> Result<Self> {
        let coder = match coder {
            Some(version) => derived::module(version, say)?,
            None => Path::new(MODULES).join("coder"),
        };
        Ok(Self { coder })
    }

    fn folder(&self, module: &str) -> PathBuf {
        if module == "coder" { self.coder.clone() } else { Path::new(MODULES).join(module) }
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

/// Removes built parts and kept logs, and nothing else that may be in the folder. Waits for a build that is going on.
pub fn clean(say: Say<'_>) -> Result<Vec<PathBuf>> {
    let folder = crate::cache::folder()?;
    let _lock = lock(say)?;
    let mut removed = Vec::new();
    for part in ["parts", "logs"] {
        for entry in std::fs::read_dir(folder.join(part)).into_iter().flatten() {
            let path = entry?.path();
            // The locks stay: somebody may be waiting for them.
            if path.is_dir() {
                std::fs::remove_dir_all(&path).with_context(|| format!("remove {}", path.display()))?;
                removed.push(path);
            }
        }
    }
    Ok(removed)
}

/// One Go part by its name, built if it is not in the cache: for a command that needs no bed.
pub fn find(name: &str, say: Say<'_>) -> Result<PathBuf> {
    let part = GO_PARTS.iter().find(|it| it.name == name);
    let part = part.ok_or_else(|| anyhow::anyhow!("there is no part {name}"))?;
    part.ensure(&Modules::of(None, say)?, &go::Toolchain::find()?, say)
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
    let (toolchain, modules) = (go::Toolchain::find()?, Modules::of(None, &|_| {})?);
    GO_PARTS
        .iter()
        .map(|part| {
            let path = part.path(&modules, &toolchain)?;
            Ok(PartState { name: part.name, built: path.exists().then_some(path) })
        })
        .collect()
}

/// The version, with its `v`, at which the module in a folder pins another.
fn pinned(folder: &Path, dependency: &str) -> Result<String> {
    let path = folder.join("go.mod");
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
fn stamp_kubernetes(module: &Path) -> Result<String> {
    let version = pinned(module, "k8s.io/kubernetes")?;
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or("0"), numbers.next().unwrap_or("0"));
    let package = "k8s.io/component-base/version";
    Ok(format!(
        "-X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    ))
}

/// Without this Coder calls itself a development build and switches experiments on.
fn stamp_coder(module: &Path) -> Result<String> {
    let version = pinned(module, CODER)?;
    Ok(format!("-X github.com/coder/coder/v2/buildinfo.tag={}", version.trim_start_matches('v')))
}

/// Without these Helm calls itself by its minor version alone, and renders for a Kubernetes of years ago.
fn stamp_helm(module: &Path) -> Result<String> {
    let version = pinned(module, "helm.sh/helm/v3")?;
    let client = pinned(module, "k8s.io/client-go")?;
    let minor = client.split('.').nth(1).unwrap_or("0");
    let known = ["lint/rules", "chartutil"].map(|package| {
        let package = format!("helm.sh/helm/v3/pkg/{package}");
        format!("-X {package}.k8sVersionMajor=1 -X {package}.k8sVersionMinor={minor}")
    });
    Ok(format!("{} -X helm.sh/helm/v3/internal/version.version={version}", known.join(" ")))
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
        let modules = Modules::of(None, &|_| {}).unwrap();
        let stamp = stamp_kubernetes(&modules.folder("kubernetes")).unwrap();
        assert!(stamp.contains("gitVersion=v1.36.3"), "{stamp}");
        let stamp = stamp_coder(&modules.folder("coder")).unwrap();
        assert!(stamp.ends_with("buildinfo.tag=2.36.1"), "{stamp}");
        let stamp = stamp_helm(&modules.folder("helm")).unwrap();
        assert!(stamp.ends_with("version.version=v3.22.0"), "{stamp}");
    }
}
