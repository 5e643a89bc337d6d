//! The parts of a managed deployment: Service, `ServiceAccount`, RBAC, certificates, probes.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The port of a Service that names none.
const HTTP_PORT: i32 = 80;

/// The Service in front of the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<ServiceType>,
    /// The HTTP port. Defaults to 80. With certificates in `tls`, port 443 serves HTTPS; if this field is 443, HTTP is on 80.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// Annotations of the Service. Annotations of other field managers are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// The type of the Service. Defaults to `ClusterIP`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    #[default]
    ClusterIP,
    NodePort,
    LoadBalancer,
}

/// The `ServiceAccount` of the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountSpec {
    /// Whether the `ServiceAccount` is managed elsewhere: it is used, and neither created nor changed. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_create: Option<bool>,
    /// The name. Defaults to the control plane's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,
    /// Annotations, for example for workload identity. Annotations of other field managers are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Additional labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub labels: Option<BTreeMap<String, String>>,
}

/// The permissions of the `ServiceAccount`, so that templates can create workspaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RbacSpec {
    /// Whether it may manage Pods and `PersistentVolumeClaim`s. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_perms: Option<bool>,
    /// Whether it may also manage Deployments. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_deployments: Option<bool>,
    /// Further rules. Only rules that the operator's `--allow-rules` file allows are granted; by default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub extra_rules: Option<Vec<PolicyRule>>,
    /// Further namespaces for workspaces. Each needs the label `coder.com/workspaces-from` with the control plane's
    /// namespace as its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub workspace_namespaces: Option<Vec<String>>,
}

/// HTTPS served by the pods themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsSpec {
    /// Secrets with `tls.crt` and `tls.key`. With at least one of them the pods serve HTTPS beside HTTP, and the operator uses HTTPS. One
    /// certificate has to be for `NAME.NAMESPACE.svc.cluster.local`, with its authority under `ca.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub secret_names: Option<Vec<String>>,
}

/// Additional CA certificates that the pods trust.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertsSpec {
    /// Keys of Secrets, each with PEM certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub secrets: Option<Vec<CertSecret>>,
}

/// A key of a Secret with PEM certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertSecret {
    /// The name of a Secret in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// An HTTP probe of `/healthz`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeSpec {
    /// Whether the probe is enabled. Defaults to true for readiness and to false for liveness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Seconds before the first probe. Defaults to 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub initial_delay_seconds: Option<i32>,
    /// Seconds between two probes. Defaults to 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub period_seconds: Option<i32>,
    /// The timeout of a probe in seconds. Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_seconds: Option<i32>,
    /// Consecutive successes after a failure. Defaults to 1, and has to be 1 for liveness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub success_threshold: Option<i32>,
    /// Consecutive failures before the probe counts as failed. Defaults to 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub failure_threshold: Option<i32>,
}

impl ServiceSpec {
    /// The declared port, which is the one for plain HTTP unless it is 443 and there are certificates.
    pub fn port(&self) -> i32 {
        self.port.unwrap_or(HTTP_PORT)
    }

    pub fn type_(&self) -> ServiceType {
        self.type_.unwrap_or_default()
    }
}

impl ServiceType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIP => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

impl ServiceAccountSpec {
    pub fn is_created(&self) -> bool {
        !self.disable_create.unwrap_or_default()
    }

    /// The declared name. A blank one counts as absent: manifests of coder-k8s may hold it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref().map(str::trim).filter(|it| !it.is_empty())
    }
}

impl RbacSpec {
    pub fn has_workspace_perms(&self) -> bool {
        self.workspace_perms.unwrap_or(true)
    }

    pub fn enables_deployments(&self) -> bool {
        self.enable_deployments.unwrap_or(true)
    }
}
