//! `CoderControlPlane`: a Coder deployment, managed by the operator or external.
//!
//! Names and meanings of coder-k8s are kept, and its defaults are methods: an existing manifest keeps its meaning.

mod access;
mod database;
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
pub use database::{ConnectionSecretRef, DATABASE_URL, DatabaseSpec, TemplateTests};
pub use exposure::{Expose, GatewayExposure, GatewayParentRef, IngressExposure, IngressTls};
pub use external::External;
pub use status::{CoderControlPlaneStatus, CredentialStatus, FeatureStatus, LicenseStatus, UserLimit};
pub use workload::{
    CertSecret, CertsSpec, ProbeSpec, RbacSpec, ServiceAccountSpec, ServiceSpec, ServiceType, TlsSpec,
};

use crate::{
    interval::Interval,
    policy::{ChangePolicy, DEFAULT_INTERVAL},
    quantity,
    reference::SecretKeyRef,
    rules,
};

/// The key that holds a licence where a Secret is named without one.
const LICENSE_KEY: &str = "license";
/// The image of a control plane that names none, as coder-k8s has it.
const IMAGE: &str = concat!("ghcr", ".io/coder/coder:latest");

/// The image that Coder publishes under a tag.
pub fn published_image(tag: &str) -> String {
    format!("{}{tag}", IMAGE.trim_end_matches("latest"))
}

/// A Coder deployment: one that runs elsewhere (`external`), or one that the operator runs. Other kinds refer to it.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderControlPlane",
    doc = "A Coder deployment, external or managed by the operator",
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
    validation = database::is_declared_once(),
    validation = external::stands_alone(),
    validation = external::brings_its_credentials()
)]
pub struct CoderControlPlaneSpec {
    /// An external deployment. Absent means that the operator runs the deployment in this cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// The image reference. Defaults to the newest published image; use a version tag in production. An image older than
    /// the version that has migrated the database is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub image: Option<String>,
    /// The number of pods. Absent means that the number is managed elsewhere, for example by an autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
    /// Additional arguments of `coder server`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub extra_args: Option<Vec<String>>,
    /// The database. Without it, and without `CODER_PG_CONNECTION_URL` in `extraEnv` or `envFrom`, Coder keeps its data in
    /// its pod and loses it with the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseSpec>,
    /// Environment variables. They override built-in ones of the same name. `CODER_PG_CONNECTION_URL` declares the
    /// database; take it from a Secret, or use `database`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "quantity::read")]
    #[schemars(length(max = 1024))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub extra_env: Option<Vec<EnvVar>>,
    /// ConfigMaps and Secrets whose keys become environment variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic, validation = rules::one_source_each())]
    pub env_from: Option<Vec<EnvFromSource>>,
    /// Whether `CODER_ACCESS_URL` is set to the Service's URL unless `extraEnv` or `envFrom` set it. Defaults to true.
    #[serde(default, rename = "envUseClusterAccessURL", skip_serializing_if = "Option::is_none")]
    pub env_use_cluster_access_url: Option<bool>,
    /// Image pull Secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_access: Option<OperatorAccess>,
    /// The Secret with the licence. The key defaults to `license`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub license_secret_ref: Option<SecretKeyRef>,
    /// Secrets with further licences, for add-ons. The key defaults to `license`.
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
    /// The container's resource requests and limits.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "quantity::read")]
    pub resources: Option<ResourceRequirements>,
    /// The container's security context. Absent fields are set so that the pods comply with the Pod Security level `restricted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
    /// The pods' security context. Absent fields are set so that the pods comply with the Pod Security level `restricted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security_context: Option<PodSecurityContext>,
    /// Annotations of the pods. Annotations of other field managers are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub pod_annotations: Option<BTreeMap<String, String>>,
    /// Additional labels of the pods. The standard labels cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub pod_labels: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certs: Option<CertsSpec>,
    /// The readiness probe. Enabled by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness_probe: Option<ProbeSpec>,
    /// The liveness probe. Disabled by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub liveness_probe: Option<ProbeSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expose: Option<Expose>,
    /// Additional volumes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "quantity::read")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub volumes: Option<Vec<Volume>>,
    /// Additional volume mounts of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub volume_mounts: Option<Vec<VolumeMount>>,
    /// The node selector of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Tolerations of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tolerations: Option<Vec<Toleration>>,
    /// The affinity of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,
    /// Topology spread constraints of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    /// Settings of coder-k8s for its own kind `CoderTemplateTest`. They are stored and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_tests: Option<TemplateTests>,
    /// Suspends reconciliation while true, also of every object that refers to this control plane. Deletion still works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The interval between two reconciles, as `5m`, `90s` or `1h30m`; at least `10s`. Defaults to `5m`, with a jitter of
    /// 10 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::interval())]
    pub interval: Option<Interval>,
    #[serde(flatten)]
    pub changes: ChangePolicy,
}

/// What happens to a licence that the operator installed when it is no longer declared, or when this manifest is deleted.
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
