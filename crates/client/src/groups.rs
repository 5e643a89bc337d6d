//! Groups of an organization, with their members and quota.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{delete, get, patch, post, routes},
};

/// A group. The one called `Everyone` has the id of its organization.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Group {
    pub id: Uuid,
    pub organization_id: Uuid,
    pub name: String,
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub avatar_url: String,
    #[serde(default)]
    pub quota_allowance: i64,
    /// `user`, or `oidc` for one that the identity provider's groups made.
    #[serde(default)]
    pub source: String,
    /// Those whom the account may see.
    #[serde(default, deserialize_with = "null_as_default")]
    pub members: Vec<GroupMember>,
    /// All of them.
    #[serde(default)]
    pub total_member_count: i64,
}

/// Somebody in a group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct GroupMember {
    pub id: Uuid,
    pub username: String,
    #[serde(default)]
    pub email: String,
}

/// A new group, without members.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CreateGroup {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avatar_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_allowance: Option<i32>,
}

/// A change, all of it or nothing; what is absent stays.
///
/// Who is added must be a member of the organization and not yet of the group, or the whole change is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UpdateGroup {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avatar_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_allowance: Option<i32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add_users: Vec<Uuid>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_users: Vec<Uuid>,
}

routes! {
    LIST_GROUPS = get("/api/v2/organizations/{organization}/groups").reads::<Vec<Group>>();
    CREATE_GROUP = post("/api/v2/organizations/{organization}/groups").sends::<CreateGroup>().reads::<Group>();
    GROUP = get("/api/v2/groups/{group}").reads::<Group>();
    // Not repeatable: a member who is added twice fails the whole call.
    UPDATE_GROUP = patch("/api/v2/groups/{group}").sends::<UpdateGroup>().reads::<Group>();
    DELETE_GROUP = delete("/api/v2/groups/{group}");
}

impl Client {
    /// Reads every group of an organization with its members. Heavy for the server: read once and share.
    pub async fn list_groups(&self, organization: Uuid) -> Result<Vec<Group>, Error> {
        self.call(&LIST_GROUPS).parameter("organization", &organization).list().await
    }

    /// Reads a group, whichever organization it is in.
    pub async fn group(&self, group: Uuid) -> Result<Group, Error> {
        self.call(&GROUP).parameter("group", &group).read().await
    }

    pub async fn create_group(&self, organization: Uuid, wanted: &CreateGroup) -> Result<Group, Error> {
        self.call(&CREATE_GROUP).parameter("organization", &organization).body(wanted).read().await
    }

    pub async fn update_group(&self, group: Uuid, change: &UpdateGroup) -> Result<Group, Error> {
        self.call(&UPDATE_GROUP).parameter("group", &group).body(change).read().await
    }

    pub async fn delete_group(&self, group: Uuid) -> Result<(), Error> {
        self.call(&DELETE_GROUP).parameter("group", &group).done().await
    }
}
