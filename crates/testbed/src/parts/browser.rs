//! Chromium and its driver: the machine's, or Debian's packages unpacked into the cache, for which nobody has to be root.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{Say, build::lock};

const PACKAGES: [&str; 2] = ["chromium", "chromium-driver"];
const DRIVER: &str = "chromedriver";
const MISSING: &str = "tests of a page need Chromium and its driver: install them (on Debian: `apt-get install chromium \
    chromium-driver`), or put `chromium` and `chromedriver` on PATH";

/// A browser that a program steers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Browser {
    pub chromium: PathBuf,
    driver: PathBuf,
    /// Where the libraries are that the machine lacks.
    libraries: Vec<PathBuf>,
}

impl Browser {
    /// Finds the browser, and unpacks it first where the machine has none.
    pub fn ensure(say: Say<'_>) -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path =
            |name: &str| std::env::split_paths(&path).map(|it| it.join(name)).find(|it| it.exists());
        if let (Some(chromium), Some(driver)) = (on_path("chromium"), on_path(DRIVER)) {
            return Ok(Self { chromium, driver, libraries: Vec::new() });
        }
        let tools = crate::cache::folder()?.join("tools");
        let folder = tools.join("chromium");
        if !folder.exists() {
            ensure!(on_path("apt-get").is_some() && on_path("dpkg").is_some(), MISSING);
            let _lock = lock(&tools, "chromium.lock", say)?;
            if !folder.exists() {
                unpack(&folder, say).context(MISSING)?;
            }
        }
        Self::in_folder(&folder)
    }

    /// The browser of unpacked packages.
    fn in_folder(folder: &Path) -> Result<Self> {
        let root = folder.join("root");
        let chromium = root.join("usr/lib/chromium/chromium");
        let driver = root.join("usr/bin").join(DRIVER);
        for program in [&chromium, &driver] {
            ensure!(program.exists(), "{} is missing: remove {}", program.display(), folder.display());
        }
        let mut libraries = Vec::new();
        find_libraries(&root.join("usr/lib"), &mut libraries)?;
        Ok(Self { chromium, driver, libraries })
    }

    /// The driver, which starts the browser when it is asked to.
    pub fn driver(&self) -> Command {
        let mut command = Command::new(&self.driver);
        if !self.libraries.is_empty() {
            let paths = std::env::join_paths(&self.libraries).unwrap_or_default();
            command.env("LD_LIBRARY_PATH", paths);
        }
        command
    }
}

/// Adds the folders that hold shared libraries.
fn find_libraries(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut has_library = false;
    for entry in entries {
        let entry = entry.with_context(|| format!("read {}", folder.display()))?;
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            find_libraries(&entry.path(), found)?;
        } else {
            has_library |= entry.file_name().to_string_lossy().contains(".so");
        }
    }
    if has_library {
        found.push(folder.to_owned());
    }
    Ok(())
}

/// Downloads the packages with what the machine lacks of their dependencies, and unpacks them.
fn unpack(folder: &Path, say: Say<'_>) -> Result<()> {
    say("downloading Chromium and its driver from Debian's packages, once");
    let packages = match missing_packages() {
        Err(_) if rustix::process::geteuid().is_root() => {
            output("apt-get", &["update", "-qq"], Path::new("/"))?;
            missing_packages()?
        }
        packages => packages?,
    };
    let unfinished = folder.with_extension("unfinished");
    fs::remove_dir_all(&unfinished).ok();
    let downloads = unfinished.join("packages");
    fs::create_dir_all(&downloads).with_context(|| format!("create {}", downloads.display()))?;
    let names: Vec<&str> =
        ["download", "-qq"].into_iter().chain(packages.iter().map(String::as_str)).collect();
    output("apt-get", &names, &downloads)?;
    let root = unfinished.join("root");
    for entry in fs::read_dir(&downloads).context("read the downloaded packages")? {
        let package = entry.context("read a downloaded package")?.path();
        output("dpkg", &["-x", &package.to_string_lossy(), &root.to_string_lossy()], &downloads)?;
    }
    fs::remove_dir_all(&downloads).context("remove the downloaded packages")?;
    fs::rename(&unfinished, folder).with_context(|| format!("move the browser to {}", folder.display()))
}

/// The packages that an installation would bring, without installing anything.
fn missing_packages() -> Result<Vec<String>> {
    let mut args = vec!["install", "--print-uris", "-qq", "-y", "--no-install-recommends", "--reinstall"];
    args.extend(PACKAGES);
    let packages = package_names(&output("apt-get", &args, Path::new("/"))?);
    ensure!(packages.iter().any(|it| it == PACKAGES[0]), "the package index has no {}", PACKAGES[0]);
    Ok(packages)
}

/// The names in lines such as `'http://…/libogg0_1.deb' libogg0_1.deb 23 SHA256:…`.
fn package_names(listed: &str) -> Vec<String> {
    let files = listed.lines().filter_map(|it| it.split_whitespace().nth(1));
    files.filter_map(|it| it.split_once('_')).map(|(name, _)| name.to_owned()).collect()
}

fn output(program: &str, args: &[&str], folder: &Path) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).env("DEBIAN_FRONTEND", "noninteractive");
    let output = command.output().with_context(|| format!("run {program}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {} failed: {}", args.join(" "), complaint.lines().last().unwrap_or("no message"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::package_names;

    #[test]
    fn names_of_packages_are_read_from_the_files_of_an_installation() {
        let listed = "'http://a.test/libogg0_1.3%2bds.deb' libogg0_1.3+ds.deb 23412 SHA256:0\n\
                      'http://a.test/chromium_156.deb' chromium_156.deb 81157036 \nnoise\n";
        assert_eq!(package_names(listed), ["libogg0", "chromium"]);
    }
}
