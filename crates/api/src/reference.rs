//! References to other objects. All of them are to the same namespace: there is no field for another one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The control plane that an object belongs to, in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneRef {
    /// The name of a `CoderControlPlane` in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A key of a Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// The name of a Secret in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in the Secret. The description of the reference names the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = r"^[-._a-zA-Z0-9]*$"))]
    pub key: Option<String>,
}

/// A Secret in the same namespace whose keys have fixed names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// The name of a Secret in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl SecretKeyRef {
    /// The key, or what stands in for it. An empty one counts as absent: manifests of coder-k8s may hold it.
    pub fn key_or<'a>(&'a self, default: &'a str) -> &'a str {
        self.key.as_deref().filter(|it| !it.is_empty()).unwrap_or(default)
    }
}
