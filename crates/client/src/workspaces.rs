//! Workspaces: those that keep their template and their owner, and throwaway ones with their builds and agents.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{get, patch, post, routes},
    template_versions::{MatchedProvisioners, ProvisionerJob, ProvisionerJobLog},
};

/// How many workspaces of an owner are named.
const NAMED: u32 = 20;

/// A workspace.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Workspace {
    pub id: Uuid,
    pub name: String,
    #[serde(default)]
    pub owner_name: String,
    pub template_id: Uuid,
    /// `None` where Coder does not say.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    #[serde(default)]
    pub latest_build: Option<WorkspaceBuild>,
}

/// A build of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct WorkspaceBuild {
    pub id: Uuid,
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    /// `start`, `stop` or `delete`.
    #[serde(default)]
    pub transition: String,
    /// `None` where Coder does not say.
    #[serde(default)]
    pub template_version_id: Option<Uuid>,
    pub job: ProvisionerJob,
    #[serde(default, deserialize_with = "null_as_default")]
    pub resources: Vec<WorkspaceResource>,
    /// How many daemons have the tags of the job.
    #[serde(default)]
    pub matched_provisioners: Option<MatchedProvisioners>,
}

/// A resource of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct WorkspaceResource {
    #[serde(default, deserialize_with = "null_as_default")]
    pub agents: Vec<WorkspaceAgent>,
}

/// An agent of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct WorkspaceAgent {
    pub id: Uuid,
    #[serde(default)]
    pub name: String,
    /// `connecting`, `connected`, `disconnected` or `timeout`.
    #[serde(default)]
    pub status: String,
    /// `created`, `starting`, `start_timeout`, `start_error`, `ready`, `shutting_down`, `shutdown_timeout`, `shutdown_error` or
    /// `off`.
    #[serde(default)]
    pub lifecycle_state: String,
}

/// A page of workspaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Workspaces {
    #[serde(default, deserialize_with = "null_as_default")]
    pub workspaces: Vec<Workspace>,
    /// The number of all that match.
    #[serde(default)]
    pub count: i64,
}

/// A workspace to be made of a version of a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CreateWorkspace {
    pub name: String,
    pub template_version_id: Uuid,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rich_parameter_values: Vec<WorkspaceParameter>,
}

/// The value of a parameter of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WorkspaceParameter {
    pub name: String,
    pub value: String,
}

/// A build to be made of a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CreateWorkspaceBuild {
    pub transition: Transition,
    /// Whether a deletion forgets what the workspace has provisioned.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub orphan: bool,
}

/// What a build does to a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transition {
    Delete,
}

routes! {
    LIST_WORKSPACES = get("/api/v2/workspaces").reads::<Workspaces>();
    READ_WORKSPACE = get("/api/v2/workspaces/{workspace}").reads::<Workspace>();
    // Names are unique among the workspaces of an owner: a second one is a conflict.
    CREATE_WORKSPACE = post("/api/v2/organizations/{organization}/members/{user}/workspaces")
        .sends::<CreateWorkspace>()
        .reads::<Workspace>();
    CREATE_BUILD = post("/api/v2/workspaces/{workspace}/builds")
        .sends::<CreateWorkspaceBuild>()
        .reads::<WorkspaceBuild>();
    BUILD_LOGS = get("/api/v2/workspacebuilds/{workspacebuild}/logs").reads::<Vec<ProvisionerJobLog>>();
    CANCEL_BUILD = patch("/api/v2/workspacebuilds/{workspacebuild}/cancel");
}

impl Client {
    /// Reads the first workspaces that an account owns, as far as the caller may see them.
    pub async fn list_workspaces_of(&self, username: &str) -> Result<Vec<Workspace>, Error> {
        let query = format!("owner:{username}");
        let call = self.call(&LIST_WORKSPACES).query("q", &query).query("limit", &NAMED);
        Ok(call.read::<Workspaces>().await?.workspaces)
    }

    /// The first workspaces of the templates of that name in an organization, and how many there are.
    pub async fn workspaces_of(
        &self,
        organization: Uuid,
        template: &str,
        limit: u32,
    ) -> Result<Workspaces, Error> {
        let query = format!("template:{template} organization:{organization}");
        self.call(&LIST_WORKSPACES).query("q", &query).query("limit", &limit).read().await
    }

    /// Reads the workspaces of an organization, whoever owns them, whose names contain this. Deleted ones are not listed.
    pub async fn workspaces_named(&self, organization: Uuid, part: &str) -> Result<Vec<Workspace>, Error> {
        let query = format!("name:{part} organization:{organization}");
        let call = self.call(&LIST_WORKSPACES).query("q", &query).query("limit", &NAMED);
        Ok(call.read::<Workspaces>().await?.workspaces)
    }

    /// Reads a workspace. The error says whether it [was deleted](Error::is_deleted); it is missing also where the caller may not
    /// see it.
    pub async fn workspace(&self, id: Uuid) -> Result<Workspace, Error> {
        self.call(&READ_WORKSPACE).parameter("workspace", &id).read().await
    }

    /// Makes a workspace for a member of an organization, and begins to start it. A conflict where the owner has one of that
    /// name.
    pub async fn create_workspace(
        &self,
        organization: Uuid,
        owner: &str,
        wanted: &CreateWorkspace,
    ) -> Result<Workspace, Error> {
        let call = self.call(&CREATE_WORKSPACE).parameter("organization", &organization);
        call.parameter("user", &owner).body(wanted).read().await
    }

    /// Begins to delete a workspace. A conflict while another build is under way.
    pub async fn delete_workspace(&self, workspace: Uuid, orphan: bool) -> Result<WorkspaceBuild, Error> {
        let wanted = CreateWorkspaceBuild { transition: Transition::Delete, orphan };
        self.call(&CREATE_BUILD).parameter("workspace", &workspace).body(&wanted).read().await
    }

    /// Cancels a build that is under way. One that has ended is refused.
    pub async fn cancel_workspace_build(&self, build: Uuid) -> Result<(), Error> {
        self.call(&CANCEL_BUILD).parameter("workspacebuild", &build).done().await
    }

    pub async fn workspace_build_logs(&self, build: Uuid) -> Result<Vec<ProvisionerJobLog>, Error> {
        self.call(&BUILD_LOGS).parameter("workspacebuild", &build).list().await
    }
}
