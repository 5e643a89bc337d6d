//! Workspaces, as far as their template and their owner are concerned.

use schemars::JsonSchema;
use serde::Deserialize;
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{get, routes},
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

routes! {
    LIST_WORKSPACES = get("/api/v2/workspaces").reads::<Workspaces>();
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
}
