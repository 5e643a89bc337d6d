//! `CoderAIProvider`: a provider of AI models, with its keys from Secrets.

use kube::{CustomResource, KubeSchema, core::Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    app_state::CommonStatus,
    policy::Policy,
    reference::{ControlPlaneRef, SecretKeyRef},
    rules, schema,
    status::Status,
};

/// The key of a Secret that holds an API key, where a reference names none.
const API_KEY: &str = "key";
/// The key of a Secret that holds an AWS access key id, where a reference names none.
const ACCESS_KEY: &str = "access-key";
/// The key of a Secret that holds an AWS secret access key, where a reference names none.
const SECRET_KEY: &str = "secret-key";
/// Coder's rule for names of providers.
const NAME: &str = "^[a-z0-9]+(-[a-z0-9]+)*$";

/// A provider of AI models for the AI Gateway and Coder Agents, with its keys from Secrets. No licence is needed. Fields that are
/// absent are not changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderAIProvider",
    plural = "coderaiproviders",
    doc = "A provider of AI models, with its keys from Secrets",
    namespaced,
    status = "CoderAIProviderStatus",
    shortname = "caiprovider",
    printcolumn = r#"{"name":"Type","type":"string","jsonPath":".spec.type"}"#,
    printcolumn = r#"{"name":"Enabled","type":"boolean","jsonPath":".spec.enabled"}"#,
    category = "coder",
    selectable = ".spec.controlPlaneRef.name",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.conditions[?(@.type==\"Drifted\")].status"}"#,
    printcolumn = r#"{"name":"Control plane","type":"string","priority":1,"jsonPath":".spec.controlPlaneRef.name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = metadata_name(),
    validation = immutable_name()
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = keys_are_for_types_that_take_them(),
    validation = bedrock_is_for_its_type()
)]
pub struct CoderAIProviderSpec {
    /// The control plane. Immutable.
    #[x_kube(validation = rules::immutable_control_plane())]
    pub control_plane_ref: ControlPlaneRef,
    #[serde(flatten)]
    pub policy: Policy,
    /// The provider's name. Defaults to `metadata.name`. Immutable: Coder cannot rename a provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = is_name())]
    pub name: Option<String>,
    /// The protocol by which Coder talks to the provider. Immutable.
    #[serde(rename = "type")]
    #[x_kube(validation = immutable_type())]
    pub provider_type: AIProviderType,
    /// The display name; empty removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub display_name: Option<String>,
    /// The path or URL of an image, as `/icon/anthropic.svg`; empty removes it. Needs Coder 2.36.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub icon: Option<String>,
    /// Whether the provider is used. A provider that is created without it is disabled, as Coder creates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The address of the provider's API, word for word. Needed to create a provider of any type.
    #[serde(default, rename = "baseURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(validation = is_address())]
    pub base_url: Option<String>,
    /// The API keys, each from a Secret in the same namespace; `key` defaults to `key`. The list is complete: other keys are
    /// removed, and `[]` removes all. Coder uses the first. A changed Secret replaces the keys. Absent means that the keys are
    /// managed elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::secret_keys")]
    pub api_key_secret_refs: Option<Vec<SecretKeyRef>>,
    /// How AWS Bedrock is used. Only for the type `bedrock`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bedrock: Option<AIProviderBedrock>,
}

/// The protocol by which Coder talks to a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AIProviderType {
    #[default]
    #[serde(rename = "openai")]
    OpenAI,
    #[serde(rename = "anthropic")]
    Anthropic,
    #[serde(rename = "azure")]
    Azure,
    #[serde(rename = "google")]
    Google,
    #[serde(rename = "openai-compat")]
    OpenAICompat,
    #[serde(rename = "openrouter")]
    OpenRouter,
    #[serde(rename = "vercel")]
    Vercel,
    #[serde(rename = "bedrock")]
    Bedrock,
    #[serde(rename = "copilot")]
    Copilot,
}

/// How AWS Bedrock is used. Without static credentials coderd uses those of its environment, as an IAM role of its pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = both_credentials(), validation = mantle_has_a_region())]
pub struct AIProviderBedrock {
    /// The AWS region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub region: Option<String>,
    /// The wire protocol. `mantle` needs a region. Needs Coder 2.36.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<BedrockProtocol>,
    /// The model of ordinary requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub model: Option<String>,
    /// The model of background tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub small_fast_model: Option<String>,
    /// The IAM role that is assumed; empty removes it. `status.externalID` has the external id for its trust policy. Needs Coder
    /// 2.35.
    #[serde(default, rename = "roleARN", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    #[x_kube(validation = is_role())]
    pub role_arn: Option<String>,
    /// The AWS access key id, from a Secret in the same namespace; `key` defaults to `access-key`. Together with
    /// `secretKeySecretRef`. A changed Secret replaces both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_key_secret_ref: Option<SecretKeyRef>,
    /// The AWS secret access key, from a Secret in the same namespace; `key` defaults to `secret-key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_secret_ref: Option<SecretKeyRef>,
}

/// The wire protocol of AWS Bedrock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BedrockProtocol {
    #[default]
    #[serde(rename = "invoke-model")]
    InvokeModel,
    #[serde(rename = "mantle")]
    Mantle,
}

/// The observed state of the provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoderAIProviderStatus {
    #[serde(flatten)]
    pub common: Status,
    #[serde(flatten)]
    pub sent: AIProviderSent,
    /// The external id that Coder sends when it assumes `bedrock.roleARN`: for the trust policy of the role.
    #[serde(default, rename = "externalID", skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
}

/// What was sent of the values in Secrets. Fingerprints are made with a key that only the operator has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AIProviderSent {
    /// The ids of the API keys in Coder, in their order.
    #[serde(default, rename = "apiKeyIDs", skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub api_key_ids: Vec<String>,
    /// The fingerprint of the API keys that were last sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_fingerprint: Option<String>,
    /// The fingerprint of the AWS credentials that were last sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_fingerprint: Option<String>,
}

impl CommonStatus for CoderAIProviderStatus {
    fn common(&self) -> &Status {
        &self.common
    }

    fn set_common(&mut self, common: Status) {
        self.common = common;
    }
}

impl CoderAIProvider {
    /// The provider's name in Coder.
    pub fn remote_name(&self) -> &str {
        self.spec.name.as_deref().or(self.metadata.name.as_deref()).unwrap_or_default()
    }
}

impl CoderAIProviderSpec {
    /// The name and the key of each Secret that holds an API key. `None` where the keys are managed elsewhere.
    pub fn api_keys(&self) -> Option<Vec<(&str, &str)>> {
        let refs = self.api_key_secret_refs.as_ref()?;
        Some(refs.iter().map(|it| (it.name.as_str(), it.key_or(API_KEY))).collect())
    }
}

impl AIProviderBedrock {
    /// The names and the keys of the Secrets that hold the AWS credentials: the access key id, then the secret access key.
    pub fn credentials(&self) -> Option<[(&str, &str); 2]> {
        let (access, secret) = (self.access_key_secret_ref.as_ref()?, self.secret_key_secret_ref.as_ref()?);
        Some([
            (access.name.as_str(), access.key_or(ACCESS_KEY)),
            (secret.name.as_str(), secret.key_or(SECRET_KEY)),
        ])
    }
}

impl AIProviderType {
    /// Coder's word for the type.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAI => "openai",
            Self::Anthropic => "anthropic",
            Self::Azure => "azure",
            Self::Google => "google",
            Self::OpenAICompat => "openai-compat",
            Self::OpenRouter => "openrouter",
            Self::Vercel => "vercel",
            Self::Bedrock => "bedrock",
            Self::Copilot => "copilot",
        }
    }
}

impl BedrockProtocol {
    /// Coder's word for the protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvokeModel => "invoke-model",
            Self::Mantle => "mantle",
        }
    }
}

fn is_name() -> Rule {
    Rule::new(format!("self.matches('{NAME}')"))
        .message("must be small letters and digits with single hyphens between them, as in `anthropic-eu`")
}

/// The object's own name, where it stands in for `spec.name`.
fn metadata_name() -> Rule {
    Rule::new(format!("has(self.spec.name) || self.metadata.name.matches('{NAME}')"))
        .message("metadata.name cannot be a name of a provider (small letters and digits with single hyphens between them): set spec.name")
}

fn immutable_name() -> Rule {
    let name = |of: &str| format!("(has({of}.spec.name) ? {of}.spec.name : {of}.metadata.name)");
    Rule::new(format!("{} == {}", name("self"), name("oldSelf")))
        .message("cannot be changed: Coder cannot rename a provider, so create another object")
        .field_path(".spec.name")
}

fn immutable_type() -> Rule {
    Rule::new("self == oldSelf")
        .message("cannot be changed: Coder cannot change the type of a provider, so create another object")
}

fn is_address() -> Rule {
    Rule::new("self.matches('^https?://[^/?# ]+')")
        .message("must be an address that begins with http:// or https://")
}

fn keys_are_for_types_that_take_them() -> Rule {
    Rule::new("!(self.type in ['bedrock', 'copilot']) || !has(self.apiKeySecretRefs) || self.apiKeySecretRefs.size() == 0")
        .message("cannot be set for the types bedrock, which has credentials in bedrock, and copilot, which needs none")
        .field_path(".apiKeySecretRefs")
}

fn bedrock_is_for_its_type() -> Rule {
    Rule::new("self.type == 'bedrock' || !has(self.bedrock)")
        .message("can be set only for the type bedrock")
        .field_path(".bedrock")
}

fn both_credentials() -> Rule {
    Rule::new("has(self.accessKeySecretRef) == has(self.secretKeySecretRef)")
        .message("accessKeySecretRef and secretKeySecretRef belong together: set both, or neither")
}

fn mantle_has_a_region() -> Rule {
    Rule::new("!has(self.protocol) || self.protocol != 'mantle' || (has(self.region) && self.region != '')")
        .message("must be set for the protocol mantle")
        .field_path(".region")
}

fn is_role() -> Rule {
    Rule::new("self == '' || self.matches('^arn:[^:]+:iam:[^:]*:[^:]*:role/.+')")
        .message("must be the ARN of an IAM role, as in `arn:aws:iam::123456789012:role/coder`")
}
