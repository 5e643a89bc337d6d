//! Who is in an organization, page by page.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{get, routes},
    users::UserRole,
};

const PAGE: usize = 500;
/// Far beyond any real organization; a server that never stops is left alone.
const MOST_PAGES: usize = 1000;

/// A member of an organization, by all three names that a manifest may use.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct MemberRef {
    pub user_id: Uuid,
    pub username: String,
    /// Empty for a service account.
    #[serde(default)]
    pub email: String,
    /// `active`, `dormant` or `suspended`.
    #[serde(default)]
    pub status: String,
    /// The roles that the member has in the organization.
    #[serde(default, deserialize_with = "null_as_default")]
    pub roles: Vec<UserRole>,
}

impl MemberRef {
    pub fn is_suspended(&self) -> bool {
        self.status == "suspended"
    }

    /// Whether the member has a role of the organization. Names of custom roles are the same in any case.
    pub fn has_role(&self, name: &str) -> bool {
        self.roles.iter().any(|it| it.name.eq_ignore_ascii_case(name))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct MemberPage {
    #[serde(default, deserialize_with = "null_as_default")]
    members: Vec<MemberRef>,
    count: usize,
}

routes! {
    LIST_MEMBERS = get("/api/v2/organizations/{organization}/paginated-members").reads::<MemberPage>();
}

impl Client {
    /// Reads every member of an organization.
    ///
    /// Members who come and go while the pages are read may be missing; nobody is in the list twice.
    pub async fn list_members(&self, organization: Uuid) -> Result<Vec<MemberRef>, Error> {
        let mut members = BTreeMap::new();
        let mut offset = 0;
        for _ in 0..MOST_PAGES {
            let page: MemberPage = self
                .call(&LIST_MEMBERS)
                .parameter("organization", &organization)
                .query("limit", &PAGE)
                .query("offset", &offset)
                .read()
                .await?;
            offset += page.members.len();
            let is_last = page.members.is_empty() || offset >= page.count;
            members.extend(page.members.into_iter().map(|it| (it.user_id, it)));
            if is_last {
                break;
            }
        }
        Ok(members.into_values().collect())
    }
}
