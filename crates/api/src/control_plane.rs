//! `CoderControlPlane`: a Coder deployment that other objects belong to.
//!
//! One that we run, or one that runs elsewhere. Names and meanings that coder-k8s has are kept, and its defaults are
//! methods: an existing manifest means what it meant.

mod access;
mod exposure;
mod external;
mod status;
mod workload;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{
    Affinity, EnvFromSource, EnvVar, LocalObjectReference, PodSecurityContext, ResourceRequirements,
    SecurityContext, Toleration, TopologySpreadConstraint, Volume, VolumeMount,
};
use kube::{CustomResource, KubeSchema, core::Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use access::OperatorAccess;
pub use exposure::{Expose, GatewayExposure, GatewayParentRef, IngressExposure, IngressTls};
pub use external::External;
pub use status::{CoderControlPlaneStatus, CredentialStatus, FeatureStatus, LicenseStatus, UserLimit};
pub use workload::{
    CertSecret, CertsSpec, ProbeSpec, RbacSpec, ServiceAccountSpec, ServiceSpec, ServiceType, TlsSpec,
};

use crate::{interval::Interval, policy::DEFAULT_INTERVAL, quantity, reference::SecretKeyRef, rules};

/// The key that holds a licence where a Secret is named without one.
const LICENSE_KEY: &str = "license";
/// The image of a control plane that names none, as coder-k8s has it.
const IMAGE: &str = concat!("ghcr", ".io/coder/coder:latest");

/// The image that Coder publishes under a tag.
pub fn published_image(tag: &str) -> String {
    format!("{}{tag}", IMAGE.trim_end_matches("latest"))
}

/// A Coder deployment that other objects belong to.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderControlPlane",
    doc = "A Coder deployment that other objects belong to",
    namespaced,
    status = "CoderControlPlaneStatus",
    shortname = "ccp",
    category = "coder",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.conditions[?(@.type==\"Drifted\")].status"}"#,
    printcolumn = r#"{"name":"URL","type":"string","jsonPath":".status.url"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.version"}"#,
    printcolumn = r#"{"name":"Licence","type":"string","priority":1,"jsonPath":".status.licenseTier"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = own_name_is_a_services()
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = every_license_once(),
    validation = external::stands_alone(),
    validation = external::brings_its_credentials()
)]
pub struct CoderControlPlaneSpec {
    /// A deployment that runs elsewhere. Without it, we run one here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// The whole reference of Coder's image; by default the newest published one. Name a version, so that only you
    /// decide when it changes. An image that is older than what has worked on the database is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub image: Option<String>,
    /// How many pods. Absent means that somebody else decides, for example an autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
    /// Arguments after the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub extra_args: Option<Vec<String>>,
    /// Environment variables. One with the name of a built-in one takes its place. `CODER_PG_CONNECTION_URL` names the
    /// database; take it from a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "quantity::read")]
    #[schemars(length(max = 1024))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub extra_env: Option<Vec<EnvVar>>,
    /// ConfigMaps and Secrets whose keys become environment variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic, validation = rules::one_source_each())]
    pub env_from: Option<Vec<EnvFromSource>>,
    /// Whether Coder is told the Service as its address (`CODER_ACCESS_URL`) unless `extraEnv` or `envFrom` have another
    /// one; by default true.
    #[serde(default, rename = "envUseClusterAccessURL", skip_serializing_if = "Option::is_none")]
    pub env_use_cluster_access_url: Option<bool>,
    /// Secrets with which the image is pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_access: Option<OperatorAccess>,
    /// The Secret with the licence; its key is `license` unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license_secret_ref: Option<SecretKeyRef>,
    /// Secrets with further licences, for add-ons; their key is `license` unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub license_secret_refs: Option<Vec<SecretKeyRef>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license_deletion_policy: Option<LicenseDeletionPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rbac: Option<RbacSpec>,
    /// What the container asks for and may use at most.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "quantity::read")]
    pub resources: Option<ResourceRequirements>,
    /// The container's security context. What it leaves out is set so that the pods pass the Pod Security level `restricted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
    /// The pods' security context. What it leaves out is set so that the pods pass the Pod Security level `restricted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security_context: Option<PodSecurityContext>,
    /// Annotations of the pods. Those that others set stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub pod_annotations: Option<BTreeMap<String, String>>,
    /// Labels of the pods beyond the usual ones, which cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub pod_labels: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certs: Option<CertsSpec>,
    /// Whether a pod takes requests; there is such a probe unless it is switched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness_probe: Option<ProbeSpec>,
    /// Whether a pod is to be restarted; there is no such probe unless it is switched on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness_probe: Option<ProbeSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expose: Option<Expose>,
    /// Volumes beyond those for certificates.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "quantity::read")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub volumes: Option<Vec<Volume>>,
    /// Where volumes are mounted in the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub volume_mounts: Option<Vec<VolumeMount>>,
    /// Labels of the nodes that may run the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints of nodes that the pods put up with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tolerations: Option<Vec<Toleration>>,
    /// Nodes and pods that the pods should or must be near to, or far from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// How the pods are spread over the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// Stops everything but deletion while true. Nothing is read or changed, and the status says so; so it is for what belongs to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// How often the deployment is looked at, as `5m`, `90s` or `1h30m`; at least `10s`, by default `5m`. A few per cent
    /// are added or taken off, so that objects do not come all at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::interval())]
    pub interval: Option<Interval>,
}

/// What becomes of a licence that came from here when it is no longer declared, or when this manifest is deleted.
/// `Retain` (the default) leaves it installed, `Delete` removes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LicenseDeletionPolicy {
    #[default]
    Retain,
    Delete,
}

impl CoderControlPlaneSpec {
    pub fn is_suspended(&self) -> bool {
        self.suspend.unwrap_or_default()
    }

    pub fn interval(&self) -> Duration {
        self.interval.map_or(DEFAULT_INTERVAL, Interval::duration)
    }

    pub fn license_deletion_policy(&self) -> LicenseDeletionPolicy {
        self.license_deletion_policy.unwrap_or_default()
    }

    /// The Secrets with licences, as names and keys.
    pub fn licenses(&self) -> impl Iterator<Item = (&str, &str)> {
        let further = self.license_secret_refs.iter().flatten();
        self.license_secret_ref.iter().chain(further).map(|it| (it.name.as_str(), it.key_or(LICENSE_KEY)))
    }

    /// The image. A blank one counts as absent: manifests of coder-k8s may hold it.
    pub fn image(&self) -> &str {
        self.image.as_deref().map(str::trim).filter(|it| !it.is_empty()).unwrap_or(IMAGE)
    }

    /// Whether Coder is told the Service as its address, unless somebody else tells it another one.
    pub fn uses_cluster_access_url(&self) -> bool {
        self.env_use_cluster_access_url.unwrap_or(true)
    }

    /// The Secrets with certificates for HTTPS: each once, and no blank one.
    pub fn tls_secrets(&self) -> Vec<&str> {
        let named = self.tls.iter().flat_map(|it| it.secret_names.iter().flatten());
        let mut secrets = Vec::new();
        for name in named.map(|it| it.trim()).filter(|it| !it.is_empty()) {
            if !secrets.contains(&name) {
                secrets.push(name);
            }
        }
        secrets
    }
}

/// The control plane's name is also the one of its Service and of its Deployment, and a label on both.
fn own_name_is_a_services() -> Rule {
    Rule::new(
        "has(self.spec.external) || \
         (self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))",
    )
    .message(
        "metadata.name becomes the name of a Service, so it must begin with a letter, have only small letters, digits and \
         hyphens, not end with a hyphen, and have at most 63 characters",
    )
}

/// The same licence twice would be two claims on one thing.
fn every_license_once() -> Rule {
    let key = |of: &str| format!("(has({of}.key) && {of}.key != '' ? {of}.key : '{LICENSE_KEY}')");
    let differs =
        |one: &str, other: &str| format!("({one}.name != {other}.name || {} != {})", key(one), key(other));
    let first = "self.licenseSecretRef";
    Rule::new(format!(
        "!has(self.licenseSecretRefs) || (self.licenseSecretRefs.all(a, !has({first}) || {}) && \
         self.licenseSecretRefs.all(a, self.licenseSecretRefs.exists_one(b, !{})))",
        differs("a", first),
        differs("a", "b"),
    ))
    .message("must name every licence once, and not the one of licenseSecretRef again")
    .field_path(".licenseSecretRefs")
}
