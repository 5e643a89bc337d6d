//! How a managed deployment is exposed outside the cluster.

use std::collections::BTreeMap;

use kube::{KubeSchema, core::Rule};
use serde::{Deserialize, Serialize};

/// How the deployment is exposed outside the cluster: by `ingress` or by `gateway`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = one_way())]
pub struct Expose {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<IngressExposure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayExposure>,
}

/// An Ingress with the control plane's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = wildcard_certificate_has_a_host())]
pub struct IngressExposure {
    /// The Ingress class. Defaults to the cluster's default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub class_name: Option<String>,
    /// The host name of the dashboard, as `coder.example.com`.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// The wildcard host name of workspace apps, as `*.coder.example.com`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub wildcard_host: Option<String>,
    /// Annotations of the Ingress. Annotations of other field managers are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub annotations: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<IngressTls>,
}

/// Secrets with certificates for the hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressTls {
    /// The Secret with the certificate for `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub secret_name: Option<String>,
    /// The Secret with the certificate for `wildcardHost`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub wildcard_secret_name: Option<String>,
}

/// An `HTTPRoute` with the control plane's name. It is created once the Gateway API is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayExposure {
    /// The host name of the dashboard, as `coder.example.com`.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// The wildcard host name of workspace apps, as `*.coder.example.com`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub wildcard_host: Option<String>,
    /// The Gateways to which the route is attached.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub parent_refs: Vec<GatewayParentRef>,
}

/// A Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayParentRef {
    /// The name of the Gateway.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The namespace of the Gateway. Defaults to the control plane's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// The listener of the Gateway. Defaults to all that match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub section_name: Option<String>,
}

fn one_way() -> Rule {
    Rule::new("!(has(self.ingress) && has(self.gateway))")
        .message("must be by ingress or by gateway: remove one of them")
}

fn wildcard_certificate_has_a_host() -> Rule {
    let is_set = |of: &str| format!("(has({of}) && {of} != '')");
    Rule::new(format!(
        "!has(self.tls) || !{} || {}",
        is_set("self.tls.wildcardSecretName"),
        is_set("self.wildcardHost")
    ))
    .message("a certificate for a wildcard needs wildcardHost: set it, or remove wildcardSecretName")
    .field_path(".tls")
}
