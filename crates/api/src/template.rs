//! `CoderTemplate`: a template of an organization, with the version that is published and promoted.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema, core::Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    DEFAULT_ORGANIZATION,
    app_state::CommonStatus,
    key,
    policy::Policy,
    reference::{ControlPlaneRef, SecretKeyRef},
    rules, schema,
    status::Status,
};

/// A template of an organization. A changed source is published as a new version and promoted once the version was built;
/// no version is ever changed. Fields that are absent are not changed.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderTemplate",
    doc = "A template of an organization",
    namespaced,
    status = "CoderTemplateStatus",
    shortname = "ctemplate",
    printcolumn = r#"{"name":"Organization","type":"string","jsonPath":".spec.organization"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.version.name"}"#,
    category = "coder",
    selectable = ".spec.controlPlaneRef.name",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Drift","type":"string","jsonPath":".status.conditions[?(@.type==\"Drifted\")].status"}"#,
    printcolumn = r#"{"name":"Control plane","type":"string","priority":1,"jsonPath":".spec.controlPlaneRef.name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    validation = rules::metadata_name(32)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::immutable_organization(), validation = versions_have_a_source())]
pub struct CoderTemplateSpec {
    /// The control plane. Immutable.
    #[x_kube(validation = rules::immutable_control_plane())]
    pub control_plane_ref: ControlPlaneRef,
    #[serde(flatten)]
    pub policy: Policy,
    /// The organization, by name. Defaults to `default`, the default organization whatever its name. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = rules::name())]
    pub organization: Option<String>,
    /// The template's name. Defaults to `metadata.name`. A change renames the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = rules::name(), validation = rules::not_reserved())]
    pub name: Option<String>,
    /// The display name; empty removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::display_name())]
    pub display_name: Option<String>,
    /// The description, at most 127 characters; empty removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 127))]
    pub description: Option<String>,
    /// The path or URL of an image, as `/icon/k8s.png`; empty removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// The source of the active version. Absent means that versions are published elsewhere, and that the template has to
    /// exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<TemplateSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<TemplateVersionSpec>,
    /// The values of Terraform variables. The list is complete: a variable that is absent has its default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub variables: Option<Vec<TemplateVariable>>,
    /// The tags of the daemons that build the version and its workspaces. A change publishes a version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::tags")]
    #[x_kube(
        validation = key::tags_have_values(),
        validation = key::tags_are_of_the_organization(),
        validation = key::tags_have_no_owner()
    )]
    pub provisioner_tags: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acl: Option<TemplateAcl>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<TemplateSchedule>,
    /// Whether workspaces start only with the active version. Needs a licence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_active_version: Option<bool>,
    /// Whether users may cancel the builds of their workspaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_user_cancel_workspace_jobs: Option<bool>,
    /// How far users may share ports of their workspaces. A lower level removes shares that exist. Needs a licence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_port_share_level: Option<PortShareLevel>,
    /// How requests of other origins to shared ports are treated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cors_behavior: Option<CorsBehavior>,
    /// Whether workspaces ask for parameters as Coder did before dynamic parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classic_parameter_flow: Option<bool>,
    /// A message that deprecates the template; empty takes the deprecation back. Needs a licence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<String>,
}

/// Where the files of a version are. Exactly one of the fields is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = one_source())]
pub struct TemplateSource {
    /// The files themselves, by their paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::files")]
    pub files: Option<BTreeMap<String, String>>,
    /// A ConfigMap in the same namespace. Its keys are the paths, with `__` in place of `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ConfigMapRef>,
    /// A directory, relative to the file of the manifest. Only for the command line: the controller refuses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    #[x_kube(validation = relative_directory())]
    pub directory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<TemplateArchive>,
}

/// An archive on another host. It is read only while no version of it is published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateArchive {
    /// The address of a tar archive with the files at its root, at most 8 MiB, which may be compressed with gzip. The controllers read
    /// https addresses only, and none of the machine, of its link or of a metadata service, also where a redirect names it.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(validation = archive_url())]
    pub url: String,
    /// The SHA-256 digest of the file, as `sha256:` and 64 hexadecimal digits. A file with another one is refused.
    #[schemars(length(max = 71), regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub digest: String,
    /// A Secret with a bearer token for the host of `url`; no host that a redirect names gets it. The key defaults to `token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretKeyRef>,
}

/// A ConfigMap in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapRef {
    /// The name of a ConfigMap in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// How the source is published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateVersionSpec {
    /// The name of the version. Absent means a name that is derived from the content. A version of that name with other
    /// content is not replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = version_name())]
    pub name: Option<String>,
    /// The message of the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
    /// Whether the version is promoted once it was built. Defaults to true. The first version of a template always is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activate: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<TemplateVersionTest>,
}

/// A throwaway workspace of a version that was built. The version is promoted once the workspace came up, with every agent
/// connected and ready, and was deleted again. Absent means that a version that was built is promoted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateVersionTest {
    /// The owner of the workspace, by user name: an active service account of the organization without roles. Terraform gets
    /// a token of the owner, so that an account with more rights, the account of a person and a dormant account are refused.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = rules::name())]
    pub owner: String,
    /// The values of the workspace's parameters. A parameter that is absent has its default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::parameters")]
    pub parameters: Option<BTreeMap<String, String>>,
    /// How long the workspace may take until every agent is ready, from its creation on. Defaults to `15m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub timeout: Option<String>,
}

/// The value of a Terraform variable. Exactly one of `value` and `valueFrom` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = one_value())]
pub struct TemplateVariable {
    /// The variable's name.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// The value, in the open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<VariableSource>,
}

/// Where the value of a variable is. A change of the Secret publishes a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariableSource {
    pub secret_key_ref: VariableSecretRef,
}

/// An entry of a Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariableSecretRef {
    /// The name of a Secret in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// Who may use and administer the template. Needs a licence. Each map is complete; absent means that it is managed elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateAcl {
    /// Groups of the organization, by name. A new template can be used by `Everyone`, unless this is set without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::template_roles")]
    pub groups: Option<BTreeMap<String, TemplateRole>>,
    /// Members of the organization, by user name or e-mail address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::template_roles")]
    pub users: Option<BTreeMap<String, TemplateRole>>,
}

/// A role on a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TemplateRole {
    Use,
    Admin,
}

/// When workspaces start, stop and are deleted. Durations are as `8h` or `90m`; `0s` switches off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateSchedule {
    /// After how long a workspace stops, unless its owner says otherwise.
    #[serde(default, rename = "defaultTTL", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub default_ttl: Option<String>,
    /// By how much activity puts off the stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub activity_bump: Option<String>,
    /// After how long a workspace whose start failed is stopped. Needs a licence.
    #[serde(default, rename = "failureTTL", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub failure_ttl: Option<String>,
    /// After how long without use a workspace becomes dormant. Needs a licence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub dormant_after: Option<String>,
    /// After how long a dormant workspace is deleted. Needs a licence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub delete_dormant_after: Option<String>,
    /// How long before a stop its owner is notified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub notify_before_autostop: Option<String>,
    /// The days on which workspaces are stopped. Needs a licence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autostop: Option<TemplateAutostop>,
    /// The days on which workspaces may start by themselves. Needs a licence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autostart: Option<TemplateAutostart>,
    /// Whether users may let their workspaces start by themselves. Needs a licence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_user_autostart: Option<bool>,
    /// Whether users may choose when their workspaces stop. Needs a licence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_user_autostop: Option<bool>,
}

/// Days on which workspaces are stopped, every so many weeks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateAutostop {
    /// The days; none means that workspaces are not stopped.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(max = 7))]
    pub days: Vec<Weekday>,
    /// Every how many weeks. Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16))]
    pub weeks: Option<i32>,
}

/// Days on which workspaces may start by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateAutostart {
    /// The days; none means that no workspace starts by itself.
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[schemars(length(max = 7))]
    pub days: Vec<Weekday>,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// How far ports may be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortShareLevel {
    Owner,
    Organization,
    Authenticated,
    Public,
}

/// How requests of other origins are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CorsBehavior {
    Simple,
    Passthru,
}

/// The observed state of the template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoderTemplateStatus {
    #[serde(flatten)]
    pub common: Status,
    /// The version that the source makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<TemplateVersionState>,
    /// The id of the active version, unless a person has promoted it while the manifest declares another one.
    #[serde(default, rename = "activeVersionID", skip_serializing_if = "Option::is_none")]
    pub active_version_id: Option<String>,
    /// The last test of a version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<TemplateTestState>,
}

/// The test of a version by a throwaway workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateTestState {
    /// The name of the workspace.
    pub workspace: String,
    /// The user name of its owner.
    pub owner: String,
    /// The id of the workspace. Absent until Coder has answered to its creation.
    #[serde(default, rename = "workspaceID", skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<String>,
    /// The id of the version.
    pub version: String,
    /// `passed` or `failed`. Absent while the test goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Why the test failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether Coder has deleted the workspace. Absent from before its creation until its deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<bool>,
}

impl TemplateTestState {
    /// Whether there may be a workspace to delete.
    pub fn is_open(&self) -> bool {
        self.deleted != Some(true)
    }
}

/// A version that was published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateVersionState {
    /// The name of the version.
    pub name: String,
    /// The id of the version. Absent until it is published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The state of its build, in Coder's words: `pending`, `running`, `succeeded`, `failed`, `canceled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// The digest of source, variables and tags. Values of Secrets count with a keyed fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

impl CommonStatus for CoderTemplateStatus {
    fn common(&self) -> &Status {
        &self.common
    }

    fn set_common(&mut self, common: Status) {
        self.common = common;
    }
}

impl CoderTemplate {
    /// The template's name in Coder.
    pub fn remote_name(&self) -> &str {
        self.spec.name.as_deref().or(self.metadata.name.as_deref()).unwrap_or_default()
    }

    /// The organization's name, or `default` for the default one.
    pub fn organization(&self) -> &str {
        self.spec.organization.as_deref().unwrap_or(DEFAULT_ORGANIZATION)
    }
}

fn one_source() -> Rule {
    Rule::new(
        "[has(self.files), has(self.configMapRef), has(self.directory), has(self.archive)].filter(it, it).size() == 1",
    )
    .message("must have exactly one of files, configMapRef, directory and archive")
}

fn archive_url() -> Rule {
    Rule::new("self.matches('^https?://[^/?#@[:space:]]+([/?#].*)?$')").message(
        "must be an http or https address without a user in it, as `https://files.example.com/x.tar.gz`",
    )
}

fn relative_directory() -> Rule {
    Rule::new("!self.startsWith('/')").message("must be relative to the file of the manifest")
}

fn one_value() -> Rule {
    Rule::new("has(self.value) != has(self.valueFrom)")
        .message("must have exactly one of value and valueFrom")
}

fn version_name() -> Rule {
    Rule::new("self.matches('^[a-zA-Z0-9]+([_.-][a-zA-Z0-9]+)*$')").message(
        "must be letters and digits with single dots, hyphens or underscores between them, as in `v1.4.0`",
    )
}

fn versions_have_a_source() -> Rule {
    Rule::new("has(self.source) || !(has(self.version) || has(self.variables) || has(self.provisionerTags))")
        .message("version, variables and provisionerTags are those of a version that this manifest publishes: set source, or remove them")
        .field_path(".source")
}
