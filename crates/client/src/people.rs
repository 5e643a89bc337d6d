//! What is managed of accounts: the list of all of them, names, roles, suspension, membership.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    client::Client,
    error::Error,
    null::null_as_default,
    route::{delete, get, post, put, routes},
    users::User,
};

const PAGE: usize = 500;
/// Far beyond any real deployment; a server that never stops is left alone.
const MOST_PAGES: usize = 1000;

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct UserPage {
    #[serde(default, deserialize_with = "null_as_default")]
    users: Vec<User>,
    count: usize,
}

/// The profile of an account. All of it is replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UpdateProfile {
    pub username: String,
    pub name: String,
    pub avatar_url: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UpdateRoles<'a> {
    roles: &'a [String],
}

routes! {
    LIST_USERS = get("/api/v2/users").reads::<UserPage>();
    UPDATE_PROFILE = put("/api/v2/users/{user}/profile").sends::<UpdateProfile>().reads::<User>();
    UPDATE_USER_ROLES = put("/api/v2/users/{user}/roles").sends::<UpdateRoles<'static>>().reads::<User>();
    SUSPEND_USER = put("/api/v2/users/{user}/status/suspend").reads::<User>();
    ACTIVATE_USER = put("/api/v2/users/{user}/status/activate").reads::<User>();
    // A second one is refused: the user is a member already.
    ADD_MEMBER = post("/api/v2/organizations/{organization}/members/{user}");
    REMOVE_MEMBER = delete("/api/v2/organizations/{organization}/members/{user}");
}

impl Client {
    /// Reads every account that is not deleted. Accounts of the system itself are not among them.
    ///
    /// Accounts that come and go while the pages are read may be missing; none is in the list twice.
    pub async fn list_users(&self) -> Result<Vec<User>, Error> {
        let mut users = BTreeMap::new();
        let mut offset = 0;
        for _ in 0..MOST_PAGES {
            let call = self.call(&LIST_USERS).query("limit", &PAGE).query("offset", &offset);
            let page: UserPage = call.read().await?;
            offset += page.users.len();
            let is_last = page.users.is_empty() || offset >= page.count;
            users.extend(page.users.into_iter().map(|it| (it.id, it)));
            if is_last {
                break;
            }
        }
        Ok(users.into_values().collect())
    }

    /// Replaces the profile of an account. The picture of an account from an identity provider stays.
    pub async fn update_profile(&self, id: Uuid, wanted: &UpdateProfile) -> Result<User, Error> {
        self.call(&UPDATE_PROFILE).parameter("user", &id).body(wanted).read().await
    }

    /// Replaces the roles that an account has in the whole deployment. `member` is implied, and must not be sent.
    pub async fn update_user_roles(&self, id: Uuid, roles: &[String]) -> Result<User, Error> {
        self.call(&UPDATE_USER_ROLES).parameter("user", &id).body(&UpdateRoles { roles }).read().await
    }

    /// Suspends an account, which must not be an owner.
    pub async fn suspend_user(&self, id: Uuid) -> Result<User, Error> {
        self.call(&SUSPEND_USER).parameter("user", &id).read().await
    }

    /// Makes a suspended account active again.
    pub async fn activate_user(&self, id: Uuid) -> Result<User, Error> {
        self.call(&ACTIVATE_USER).parameter("user", &id).read().await
    }

    /// Makes an account a member of an organization.
    pub async fn add_member(&self, organization: Uuid, user: Uuid) -> Result<(), Error> {
        let call = self.call(&ADD_MEMBER).parameter("organization", &organization);
        call.parameter("user", &user).done().await
    }

    /// Ends the membership of an account in an organization, and in the groups of that.
    pub async fn remove_member(&self, organization: Uuid, user: Uuid) -> Result<(), Error> {
        let call = self.call(&REMOVE_MEMBER).parameter("organization", &organization);
        call.parameter("user", &user).done().await
    }
}
