//! Versions of templates, and the jobs that build them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{get, patch, post, routes},
};

/// A version of a template. One that belongs to no template yet has the nil id there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct TemplateVersion {
    pub id: Uuid,
    #[serde(default)]
    pub template_id: Option<Uuid>,
    pub name: String,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub archived: bool,
    pub job: ProvisionerJob,
    /// Only while the job is pending.
    #[serde(default)]
    pub matched_provisioners: Option<MatchedProvisioners>,
}

/// How many daemons have the tags of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct MatchedProvisioners {
    #[serde(default)]
    pub count: i64,
    #[serde(default)]
    pub available: i64,
}

/// A job of provisioner daemons.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ProvisionerJob {
    pub id: Uuid,
    /// `pending`, `running`, `succeeded`, `canceling`, `canceled`, `failed` or `unknown`.
    pub status: String,
    /// `None` until a daemon takes the job.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    #[serde(default)]
    pub error: String,
    #[serde(default)]
    pub file_id: Option<Uuid>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: BTreeMap<String, String>,
    #[serde(default)]
    pub input: ProvisionerJobInput,
    #[serde(default)]
    pub metadata: ProvisionerJobMetadata,
}

/// What a job works on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ProvisionerJobInput {
    #[serde(default)]
    pub template_version_id: Option<Uuid>,
}

/// What a job belongs to, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ProvisionerJobMetadata {
    #[serde(default)]
    pub template_version_name: String,
    #[serde(default)]
    pub template_id: Option<Uuid>,
}

/// A line of the log of a job. It may have anything in it that Terraform printed.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ProvisionerJobLog {
    #[serde(default)]
    pub log_level: String,
    #[serde(default)]
    pub stage: String,
    #[serde(default)]
    pub output: String,
}

impl std::fmt::Debug for ProvisionerJobLog {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ProvisionerJobLog")
            .field("log_level", &self.log_level)
            .finish_non_exhaustive()
    }
}

/// A Terraform variable of a version that was built, with the value that it was built with.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct TemplateVersionVariable {
    pub name: String,
    /// Redacted where the variable is sensitive. It may be secret all the same.
    #[serde(default)]
    pub value: String,
    /// Redacted where the variable is sensitive.
    #[serde(default)]
    pub default_value: String,
    /// Whether the variable has no default.
    #[serde(default)]
    pub required: bool,
    #[serde(default)]
    pub sensitive: bool,
}

impl std::fmt::Debug for TemplateVersionVariable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TemplateVersionVariable").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A new version.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CreateTemplateVersion {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// `None` for the first version of a template that is created from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_id: Option<Uuid>,
    pub storage_method: StorageMethod,
    pub file_id: Uuid,
    pub provisioner: Provisioner,
    pub tags: BTreeMap<String, String>,
    pub user_variable_values: Vec<VariableValue>,
}

/// A change of a version. Its source cannot be changed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UpdateTemplateVersion<'a> {
    message: &'a str,
}

/// Where the source of a version is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StorageMethod {
    #[default]
    File,
}

/// What builds a version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Provisioner {
    #[default]
    Terraform,
}

/// The value of a Terraform variable, which may be secret.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct VariableValue {
    pub name: String,
    #[serde(serialize_with = "exposed")]
    #[schemars(with = "String")]
    pub value: SecretString,
}

fn exposed<S: Serializer>(value: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value.expose_secret())
}

routes! {
    // Not repeatable: versions without a template may have the same name.
    CREATE_VERSION = post("/api/v2/organizations/{organization}/templateversions")
        .sends::<CreateTemplateVersion>()
        .reads::<TemplateVersion>();
    VERSION = get("/api/v2/templateversions/{templateversion}").reads::<TemplateVersion>();
    // The same message twice is the same message.
    UPDATE_VERSION = patch("/api/v2/templateversions/{templateversion}")
        .may_be_repeated()
        .sends::<UpdateTemplateVersion<'static>>();
    VERSION_LOGS = get("/api/v2/templateversions/{templateversion}/logs").reads::<Vec<ProvisionerJobLog>>();
    VERSION_VARIABLES =
        get("/api/v2/templateversions/{templateversion}/variables").reads::<Vec<TemplateVersionVariable>>();
    ARCHIVE_VERSION = post("/api/v2/templateversions/{templateversion}/archive");
    UNARCHIVE_VERSION = post("/api/v2/templateversions/{templateversion}/unarchive");
    VERSION_BY_NAME = get("/api/v2/templates/{template}/versions/{templateversionname}");
    LIST_JOBS = get("/api/v2/organizations/{organization}/provisionerjobs").reads::<Vec<ProvisionerJob>>();
}

impl Client {
    pub async fn create_version(
        &self,
        organization: Uuid,
        wanted: &CreateTemplateVersion,
    ) -> Result<TemplateVersion, Error> {
        let mut call = self.call(&CREATE_VERSION).parameter("organization", &organization).body(wanted);
        for variable in &wanted.user_variable_values {
            call = call.carries(&variable.value);
        }
        call.read().await
    }

    pub async fn version(&self, version: Uuid) -> Result<TemplateVersion, Error> {
        self.call(&VERSION).parameter("templateversion", &version).read().await
    }

    /// A version of a template by its name, archived ones included.
    pub async fn version_by_name(&self, template: Uuid, name: &str) -> Result<TemplateVersion, Error> {
        let call = self.call(&VERSION_BY_NAME).parameter("template", &template);
        call.parameter("templateversionname", &name).read().await
    }

    /// Replaces the message of a version.
    pub async fn set_version_message(&self, version: Uuid, message: &str) -> Result<(), Error> {
        let body = UpdateTemplateVersion { message };
        self.call(&UPDATE_VERSION).parameter("templateversion", &version).body(&body).done().await
    }

    pub async fn version_logs(&self, version: Uuid) -> Result<Vec<ProvisionerJobLog>, Error> {
        self.call(&VERSION_LOGS).parameter("templateversion", &version).list().await
    }

    /// The variables of a version. Coder refuses this until the build has ended.
    pub async fn version_variables(&self, version: Uuid) -> Result<Vec<TemplateVersionVariable>, Error> {
        self.call(&VERSION_VARIABLES).parameter("templateversion", &version).list().await
    }

    /// Archives a version of a template that nothing uses. An archived one is refused.
    pub async fn archive_version(&self, version: Uuid) -> Result<(), Error> {
        self.call(&ARCHIVE_VERSION).parameter("templateversion", &version).done().await
    }

    /// Takes the archival of a version back. One that is not archived is refused.
    pub async fn unarchive_version(&self, version: Uuid) -> Result<(), Error> {
        self.call(&UNARCHIVE_VERSION).parameter("templateversion", &version).done().await
    }

    /// The latest jobs of an organization, newest first.
    pub async fn list_jobs(&self, organization: Uuid) -> Result<Vec<ProvisionerJob>, Error> {
        self.call(&LIST_JOBS).parameter("organization", &organization).list().await
    }
}
