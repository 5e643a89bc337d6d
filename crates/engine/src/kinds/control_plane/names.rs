//! Names and labels as coder-k8s has them. Other ones would leave its objects behind, or restart every pod.

use std::collections::BTreeMap;

use api::{CoderControlPlane, label};
use kube::{ResourceExt as _, core::Selector};

use crate::pipeline::short::{cut, fnv};

/// The longest label, and the longest name of a Service or a volume.
const LABEL: usize = 63;
/// The longest name of most objects.
const NAME: usize = 253;
/// The key of the Secret with the operator's own token, as coder-k8s has it.
pub(super) const TOKEN_KEY: &str = "token";
/// The name of the container that runs Coder, by which everything else finds it.
pub(super) const CONTAINER: &str = "coder";
/// The port of that container for plain HTTP.
pub(super) const HTTP_PORT: i32 = 8080;
/// The port of that container for HTTPS.
pub(super) const HTTPS_PORT: i32 = 8443;
const TOKEN_SUFFIX: &str = "-operator-token";
const ADMIN_JOB_SUFFIX: &str = "-create-admin-user";

/// The labels of every object of a control plane. Those of the pods can never change: a Deployment's selector is fixed.
pub(super) fn labels(name: &str) -> BTreeMap<String, String> {
    let labels =
        [(label::NAME, "coder-control-plane"), (label::INSTANCE, name), (label::MANAGED_BY, "coder-k8s")];
    labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The labels of what is for workspaces, wherever it is.
pub(super) fn workspace_labels(name: &str, namespace: &str) -> BTreeMap<String, String> {
    let mut labels = labels(name);
    labels.insert(label::CONTROL_PLANE.to_owned(), name.to_owned());
    labels.insert(label::CONTROL_PLANE_NAMESPACE.to_owned(), namespace.to_owned());
    labels
}

/// Finds the objects of a control plane in its own namespace.
pub fn selector(plane: &CoderControlPlane) -> Selector {
    labels(&plane.name_any()).into_iter().collect()
}

/// Finds what is for the workspaces of a control plane, in whichever namespace.
pub fn workspace_selector(plane: &CoderControlPlane) -> Selector {
    let mut labels = workspace_labels(&plane.name_any(), &plane.namespace().unwrap_or_default());
    labels.retain(|key, _| [label::CONTROL_PLANE, label::CONTROL_PLANE_NAMESPACE].contains(&key.as_str()));
    labels.into_iter().collect()
}

/// The Secret with the operator's token.
pub fn operator_token_secret(plane: &CoderControlPlane) -> String {
    let declared = plane.spec.operator_access.as_ref().and_then(|it| it.token_secret_name()).map(str::trim);
    if let Some(declared) = declared.filter(|it| !it.is_empty()) {
        return declared.to_owned();
    }
    with_suffix(&plane.name_any(), TOKEN_SUFFIX)
}

/// The Job that makes our account, and the Secret that it reads.
pub fn admin_job(plane: &CoderControlPlane) -> String {
    with_suffix(&plane.name_any(), ADMIN_JOB_SUFFIX)
}

/// The labels of that Job and of its pod. A pod with those of the Deployment would be found by the Service.
pub(super) fn admin_job_labels(name: &str) -> BTreeMap<String, String> {
    let mut labels = labels(name);
    labels.insert(label::NAME.to_owned(), "coder-create-admin-user".to_owned());
    labels.insert(label::MANAGED_BY.to_owned(), "coder-operator".to_owned());
    labels
}

fn with_suffix(name: &str, suffix: &str) -> String {
    if name.len() + suffix.len() <= LABEL {
        return format!("{name}{suffix}");
    }
    let hash = fnv(&[name.as_bytes()]);
    format!("{}-{hash}{suffix}", cut(name, LABEL - suffix.len() - hash.len() - 1))
}

/// The Role for workspaces, in whichever namespace.
pub(super) fn workspace_role(account: &str, name: &str, namespace: &str) -> String {
    scoped(account, name, namespace, "-workspace-perms")
}

/// The `RoleBinding` for workspaces, in whichever namespace.
pub(super) fn workspace_binding(account: &str, name: &str, namespace: &str) -> String {
    scoped(account, name, namespace, "")
}

fn scoped(account: &str, name: &str, namespace: &str, suffix: &str) -> String {
    let hash = fnv(&[namespace.as_bytes(), &[0], name.as_bytes()]);
    let fits = account.len() + 1 + hash.len() + suffix.len() <= NAME;
    let account = if fits {
        account
    } else {
        match cut(account, NAME - hash.len() - suffix.len() - 1).trim_matches(['-', '.']) {
            "" => "workspace",
            cut => cut,
        }
    };
    format!("{account}-{hash}{suffix}")
}

/// The volume for a Secret.
pub(super) fn volume(prefix: &str, secret: &str) -> String {
    let plain = secret.trim().to_lowercase();
    let clean = label_of(&plain);
    if clean == plain && prefix.len() + 1 + clean.len() <= LABEL {
        return format!("{prefix}-{clean}");
    }
    let hash = fnv(&[prefix.as_bytes(), &[0], secret.as_bytes()]);
    let short = match cut(&clean, LABEL - prefix.len() - hash.len() - 2).trim_matches('-') {
        "" => "x",
        short => short,
    };
    format!("{prefix}-{short}-{hash}")
}

/// Small letters and digits, with single hyphens where something else was.
fn label_of(text: &str) -> String {
    let words = text.split(|it: char| !it.is_ascii_lowercase() && !it.is_ascii_digit());
    let words: Vec<&str> = words.filter(|it| !it.is_empty()).collect();
    if words.is_empty() { "x".to_owned() } else { words.join("-") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn token_secret(name: &str, declared: &str) -> String {
        let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": name},
            "spec": {"operatorAccess": {"generatedTokenSecretName": declared}}});
        operator_token_secret(&serde_json::from_value(plane).unwrap())
    }

    #[test]
    fn objects_are_found_by_the_labels_that_they_have() {
        let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "spec": {},
            "metadata": {"name": "main", "namespace": "platform"}});
        let plane = serde_json::from_value(plane).unwrap();
        let all = "app.kubernetes.io/instance=main,app.kubernetes.io/managed-by=coder-k8s,\
                   app.kubernetes.io/name=coder-control-plane";
        assert_eq!(selector(&plane).to_string(), all);
        let workspaces = "coder.com/control-plane=main,coder.com/control-plane-namespace=platform";
        assert_eq!(workspace_selector(&plane).to_string(), workspaces);
    }

    #[test]
    fn the_token_is_where_coder_k8s_put_it() {
        assert_eq!(token_secret("coder", ""), "coder-operator-token");
        assert_eq!(token_secret("coder", " mine "), "mine");
        let long = "a".repeat(60);
        let name = token_secret(&long, "");
        assert_eq!(name.len(), 63);
        assert_eq!(name, format!("{}-{}-operator-token", "a".repeat(39), fnv(&[long.as_bytes()])));
    }

    #[test]
    fn volumes_are_named_as_coder_k8s_names_them() {
        assert_eq!(volume("tls", "coder-tls"), "tls-coder-tls");
        let dotted = volume("ca-cert", "my.ca.example");
        assert!(dotted.starts_with("ca-cert-my-ca-example-") && dotted.len() == 30, "{dotted}");
        assert_ne!(volume("tls", "a.b"), volume("tls", "a-b"));
        let long = volume("tls", &"a".repeat(100));
        assert_eq!(long.len(), 63, "{long}");
    }

    #[test]
    fn a_roles_name_keeps_its_suffix_however_long_the_account_is() {
        let hash = fnv(&[b"platform", &[0], b"main"]);
        assert_eq!(workspace_role("main", "main", "platform"), format!("main-{hash}-workspace-perms"));
        assert_eq!(workspace_binding("main", "main", "platform"), format!("main-{hash}"));
        let long = workspace_role(&"a".repeat(253), "main", "platform");
        assert!(long.len() == 253 && long.ends_with(&format!("-{hash}-workspace-perms")), "{long}");
        assert!(workspace_role(&"-".repeat(253), "main", "platform").starts_with("workspace-"));
    }
}
