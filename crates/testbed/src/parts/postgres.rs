//! PostgreSQL's own programs: the machine's, or the package manager's.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::{Say, build::lock};

const OLDEST: u32 = 13;
const MISSING: &str = "the bed needs PostgreSQL 13 or newer: install it (on Debian: `apt-get install postgresql`), or \
    put the folder with `postgres` and `initdb` on PATH";

/// The folder with `postgres`, `initdb` and `createdb`.
#[derive(Debug, Clone)]
pub struct PostgresTools {
    folder: PathBuf,
}

impl PostgresTools {
    pub(super) fn ensure(say: Say<'_>) -> Result<Self> {
        if let Some(found) = Self::find() {
            return Ok(found);
        }
        if !rustix::process::geteuid().is_root() || !on_path("apt-get") {
            bail!(MISSING);
        }
        let _lock = lock(&crate::cache::folder()?.join("parts"), "install.lock", say)?;
        if Self::find().is_none() {
            install(say)?;
        }
        Self::find().context(MISSING)
    }

    /// One of PostgreSQL's programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn find() -> Option<Self> {
        candidates().into_iter().find(|folder| fits(folder)).map(|folder| Self { folder })
    }
}

/// Folders that may hold a server, best first: PATH, then Debian's, newest first.
fn candidates() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut debian: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    debian.sort();
    std::env::split_paths(&path).chain(debian.into_iter().rev()).collect()
}

fn fits(folder: &Path) -> bool {
    ["initdb", "createdb"].iter().all(|program| folder.join(program).exists())
        && Command::new(folder.join("postgres"))
            .arg("--version")
            .output()
            .ok()
            .and_then(|output| major(&String::from_utf8_lossy(&output.stdout)))
            .is_some_and(|version| version >= OLDEST)
}

fn major(banner: &str) -> Option<u32> {
    banner.split_whitespace().find_map(|word| word.split('.').next()?.parse().ok())
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

fn install(say: Say<'_>) -> Result<()> {
    say("installing PostgreSQL with apt-get");
    for arguments in
        [&["update", "-qq"] as &[&str], &["install", "-qq", "-y", "--no-install-recommends", "postgresql"]]
    {
        let output = Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            // Run level 1 keeps the package from starting a server of its own.
            .env("RUNLEVEL", "1")
            .output()
            .context("run apt-get")?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            bail!("{MISSING} (apt-get said: {})", complaint.lines().last().unwrap_or("nothing"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn the_major_version_is_read_from_the_banner() {
        assert_eq!(major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 18beta1"), None);
        assert_eq!(major(""), None);
    }
}
