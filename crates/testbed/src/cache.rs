//! Where built parts are kept, shared by every process and checkout of one user.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};

use crate::parts::{self, Say};

/// The variable that puts the cache elsewhere.
pub const VARIABLE: &str = "CODER_OPERATOR_BED_CACHE";

/// The cache's folder; it need not exist yet.
pub fn folder() -> Result<PathBuf> {
    if let Some(chosen) = std::env::var_os(VARIABLE) {
        return Ok(chosen.into());
    }
    if let Some(user_cache) = std::env::var_os("XDG_CACHE_HOME").filter(|it| !it.is_empty()) {
        return Ok(PathBuf::from(user_cache).join("coder-operator-bed"));
    }
    let home = std::env::home_dir()
        .with_context(|| format!("find a folder for the bed's parts: set {VARIABLE}, or HOME"))?;
    Ok(home.join(".cache/coder-operator-bed"))
}

/// Removes built parts and kept logs, and nothing else that may be in the folder. Waits for a build that is going on.
pub fn clean(say: Say<'_>) -> Result<Vec<PathBuf>> {
    let folder = folder()?;
    let _lock = parts::lock(say)?;
    let mut removed = Vec::new();
    for part in ["parts", "logs"] {
        for entry in fs::read_dir(folder.join(part)).into_iter().flatten() {
            let path = entry?.path();
            // The locks stay: somebody may be waiting for them.
            if path.is_dir() {
                fs::remove_dir_all(&path).with_context(|| format!("remove {}", path.display()))?;
                removed.push(path);
            }
        }
    }
    Ok(removed)
}
