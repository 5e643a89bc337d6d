//! Templates of an organization: metadata, access, and which version is active.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{delete, get, patch, post, routes},
};

/// A template.
#[expect(clippy::struct_excessive_bools, reason = "the form of the answer is coderd's")]
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Template {
    pub id: Uuid,
    pub organization_id: Uuid,
    pub name: String,
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub icon: String,
    pub active_version_id: Uuid,
    #[serde(default)]
    pub updated_at: String,
    #[serde(default)]
    pub deprecated: bool,
    #[serde(default)]
    pub deprecation_message: String,
    #[serde(default)]
    pub default_ttl_ms: i64,
    #[serde(default)]
    pub activity_bump_ms: i64,
    #[serde(default)]
    pub time_til_autostop_notify_ms: i64,
    #[serde(default)]
    pub autostop_requirement: AutostopRequirement,
    #[serde(default)]
    pub autostart_requirement: AutostartRequirement,
    #[serde(default)]
    pub allow_user_autostart: bool,
    #[serde(default)]
    pub allow_user_autostop: bool,
    #[serde(default)]
    pub allow_user_cancel_workspace_jobs: bool,
    #[serde(default)]
    pub failure_ttl_ms: i64,
    #[serde(default)]
    pub time_til_dormant_ms: i64,
    #[serde(default)]
    pub time_til_dormant_autodelete_ms: i64,
    #[serde(default)]
    pub require_active_version: bool,
    #[serde(default)]
    pub max_port_share_level: String,
    #[serde(default)]
    pub cors_behavior: String,
    #[serde(default)]
    pub use_classic_parameter_flow: bool,
}

/// Days on which workspaces are stopped, every so many weeks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AutostopRequirement {
    #[serde(default, deserialize_with = "null_as_default")]
    pub days_of_week: Vec<String>,
    #[serde(default)]
    pub weeks: i64,
}

/// Days on which workspaces may start by themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AutostartRequirement {
    #[serde(default, deserialize_with = "null_as_default")]
    pub days_of_week: Vec<String>,
}

/// A new template with its first version. Two durations have other names here than in [`UpdateTemplate`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CreateTemplate {
    pub name: String,
    pub template_version_id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_ttl_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_bump_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_til_autostop_notify_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autostop_requirement: Option<AutostopRequirement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autostart_requirement: Option<AutostartRequirement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_user_autostart: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_user_autostop: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_user_cancel_workspace_jobs: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_ttl_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dormant_ttl_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_ttl_ms: Option<i64>,
    /// Whether the group `Everyone` does not get the right to use the template.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disable_everyone_group_access: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_active_version: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_port_share_level: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cors_behavior: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_use_classic_parameter_flow: Option<bool>,
}

/// A change of a template; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UpdateTemplate {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_ttl_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_bump_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_til_autostop_notify_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autostop_requirement: Option<AutostopRequirement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autostart_requirement: Option<AutostartRequirement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_user_autostart: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_user_autostop: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_user_cancel_workspace_jobs: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_ttl_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_til_dormant_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_til_dormant_autodelete_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_active_version: Option<bool>,
    /// A message deprecates the template, an empty one takes that back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_port_share_level: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cors_behavior: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_classic_parameter_flow: Option<bool>,
}

/// The version that new workspaces get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
struct ActiveVersion {
    id: Uuid,
}

/// Who may use and administer a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct TemplateAccess {
    #[serde(default, deserialize_with = "null_as_default")]
    pub users: Vec<TemplateUser>,
    /// Coder's key is in the singular.
    #[serde(default, rename = "group", deserialize_with = "null_as_default")]
    pub groups: Vec<TemplateGroup>,
}

/// A user with a role on a template.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct TemplateUser {
    pub id: Uuid,
    pub username: String,
    #[serde(default)]
    pub email: String,
    /// `use` or `admin`.
    pub role: String,
}

/// A group with a role on a template.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct TemplateGroup {
    pub id: Uuid,
    pub name: String,
    /// Not always the organization of the template.
    pub organization_id: Uuid,
    pub role: String,
}

/// A change of roles; an empty role takes it away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UpdateTemplateAccess {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub user_perms: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub group_perms: BTreeMap<String, String>,
}

routes! {
    LIST_TEMPLATES = get("/api/v2/organizations/{organization}/templates").reads::<Vec<Template>>();
    CREATE_TEMPLATE =
        post("/api/v2/organizations/{organization}/templates").sends::<CreateTemplate>().reads::<Template>();
    TEMPLATE = get("/api/v2/templates/{template}").reads::<Template>();
    UPDATE_TEMPLATE = patch("/api/v2/templates/{template}").sends::<UpdateTemplate>().reads::<Template>();
    DELETE_TEMPLATE = delete("/api/v2/templates/{template}");
    PROMOTE_VERSION = patch("/api/v2/templates/{template}/versions").may_be_repeated().sends::<ActiveVersion>();
    TEMPLATE_ACCESS = get("/api/v2/templates/{template}/acl").reads::<TemplateAccess>();
    UPDATE_TEMPLATE_ACCESS =
        patch("/api/v2/templates/{template}/acl").may_be_repeated().sends::<UpdateTemplateAccess>();
}

impl Client {
    /// Reads every template of an organization: Coder lists the deprecated ones only on request, and then no others.
    pub async fn list_templates(&self, organization: Uuid) -> Result<Vec<Template>, Error> {
        let call = || self.call(&LIST_TEMPLATES).parameter("organization", &organization);
        let mut templates: Vec<Template> = call().list().await?;
        let deprecated: Vec<Template> = call().query("q", &"deprecated:true").list().await?;
        let is_new = |it: &Template| !templates.iter().any(|known| known.id == it.id);
        let deprecated: Vec<Template> = deprecated.into_iter().filter(is_new).collect();
        templates.extend(deprecated);
        Ok(templates)
    }

    pub async fn template(&self, template: Uuid) -> Result<Template, Error> {
        self.call(&TEMPLATE).parameter("template", &template).read().await
    }

    /// Creates a template from a version, whose build coderd does not wait for.
    pub async fn create_template(
        &self,
        organization: Uuid,
        wanted: &CreateTemplate,
    ) -> Result<Template, Error> {
        self.call(&CREATE_TEMPLATE).parameter("organization", &organization).body(wanted).read().await
    }

    pub async fn update_template(&self, template: Uuid, change: &UpdateTemplate) -> Result<Template, Error> {
        self.call(&UPDATE_TEMPLATE).parameter("template", &template).body(change).read().await
    }

    pub async fn delete_template(&self, template: Uuid) -> Result<(), Error> {
        self.call(&DELETE_TEMPLATE).parameter("template", &template).done().await
    }

    /// Makes a version the active one. coderd refuses a version that was not built.
    pub async fn promote_version(&self, template: Uuid, version: Uuid) -> Result<(), Error> {
        let body = ActiveVersion { id: version };
        self.call(&PROMOTE_VERSION).parameter("template", &template).body(&body).done().await
    }

    pub async fn template_access(&self, template: Uuid) -> Result<TemplateAccess, Error> {
        self.call(&TEMPLATE_ACCESS).parameter("template", &template).read().await
    }

    pub async fn update_template_access(
        &self,
        template: Uuid,
        change: &UpdateTemplateAccess,
    ) -> Result<(), Error> {
        self.call(&UPDATE_TEMPLATE_ACCESS).parameter("template", &template).body(change).done().await
    }
}
