//! A pod's way to the API server: a kubeconfig around the mounted token of its service account.
//!
//! In a container, clients read the token at one absolute path. A process of this machine shares that path with every other
//! one, so the node says in `KUBECONFIG` where the pod's own token is. Clients use a kubeconfig before they look for the path.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::json;

/// Where every container that has a service account's token finds it.
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Writes the kubeconfig of a container into its folder. `None` where no token of a service account is mounted.
pub(super) fn kubeconfig(
    mounts: &[(String, PathBuf)],
    api_server: SocketAddr,
    namespace: &str,
    folder: &Path,
) -> Result<Option<PathBuf>> {
    let mounted = mounts.iter().find(|(path, place)| path == MOUNT && place.join("token").exists());
    let Some((_, place)) = mounted else { return Ok(None) };
    let server = format!("https://{api_server}");
    let content = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pod",
        "clusters": [{"name": "bed", "cluster":
            {"server": server, "certificate-authority": place.join("ca.crt")}}],
        "users": [{"name": "pod", "user": {"tokenFile": place.join("token")}}],
        "contexts": [{"name": "pod", "context": {"cluster": "bed", "user": "pod", "namespace": namespace}}],
    });
    let path = folder.join("kubeconfig");
    fs::write(&path, content.to_string()).with_context(|| format!("write {}", path.display()))?;
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_container_with_a_mounted_token_has_a_kubeconfig() {
        let folder = std::env::temp_dir().join(format!("account-{}", uuid::Uuid::new_v4()));
        fs::create_dir_all(&folder).unwrap();
        let server = SocketAddr::from(([127, 9, 0, 1], 6443));
        let write =
            |path: &str| kubeconfig(&[(path.to_owned(), folder.clone())], server, "platform", &folder);
        assert_eq!(write(MOUNT).unwrap(), None, "nothing is mounted there");
        fs::write(folder.join("token"), "").unwrap();
        assert_eq!(write("/etc/tokens").unwrap(), None);
        let path = write(MOUNT).unwrap().unwrap();
        let content: serde_json::Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(content["clusters"][0]["cluster"]["server"], "https://127.9.0.1:6443");
        assert_eq!(content["contexts"][0]["context"]["namespace"], "platform");
        assert_eq!(content["users"][0]["user"]["tokenFile"], json!(folder.join("token")));
    }
}
