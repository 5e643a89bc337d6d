//! Organizations. By id even a deleted one answers and takes writes, so whether one is there is read from the list.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{delete, get, patch, post, routes},
};

/// An organization that is there.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Organization {
    pub id: Uuid,
    pub name: String,
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub icon: String,
    #[serde(default)]
    pub is_default: bool,
    /// Empty on a Coder that is too old to have it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub default_org_member_roles: Vec<String>,
}

/// A new organization. The caller becomes its first member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CreateOrganization {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
}

/// A change; what is absent stays. An empty name or display name stays too, coderd cannot clear them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UpdateOrganization {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_org_member_roles: Option<Vec<String>>,
}

/// Who may share workspaces of an organization.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct WorkspaceSharingSettings {
    /// Whether the whole deployment was started without sharing; the owners are `none` then.
    #[serde(default)]
    pub sharing_globally_disabled: bool,
    /// `none`, `everyone` or `service_accounts`.
    #[serde(default)]
    pub shareable_workspace_owners: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UpdateWorkspaceSharing<'a> {
    shareable_workspace_owners: &'a str,
}

routes! {
    LIST_ORGANIZATIONS = get("/api/v2/organizations").reads::<Vec<Organization>>();
    CREATE_ORGANIZATION = post("/api/v2/organizations").sends::<CreateOrganization>().reads::<Organization>();
    UPDATE_ORGANIZATION = patch("/api/v2/organizations/{organization}")
        .may_be_repeated().sends::<UpdateOrganization>().reads::<Organization>();
    DELETE_ORGANIZATION = delete("/api/v2/organizations/{organization}");
    WORKSPACE_SHARING = get("/api/v2/organizations/{organization}/settings/workspace-sharing")
        .reads::<WorkspaceSharingSettings>();
    UPDATE_WORKSPACE_SHARING = patch("/api/v2/organizations/{organization}/settings/workspace-sharing")
        .may_be_repeated().sends::<UpdateWorkspaceSharing<'static>>().reads::<WorkspaceSharingSettings>();
}

impl Client {
    /// Reads every live organization that the account may see.
    pub async fn list_organizations(&self) -> Result<Vec<Organization>, Error> {
        self.call(&LIST_ORGANIZATIONS).list().await
    }

    pub async fn create_organization(&self, wanted: &CreateOrganization) -> Result<Organization, Error> {
        self.call(&CREATE_ORGANIZATION).body(wanted).read().await
    }

    pub async fn update_organization(
        &self,
        organization: Uuid,
        change: &UpdateOrganization,
    ) -> Result<Organization, Error> {
        self.call(&UPDATE_ORGANIZATION).parameter("organization", &organization).body(change).read().await
    }

    /// Deletes an organization; a conflict says what has to be deleted first.
    pub async fn delete_organization(&self, organization: Uuid) -> Result<(), Error> {
        self.call(&DELETE_ORGANIZATION).parameter("organization", &organization).done().await
    }

    pub async fn workspace_sharing(&self, organization: Uuid) -> Result<WorkspaceSharingSettings, Error> {
        self.call(&WORKSPACE_SHARING).parameter("organization", &organization).read().await
    }

    /// Sets whose workspaces can be shared. Existing shares that the value does not allow are deleted.
    pub async fn update_workspace_sharing(
        &self,
        organization: Uuid,
        owners: &str,
    ) -> Result<WorkspaceSharingSettings, Error> {
        let wanted = UpdateWorkspaceSharing { shareable_workspace_owners: owners };
        self.call(&UPDATE_WORKSPACE_SHARING)
            .parameter("organization", &organization)
            .body(&wanted)
            .read()
            .await
    }
}
