//! CustomResourceDefinitions of other projects, from their Go modules, so that the API server checks manifests that we ship for them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{Say, derived::download};

const EXTERNAL_SECRETS: &str = "github.com/external-secrets/external-secrets";
const VERSION: &str = "v0.20.4";
/// The definition within the module.
const PUSH_SECRETS: &str = "config/crds/bases/external-secrets.io_pushsecrets.yaml";

/// The file with the definition of `PushSecret`, fetched once into the cache.
pub fn push_secrets(say: Say<'_>) -> Result<PathBuf> {
    let parts = crate::cache::folder()?.join("parts");
    let file = parts.join(format!("pushsecrets-{VERSION}.yaml"));
    if file.exists() {
        return Ok(file);
    }
    say(&format!("fetching the CustomResourceDefinitions of External Secrets {VERSION}"));
    fs::create_dir_all(&parts).with_context(|| format!("create {}", parts.display()))?;
    let module = format!("{EXTERNAL_SECRETS}@{VERSION}");
    let downloaded = download(&module, &parts)?;
    let folder = downloaded.get("Dir").and_then(Value::as_str);
    let source = Path::new(folder.context("`go mod download` names no folder")?).join(PUSH_SECRETS);
    let text = fs::read(&source).with_context(|| format!("read {}", source.display()))?;
    // Tests of two processes may fetch it at once: each puts a whole file in place.
    let unfinished = parts.join(format!("pushsecrets-unfinished-{}", std::process::id()));
    fs::write(&unfinished, text).with_context(|| format!("write {}", unfinished.display()))?;
    fs::rename(&unfinished, &file).with_context(|| format!("put {} in place", file.display()))?;
    Ok(file)
}
