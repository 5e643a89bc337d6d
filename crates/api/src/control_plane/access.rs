//! How the operator gets its own account and token.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::reference::SecretRef;

/// How the operator gets its own account and token in a managed control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorAccess {
    /// Removes the operator's account and token while true; dependent objects wait. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// The Secret into which the token is written. Defaults to `<metadata.name>-operator-token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub generated_token_secret_name: Option<String>,
    /// The Secret with `email`, `username` and `password` of the first user. The user is created only if the deployment has
    /// no user. Without it the operator's own account becomes the first user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_user_secret_ref: Option<SecretRef>,
    /// The Secret with `email` and `password`, or with a `token`, of an owner. It is used once, to create the operator's own
    /// account in a deployment that already has users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_credentials_secret_ref: Option<SecretRef>,
}

impl OperatorAccess {
    pub fn is_disabled(&self) -> bool {
        self.disabled.unwrap_or_default()
    }

    /// The declared name of the Secret with the token. An empty one counts as absent: manifests of coder-k8s may hold it.
    pub fn token_secret_name(&self) -> Option<&str> {
        self.generated_token_secret_name.as_deref().filter(|it| !it.is_empty())
    }
}
