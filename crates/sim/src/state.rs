//! Everything that a deployment remembers, as plain values that can be saved and loaded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// The database of a deployment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct State {
    pub deployment_id: Uuid,
    pub default_organization: Uuid,
    /// How many ids and secrets were issued; the next one is derived from this number and the seed.
    pub issued: u64,
    pub users: BTreeMap<Uuid, User>,
    /// Sessions and tokens by their id.
    pub api_keys: BTreeMap<String, ApiKey>,
    pub organizations: BTreeMap<Uuid, Organization>,
    pub groups: BTreeMap<Uuid, Group>,
    #[serde(default)]
    pub workspaces: BTreeMap<Uuid, Workspace>,
    #[serde(default)]
    pub custom_roles: Vec<CustomRole>,
    pub provisioner_keys: BTreeMap<Uuid, ProvisionerKey>,
    pub daemons: BTreeMap<Uuid, Daemon>,
    #[serde(default)]
    pub files: BTreeMap<Uuid, File>,
    #[serde(default)]
    pub templates: BTreeMap<Uuid, Template>,
    #[serde(default)]
    pub versions: BTreeMap<Uuid, Version>,
    pub licenses: BTreeMap<i32, License>,
    /// The last number that a licence got, also one that was refused as a duplicate.
    pub last_license: i32,
    pub entitlements: Entitlements,
    /// `None` until the document is written.
    pub organization_sync: Option<Value>,
    pub group_sync: BTreeMap<Uuid, Value>,
    pub role_sync: BTreeMap<Uuid, Value>,
    pub appearance: Appearance,
    #[serde(default)]
    pub ai_providers: BTreeMap<Uuid, AiProvider>,
    #[serde(default)]
    pub model_configs: BTreeMap<Uuid, ModelConfig>,
    /// What coderd was started with, as far as the client reads it. `None` where nothing of that was set.
    #[serde(default)]
    pub server_config: Option<Value>,
    /// The last changes, oldest first.
    pub audit_log: VecDeque<AuditEntry>,
}

/// An account, also a deleted one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct User {
    pub id: Uuid,
    pub username: String,
    pub email: String,
    pub name: String,
    pub status: String,
    pub login_type: String,
    pub is_service_account: bool,
    pub roles: Vec<String>,
    /// The hash of the password. `None` where the account has no password.
    pub password: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// `None` until the first authenticated request.
    pub last_seen_at: Option<Timestamp>,
    pub deleted: bool,
}

/// A session or a token.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ApiKey {
    pub id: String,
    pub user_id: Uuid,
    /// The hash of the secret, which is shown once.
    pub secret: String,
    /// `token`, or how the session was signed in.
    pub login_type: String,
    pub token_name: String,
    pub scopes: Vec<String>,
    pub lifetime_seconds: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub expires_at: Timestamp,
    /// `None` until the first use.
    pub last_used: Option<Timestamp>,
}

/// An organization, also a deleted one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Organization {
    pub id: Uuid,
    pub name: String,
    pub display_name: String,
    pub description: String,
    pub icon: String,
    pub is_default: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub deleted: bool,
    pub members: BTreeMap<Uuid, Membership>,
    /// Whose workspaces can be shared. `None` for everyone's.
    #[serde(default)]
    pub workspace_sharing: Option<String>,
}

/// That an account is a member of an organization.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Membership {
    /// The position among all memberships.
    pub number: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A group of an organization. The group `Everyone` has the id of its organization and no members of its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Group {
    pub id: Uuid,
    pub organization_id: Uuid,
    pub name: String,
    pub display_name: String,
    pub avatar_url: String,
    pub quota_allowance: i32,
    pub members: BTreeSet<Uuid>,
}

/// A workspace, also a deleted one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workspace {
    pub name: String,
    pub owner_id: Uuid,
    #[serde(default)]
    pub template_id: Uuid,
    #[serde(default)]
    pub version_id: Uuid,
    #[serde(default)]
    pub created_at: Timestamp,
    /// The values of its parameters.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// The latest one is the last. Empty for a workspace that somebody has, whatever became of it.
    #[serde(default)]
    pub builds: Vec<WorkspaceBuild>,
}

/// A build of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceBuild {
    pub id: Uuid,
    pub job_id: Uuid,
    /// `start` or `delete`.
    pub transition: String,
    pub created_at: Timestamp,
    /// Whether the build was canceled before a daemon took it, or forgets what is provisioned.
    pub is_canceled: bool,
    pub is_orphan: bool,
}

/// What becomes of the workspaces of a version, by the words in its source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    /// They have no agent.
    #[default]
    NoAgent,
    /// Their agent becomes ready.
    Ready,
    /// Their agent never connects.
    Silent,
    /// The startup script of their agent fails.
    ScriptFails,
    /// Their start build fails.
    BuildFails,
}

/// A custom role of an organization.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CustomRole {
    pub id: Uuid,
    pub organization_id: Uuid,
    pub name: String,
    pub display_name: String,
    pub permissions: Vec<Permission>,
}

/// One action on one type of resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permission {
    pub negate: bool,
    pub resource_type: String,
    pub action: String,
}

/// A key of provisioner daemons.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProvisionerKey {
    pub id: Uuid,
    /// The position among all keys.
    pub number: u64,
    pub organization_id: Uuid,
    pub name: String,
    pub tags: BTreeMap<String, String>,
    /// The hash of the value, which is shown once; empty for the reserved keys.
    pub secret: String,
    pub created_at: Timestamp,
}

/// A provisioner daemon that connected with a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Daemon {
    pub id: Uuid,
    pub organization_id: Uuid,
    pub key_id: Uuid,
    pub name: String,
    pub version: String,
    /// The version of the protocol; empty in states that were saved without it.
    #[serde(default)]
    pub api_version: String,
    pub provisioners: Vec<String>,
    pub tags: BTreeMap<String, String>,
    pub created_at: Timestamp,
    pub last_seen_at: Timestamp,
}

/// A stored archive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct File {
    pub id: Uuid,
    pub owner: Uuid,
    pub hash: String,
    /// Whether a build of it fails.
    pub is_broken: bool,
    /// The bytes, as base64; empty in states that were saved without them.
    #[serde(default)]
    pub content: String,
    #[serde(default)]
    pub start: Start,
}

/// A version of a template.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Version {
    pub id: Uuid,
    pub job_id: Uuid,
    pub organization_id: Uuid,
    /// `None` until a template is created from it.
    pub template_id: Option<Uuid>,
    pub name: String,
    pub message: String,
    pub file_id: Uuid,
    pub is_broken: bool,
    #[serde(default)]
    pub start: Start,
    /// Whether it was built by a daemon that is gone by now.
    #[serde(default)]
    pub is_built: bool,
    /// How long a daemon builds it.
    pub build_time: SignedDuration,
    pub tags: BTreeMap<String, String>,
    /// The variables of its source, as answers show them.
    #[serde(default)]
    pub variables: Vec<Value>,
    pub archived: bool,
    pub created_by: Uuid,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A template, also a deleted one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Template {
    pub id: Uuid,
    pub organization_id: Uuid,
    pub created_by: Uuid,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub active_version: Uuid,
    pub deleted: bool,
    /// Settings by the names that answers have.
    pub settings: Map<String, Value>,
    pub group_roles: BTreeMap<Uuid, String>,
    pub user_roles: BTreeMap<Uuid, String>,
}

impl Template {
    pub(crate) fn text(&self, setting: &str) -> &str {
        self.settings.get(setting).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.text("name")
    }
}

/// A licence that was uploaded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct License {
    pub id: i32,
    pub uuid: Uuid,
    pub uploaded_at: Timestamp,
    /// The text as it was uploaded, byte for byte.
    pub jwt: String,
    pub claims: Map<String, Value>,
}

/// What the licences covered when they were read last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Entitlements {
    pub features: BTreeMap<String, Feature>,
    pub warnings: Vec<String>,
    pub errors: Vec<String>,
    pub has_license: bool,
    pub trial: bool,
    pub require_telemetry: bool,
    pub refreshed_at: Timestamp,
}

/// A licensed feature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Feature {
    pub entitlement: Entitlement,
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_period: Option<UsagePeriod>,
}

/// How far a feature is covered; a later one is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entitlement {
    NotEntitled,
    GracePeriod,
    Entitled,
}

/// The time in which the use of a feature is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UsagePeriod {
    pub issued_at: Timestamp,
    pub end: Timestamp,
    pub start: Timestamp,
}

/// What an owner wrote about the dashboard.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Appearance {
    pub application_name: String,
    pub logo_url: String,
    pub announcement_banners: Vec<Value>,
}

/// An AI provider, also a deleted one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AiProvider {
    pub id: Uuid,
    pub provider_type: String,
    pub name: String,
    pub display_name: String,
    pub icon: String,
    pub enabled: bool,
    pub base_url: String,
    /// Oldest first.
    pub api_keys: Vec<AiProviderKey>,
    /// Those of Bedrock, with what is never shown.
    pub settings: Option<Map<String, Value>>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub deleted: bool,
}

/// A key of an AI provider. Its value is not kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AiProviderKey {
    pub id: Uuid,
    pub masked: String,
    pub created_at: Timestamp,
}

/// A model of Coder Agents.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelConfig {
    pub id: Uuid,
    pub ai_provider_id: Uuid,
    pub model: String,
    pub display_name: String,
    pub enabled: bool,
    pub is_default: bool,
    pub context_limit: i64,
    pub compression_threshold: i64,
    pub model_config: Map<String, Value>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A change, and who made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub time: Timestamp,
    /// The same id is in the answer's `X-Coder-Request-Id`.
    pub request_id: Uuid,
    /// `None` for the first user and for a login.
    pub user_id: Option<Uuid>,
    pub username: String,
    /// The program that sent the request, as it names itself.
    #[serde(default)]
    pub user_agent: String,
    pub method: String,
    pub path: String,
    pub status: u16,
    pub change: Change,
}

/// What was changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// For example `group`, as in Coder's audit log.
    pub resource_type: String,
    pub resource_id: String,
    /// The name of the resource.
    pub target: String,
    /// `Null` for a creation.
    pub before: Value,
    /// `Null` for a deletion.
    pub after: Value,
}
