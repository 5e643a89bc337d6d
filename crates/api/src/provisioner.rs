//! `CoderProvisioner`: external provisioner daemons with their key.
//!
//! Names and meanings that coder-k8s has are kept, and its defaults are methods: an existing manifest means what it
//! meant. The one default that stands in the definition is that of `replicas`, without which nothing could be scaled.

mod parts;
mod status;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{
    Affinity, EnvFromSource, EnvVar, LocalObjectReference, PodSecurityContext, ResourceRequirements,
    SecurityContext, Toleration, TopologySpreadConstraint, Volume, VolumeMount,
};
use kube::{CustomResource, KubeSchema, core::Rule};
use serde::{Deserialize, Serialize};

pub use parts::{
    Bootstrap, EntitlementLossPolicy, ProvisionerKeySpec, ProvisionerRbacSpec, ProvisionerRotation,
    ProvisionerServiceAccountSpec,
};
pub use status::CoderProvisionerStatus;

use crate::{
    DEFAULT_ORGANIZATION,
    interval::Interval,
    key,
    policy::{ChangePolicy, DEFAULT_INTERVAL},
    quantity,
    reference::ControlPlaneRef,
    rules, schema,
};

/// How long a daemon may take to finish its build when its pod is to go, as coder-k8s has it.
const GRACE_PERIOD: i64 = 600;

/// External provisioner daemons of a Coder deployment: the key, its Secret, and the Deployment that runs the daemons.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderProvisioner",
    doc = "External provisioner daemons of a Coder deployment, with their key",
    namespaced,
    status = "CoderProvisionerStatus",
    shortname = "cprov",
    category = "coder",
    selectable = ".spec.controlPlaneRef.name",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.conditions[?(@.type==\"Drifted\")].status"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Replicas","type":"integer","jsonPath":".status.readyReplicas"}"#,
    printcolumn = r#"{"name":"Desired","type":"integer","jsonPath":".spec.replicas"}"#,
    printcolumn = r#"{"name":"Daemons","type":"integer","jsonPath":".status.daemons"}"#,
    printcolumn = r#"{"name":"Organization","type":"string","priority":1,"jsonPath":".status.organizationName"}"#,
    printcolumn = r#"{"name":"Control plane","type":"string","priority":1,"jsonPath":".spec.controlPlaneRef.name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = key::metadata_name(parts::NAME_IS_DECLARED, 253, "spec.key.name")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = one_service_account())]
pub struct CoderProvisionerSpec {
    /// The control plane of the daemons. After a change, a key is created at the new control plane first.
    pub control_plane_ref: ControlPlaneRef,
    /// The organization, by name. Defaults to `default`, the default organization whatever its name. A change creates a new
    /// key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = organization_is_a_name())]
    pub organization_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<ProvisionerKeySpec>,
    /// The number of daemons; each runs one build at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), default = "one")]
    pub replicas: Option<i32>,
    /// The provisioner tags, which select the jobs of the daemons. Tags belong to the key: a change creates a new key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::tags")]
    #[x_kube(
        validation = key::tags_have_values(),
        validation = key::tags_are_of_the_organization(),
        validation = key::tags_have_no_owner()
    )]
    pub tags: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<ProvisionerRotation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entitlement_loss_policy: Option<EntitlementLossPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Bootstrap>,
    /// The image reference. Defaults to the image of a managed control plane, and to the published image of the version of an
    /// external one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub image: Option<String>,
    /// Arguments after `provisioner start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), inner(length(max = 4096)))]
    #[x_kube(merge_strategy = ListMerge::Atomic, validation = arguments_go_with_a_key())]
    pub extra_args: Option<Vec<String>>,
    /// Environment variables. They override built-in ones of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "quantity::read")]
    #[schemars(length(max = 1024))]
    #[x_kube(merge_strategy = ListMerge::Atomic, validation = variables_go_with_a_key())]
    pub extra_env: Option<Vec<EnvVar>>,
    /// ConfigMaps and Secrets whose keys become environment variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic, validation = rules::one_source_each())]
    pub env_from: Option<Vec<EnvFromSource>>,
    /// Image pull Secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    /// How many seconds a terminating daemon has to finish its build. Defaults to 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub termination_grace_period_seconds: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rbac: Option<ProvisionerRbacSpec>,
    /// An existing `ServiceAccount` for the pods. With it the operator creates no `ServiceAccount` and grants no permissions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub service_account_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ProvisionerServiceAccountSpec>,
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
    /// The priority class of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = rules::object_name())]
    pub priority_class_name: Option<String>,
    /// Volumes of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "quantity::read")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub volumes: Option<Vec<Volume>>,
    /// Volume mounts of the container.
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
    /// Suspends reconciliation while true: the object is neither read nor changed. The daemons keep running, and deletion
    /// still works.
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

impl CoderProvisioner {
    /// What the name of the key begins with: the declared name, or the object's own. An empty one counts as absent:
    /// manifests of coder-k8s may hold it.
    pub fn key_name(&self) -> &str {
        let declared = self.spec.key.as_ref().and_then(ProvisionerKeySpec::name);
        declared.or(self.metadata.name.as_deref()).unwrap_or_default()
    }
}

impl CoderProvisionerSpec {
    pub fn is_suspended(&self) -> bool {
        self.suspend.unwrap_or_default()
    }

    pub fn interval(&self) -> Duration {
        self.interval.map_or(DEFAULT_INTERVAL, Interval::duration)
    }

    /// The organization's name, or `default` for the default one. An empty one counts as absent: manifests of coder-k8s
    /// may hold it.
    pub fn organization(&self) -> &str {
        self.organization_name.as_deref().filter(|it| !it.is_empty()).unwrap_or(DEFAULT_ORGANIZATION)
    }

    /// The declared name of the Secret with the key.
    pub fn secret_name(&self) -> Option<&str> {
        self.key.as_ref().and_then(ProvisionerKeySpec::secret_name)
    }

    /// The key in that Secret.
    pub fn secret_key(&self) -> &str {
        self.key.as_ref().and_then(ProvisionerKeySpec::secret_key).unwrap_or(key::SECRET_KEY)
    }

    pub fn replicas(&self) -> i32 {
        self.replicas.or_else(one).unwrap_or_default()
    }

    /// The declared image. A blank one counts as absent: manifests of coder-k8s may hold it.
    pub fn image(&self) -> Option<&str> {
        self.image.as_deref().map(str::trim).filter(|it| !it.is_empty())
    }

    /// In seconds.
    pub fn termination_grace_period(&self) -> i64 {
        self.termination_grace_period_seconds.unwrap_or(GRACE_PERIOD)
    }

    /// After how long a key gives way to the next one; nothing when it does not by itself.
    pub fn rotates_every(&self) -> Option<Duration> {
        self.rotation.as_ref().and_then(|it| it.every).map(Interval::duration)
    }

    pub fn entitlement_loss_policy(&self) -> EntitlementLossPolicy {
        self.entitlement_loss_policy.unwrap_or_default()
    }

    /// The `ServiceAccount` of somebody else that the pods use.
    pub fn service_account_name(&self) -> Option<&str> {
        self.service_account_name.as_deref().filter(|it| !it.is_empty())
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the default of a field has the type of the field")]
fn one() -> Option<i32> {
    Some(1)
}

fn organization_is_a_name() -> Rule {
    Rule::new(format!("self == '' || self.matches('{}')", rules::NAME))
        .message("must be letters and digits with single hyphens between them, as in `team-alpha`")
}

/// The daemon does not start with these beside a key; and the key itself belongs into its Secret.
fn variables_go_with_a_key() -> Rule {
    Rule::new(
        "self.all(it, !(it.name in ['CODER_ORGANIZATION', 'CODER_PROVISIONER_DAEMON_KEY', \
         'CODER_PROVISIONER_DAEMON_PSK', 'CODER_PROVISIONERD_TAGS']))",
    )
    .message(
        "must not set CODER_ORGANIZATION, CODER_PROVISIONER_DAEMON_KEY, CODER_PROVISIONER_DAEMON_PSK or \
         CODER_PROVISIONERD_TAGS: the key decides, so use organizationName, key and tags",
    )
}

/// The same, as arguments.
fn arguments_go_with_a_key() -> Rule {
    Rule::new("self.all(it, !it.matches('^(--(org|key|psk|tag)(=.*)?|-[tO].*)$'))").message(
        "must not have --org, --key, --psk or --tag: the key decides, so use organizationName, key and tags",
    )
}

fn one_service_account() -> Rule {
    Rule::new(
        "!has(self.serviceAccountName) || self.serviceAccountName == '' || \
         !(has(self.serviceAccount) || has(self.rbac))",
    )
    .message(
        "a ServiceAccount of somebody else is used as it is: remove serviceAccount and rbac, or serviceAccountName",
    )
    .field_path(".serviceAccountName")
}
