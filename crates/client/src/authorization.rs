//! What the account of the token may do.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    route::{post, routes},
};

/// Questions, each with a name that the answer repeats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AuthorizationRequest {
    pub checks: BTreeMap<String, AuthorizationCheck>,
}

/// Whether the account may do something with a set of objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AuthorizationCheck {
    pub object: AuthorizationObject,
    pub action: CheckedAction,
}

/// A set of objects, whoever owns them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AuthorizationObject {
    pub resource_type: CheckedResource,
    /// `None` for the objects of all organizations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization_id: Option<Uuid>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckedResource {
    Workspace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckedAction {
    Read,
}

routes! {
    // The request changes nothing.
    CHECK = post("/api/v2/authcheck")
        .may_be_repeated()
        .sends::<AuthorizationRequest>()
        .reads::<BTreeMap<String, bool>>();
}

impl Client {
    /// Whether the account may read every workspace of an organization, or of all of them.
    pub async fn may_read_workspaces(&self, organization_id: Option<Uuid>) -> Result<bool, Error> {
        let name = "workspaces";
        let object = AuthorizationObject { resource_type: CheckedResource::Workspace, organization_id };
        let check = AuthorizationCheck { object, action: CheckedAction::Read };
        let request = AuthorizationRequest { checks: BTreeMap::from([(name.to_owned(), check)]) };
        let answer: BTreeMap<String, bool> = self.call(&CHECK).body(&request).read().await?;
        Ok(answer.get(name).copied().unwrap_or(false))
    }
}
