//! Where built parts are kept, shared by every process and checkout of one user.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

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
