//! What manifests refer to.

use super::remote_name::RemoteName;

/// Something that a manifest refers to. Objects of the cluster are named within its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ref {
    /// What a control plane reports in its status, as far as daemons depend on it.
    ControlPlaneStatus(String),
    /// An object of the deployment.
    Remote(RemoteName),
    Secret(String),
    ConfigMap(String),
}

impl Ref {
    pub fn organization(name: &str) -> Self {
        Self::Remote(RemoteName::Organization(name.to_owned()))
    }

    /// The object of the deployment that is referred to.
    pub fn remote(&self) -> Option<&RemoteName> {
        match self {
            Self::Remote(name) => Some(name),
            Self::ControlPlaneStatus(_) | Self::Secret(_) | Self::ConfigMap(_) => None,
        }
    }
}
