//! `CoderAIModel`: a model that people choose in Coder Agents.

use kube::{CustomResource, KubeSchema, core::Rule};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{policy::Policy, reference::ControlPlaneRef, rules, schema, status::Status};

/// A model that people choose in Coder Agents, of a provider. No licence is needed. Coder has no unique name for it: the id in the
/// status says which one it is. Fields that are absent are not changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderAIModel",
    plural = "coderaimodels",
    doc = "A model that people choose in Coder Agents",
    namespaced,
    status = "Status",
    shortname = "caimodel",
    printcolumn = r#"{"name":"Provider","type":"string","jsonPath":".spec.provider"}"#,
    printcolumn = r#"{"name":"Model","type":"string","jsonPath":".spec.model"}"#,
    category = "coder",
    selectable = ".spec.controlPlaneRef.name",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.conditions[?(@.type==\"Drifted\")].status"}"#,
    printcolumn = r#"{"name":"Control plane","type":"string","priority":1,"jsonPath":".spec.controlPlaneRef.name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct CoderAIModelSpec {
    /// The control plane. Immutable.
    #[x_kube(validation = rules::immutable_control_plane())]
    pub control_plane_ref: ControlPlaneRef,
    #[serde(flatten)]
    pub policy: Policy,
    /// The provider, by name. A model is created, or moved to another provider, once that provider exists and is enabled.
    #[schemars(length(min = 1, max = 128))]
    pub provider: String,
    /// The model as its provider calls it.
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = is_trimmed())]
    pub model: String,
    /// The name that people see. Two manifests for one model of one provider need different ones. Coder cannot remove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = is_trimmed())]
    pub display_name: Option<String>,
    /// Whether people can choose the model. A model that is created without it is enabled, as Coder creates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How many tokens fit into the context. Needed to create a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub context_limit: Option<i64>,
    /// From how much of the context, in percent, a conversation is compressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub compression_threshold: Option<i32>,
    /// Coder's `model_config` object: how the model is called. All of it: `{}` removes every setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::free_object")]
    pub config: Option<Map<String, Value>>,
    /// Whether it is the model that people get who choose none. Coder has exactly one such model, so only one manifest of a
    /// control plane may set `true`, and `false` is refused: another manifest that sets `true` moves it.
    #[serde(default, rename = "default", skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = is_default_or_absent())]
    pub is_default: Option<bool>,
}

fn is_trimmed() -> Rule {
    Rule::new("self.matches('^\\\\S(.*\\\\S)?$')").message("must be one line without blanks at its ends")
}

fn is_default_or_absent() -> Rule {
    Rule::new("self").message(
        "must be true or absent: Coder always has a default, which moves when another manifest sets default: true",
    )
}
