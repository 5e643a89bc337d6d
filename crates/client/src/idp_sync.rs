//! The three documents that say what an identity provider's claims become: organizations, groups, roles.
//!
//! A write replaces the whole document, so every field is always sent. Their `Default`s are what coderd shows for a
//! document that was never written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::{null_as_default, null_lists_as_empty},
    route::{get, patch, routes},
};

/// Which claim puts people into which organizations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrganizationSync {
    /// The claim; empty means off.
    #[serde(default)]
    pub field: String,
    #[serde(default, deserialize_with = "null_lists_as_empty")]
    pub mapping: BTreeMap<String, Vec<Uuid>>,
    /// Spelled so in the document; only coderd's partial routes say `assign_default`.
    pub organization_assign_default: bool,
}

/// Which claim puts people into which groups of an organization.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupSync {
    /// The claim; empty means off.
    #[serde(default)]
    pub field: String,
    #[serde(default, deserialize_with = "null_lists_as_empty")]
    pub mapping: BTreeMap<String, Vec<Uuid>>,
    /// An RE2 expression; empty is one that matches everything, and not the same as none.
    pub regex_filter: Option<String>,
    #[serde(default)]
    pub auto_create_missing_groups: bool,
    /// From the server's environment, and lost with the first write. Sending it is refused.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing)]
    pub legacy_group_name_mapping: BTreeMap<String, String>,
}

/// Which claim gives people which roles in an organization.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoleSync {
    /// The claim; empty means off.
    #[serde(default)]
    pub field: String,
    #[serde(default, deserialize_with = "null_lists_as_empty")]
    pub mapping: BTreeMap<String, Vec<String>>,
}

impl Default for OrganizationSync {
    fn default() -> Self {
        Self { field: String::new(), mapping: BTreeMap::new(), organization_assign_default: true }
    }
}

routes! {
    // The PATCHes replace the whole document, so they are repeatable as a PUT is.
    ORGANIZATION_SYNC = get("/api/v2/settings/idpsync/organization").reads::<OrganizationSync>();
    PUT_ORGANIZATION_SYNC = patch("/api/v2/settings/idpsync/organization")
        .may_be_repeated().sends::<OrganizationSync>().reads::<OrganizationSync>();
    GROUP_SYNC = get("/api/v2/organizations/{organization}/settings/idpsync/groups").reads::<GroupSync>();
    PUT_GROUP_SYNC = patch("/api/v2/organizations/{organization}/settings/idpsync/groups")
        .may_be_repeated().sends::<GroupSync>().reads::<GroupSync>();
    ROLE_SYNC = get("/api/v2/organizations/{organization}/settings/idpsync/roles").reads::<RoleSync>();
    PUT_ROLE_SYNC = patch("/api/v2/organizations/{organization}/settings/idpsync/roles")
        .may_be_repeated().sends::<RoleSync>().reads::<RoleSync>();
}

impl Client {
    pub async fn organization_sync(&self) -> Result<OrganizationSync, Error> {
        self.call(&ORGANIZATION_SYNC).read().await
    }

    /// Replaces the document, and returns it as it is stored.
    pub async fn put_organization_sync(&self, wanted: &OrganizationSync) -> Result<OrganizationSync, Error> {
        self.call(&PUT_ORGANIZATION_SYNC).body(wanted).read().await
    }

    pub async fn group_sync(&self, organization: Uuid) -> Result<GroupSync, Error> {
        self.call(&GROUP_SYNC).parameter("organization", &organization).read().await
    }

    /// Replaces the document, and returns it as it is stored.
    pub async fn put_group_sync(&self, organization: Uuid, wanted: &GroupSync) -> Result<GroupSync, Error> {
        self.call(&PUT_GROUP_SYNC).parameter("organization", &organization).body(wanted).read().await
    }

    pub async fn role_sync(&self, organization: Uuid) -> Result<RoleSync, Error> {
        self.call(&ROLE_SYNC).parameter("organization", &organization).read().await
    }

    /// Replaces the document, and returns it as it is stored.
    pub async fn put_role_sync(&self, organization: Uuid, wanted: &RoleSync) -> Result<RoleSync, Error> {
        self.call(&PUT_ROLE_SYNC).parameter("organization", &organization).body(wanted).read().await
    }
}
