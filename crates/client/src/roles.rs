//! The roles that members of an organization can have: Coder's own and custom ones.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{delete_by_name, get, post, put, routes},
};

/// A role of an organization.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct AssignableRole {
    pub name: String,
    #[serde(default)]
    pub display_name: String,
    /// Whether it is one of Coder's own.
    #[serde(default)]
    pub built_in: bool,
    /// Whether the account may give it to others.
    #[serde(default)]
    pub assignable: bool,
    #[serde(default, deserialize_with = "null_as_default")]
    pub organization_permissions: Vec<Permission>,
}

/// One action on one type of resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Permission {
    /// Whether the action is forbidden instead.
    #[serde(default)]
    pub negate: bool,
    pub resource_type: String,
    pub action: String,
}

/// A custom role as it is to be. What is left out is emptied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WriteRole {
    pub name: String,
    pub display_name: String,
    /// The only ones that a custom role can have.
    pub organization_permissions: Vec<Permission>,
}

/// A custom role as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct WrittenRole {
    pub name: String,
    #[serde(default)]
    pub display_name: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub organization_permissions: Vec<Permission>,
}

routes! {
    LIST_ROLES = get("/api/v2/organizations/{organization}/members/roles").reads::<Vec<AssignableRole>>();
    CREATE_ROLE = post("/api/v2/organizations/{organization}/members/roles").sends::<WriteRole>().reads::<WrittenRole>();
    UPDATE_ROLE = put("/api/v2/organizations/{organization}/members/roles").sends::<WriteRole>().reads::<WrittenRole>();
    DELETE_ROLE = delete_by_name("/api/v2/organizations/{organization}/members/roles/{roleName}");
}

impl Client {
    /// Reads the roles of an organization, in the order of their names: coderd's own order is random.
    pub async fn list_organization_roles(&self, organization: Uuid) -> Result<Vec<AssignableRole>, Error> {
        let call = self.call(&LIST_ROLES).parameter("organization", &organization);
        let mut roles: Vec<AssignableRole> = call.list().await?;
        roles.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(roles)
    }

    /// Makes a custom role. A conflict where one of that name is there, in any case of its letters.
    pub async fn create_role(&self, organization: Uuid, wanted: &WriteRole) -> Result<WrittenRole, Error> {
        self.call(&CREATE_ROLE).parameter("organization", &organization).body(wanted).read().await
    }

    /// Replaces a custom role. Permissions that this Coder does not know are left out of the answer, without a word.
    pub async fn update_role(&self, organization: Uuid, wanted: &WriteRole) -> Result<WrittenRole, Error> {
        self.call(&UPDATE_ROLE).parameter("organization", &organization).body(wanted).read().await
    }

    /// Deletes a custom role, and takes it from everybody who has it.
    pub async fn delete_role(&self, organization: Uuid, name: &str) -> Result<(), Error> {
        let call = self.call(&DELETE_ROLE).parameter("organization", &organization);
        call.parameter("roleName", &name).done().await
    }
}
