//! The parts of a deployment that we run: its Service, its account in the cluster, its certificates, its probes.

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
    /// The port for plain HTTP, by default 80. With certificates in `tls`, 443 is for HTTPS, and if it is named here plain
    /// HTTP is on 80.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// Annotations of the Service. Those that others set stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// The type of the Service; by default `ClusterIP`.
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
    /// While true the `ServiceAccount` is somebody else's: it is used, and neither made nor changed. By default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_create: Option<bool>,
    /// Its name; by default the control plane's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,
    /// Its annotations, for example for a cloud's identities. Those that others set stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Its labels, beyond and above the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub labels: Option<BTreeMap<String, String>>,
}

/// What the `ServiceAccount` may do, so that templates can make workspaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RbacSpec {
    /// Whether it may keep pods and volume claims; by default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_perms: Option<bool>,
    /// Whether it may keep Deployments too; by default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_deployments: Option<bool>,
    /// Further rules. Only those are granted that the operator was started to allow, which by default is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub extra_rules: Option<Vec<PolicyRule>>,
    /// Further namespaces that take workspaces. Each has to consent, by the label `coder.com/workspaces-from` with the
    /// control plane's namespace as its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(min = 1, max = 63)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub workspace_namespaces: Option<Vec<String>>,
}

/// HTTPS that the pods speak themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsSpec {
    /// Secrets with `tls.crt` and `tls.key`. With at least one of them the pods speak HTTPS beside plain HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub secret_names: Option<Vec<String>>,
}

/// Certificates that the pods trust beyond the usual ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertsSpec {
    /// Keys of Secrets, each with certificates (PEM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub secrets: Option<Vec<CertSecret>>,
}

/// A key of a Secret with certificates.
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

/// A probe, which asks for `/healthz`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbeSpec {
    /// Whether there is one. By default there is one for readiness and none for liveness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Seconds before the first question, by default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub initial_delay_seconds: Option<i32>,
    /// Seconds between two questions, by default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub period_seconds: Option<i32>,
    /// Seconds after which no answer counts as a bad one, by default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_seconds: Option<i32>,
    /// Good answers after which a pod is well again, by default 1. Liveness takes no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub success_threshold: Option<i32>,
    /// Bad answers after which a pod is not well, by default 3.
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
