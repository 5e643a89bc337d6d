//! The roles that members of an organization can have: Coder's own and custom ones.

use schemars::JsonSchema;
use serde::Deserialize;
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    route::{get, routes},
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
}

routes! {
    LIST_ROLES = get("/api/v2/organizations/{organization}/members/roles").reads::<Vec<AssignableRole>>();
}

impl Client {
    /// Reads the roles of an organization, in the order of their names: coderd's own order is random.
    pub async fn list_organization_roles(&self, organization: Uuid) -> Result<Vec<AssignableRole>, Error> {
        let call = self.call(&LIST_ROLES).parameter("organization", &organization);
        let mut roles: Vec<AssignableRole> = call.list().await?;
        roles.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(roles)
    }
}
