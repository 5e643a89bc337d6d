//! How we come to an account and a token of our own.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::reference::SecretRef;

/// How the operator comes to an account and a token of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorAccess {
    /// Gives the account and the token up while true; what needs them waits. By default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// The Secret into which the token is written; by default the control plane's name and `-operator-token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub generated_token_secret_name: Option<String>,
    /// The Secret with `email`, `username` and `password` of the first user. It is created only when the deployment
    /// has no user at all. Without it the operator's own account is the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_user_secret_ref: Option<SecretRef>,
    /// The Secret with `email` and `password`, or with a `token`, of an owner. It is used once, to create the operator's
    /// own account, when the deployment has users already.
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
