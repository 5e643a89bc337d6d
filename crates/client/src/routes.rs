//! Every route that the client uses, each with what it sends and reads.
//!
//! A [`Route`] can only be made here and is always in [`ROUTES`], so that nothing can be asked of coderd that is not
//! listed; `cargo xtask api-check` compares the list with Coder's own API document.

use http::Method;
use schemars::{JsonSchema, Schema, generate::SchemaSettings};

use crate::{
    appearance::{Appearance, UpdateAppearance},
    deployment::{BuildInfo, Entitlements},
    groups::{CreateGroup, Group, UpdateGroup},
    idp_sync::{GroupSync, OrganizationSync, RoleSync},
    licenses::{AddLicense, License},
    members::MemberPage,
    organizations::{CreateOrganization, Organization, UpdateOrganization},
    provisioner_keys::{CreateProvisionerKey, CreatedProvisionerKey, KeyWithDaemons, ProvisionerKey},
    roles::AssignableRole,
    users::{
        AuthMethods, CreateFirstUser, CreateToken, CreateUser, CreatedToken, LoggedIn, Login, Token,
        TokenLimits, User,
    },
};

/// One verb on one path.
#[derive(Debug)]
pub struct Route {
    method: Method,
    path: &'static str,
    repeatable: bool,
    anonymous: bool,
    request: Option<fn() -> Schema>,
    response: Option<fn() -> Schema>,
}

impl Route {
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The template, its parameters spelled as in Coder's API document.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Whether sending it twice has the same effect as sending it once.
    pub fn repeatable(&self) -> bool {
        self.repeatable
    }

    /// Whether it works without a token; then none is sent.
    pub fn anonymous(&self) -> bool {
        self.anonymous
    }

    /// The schema of what is sent.
    pub fn request(&self) -> Option<Schema> {
        self.request.map(|schema| schema())
    }

    /// The schema of what is read from the answer.
    pub fn response(&self) -> Option<Schema> {
        self.response.map(|schema| schema())
    }

    const fn new(method: Method, path: &'static str) -> Self {
        Self { method, path, repeatable: false, anonymous: false, request: None, response: None }
    }

    const fn may_be_repeated(mut self) -> Self {
        self.repeatable = true;
        self
    }

    const fn without_token(mut self) -> Self {
        self.anonymous = true;
        self
    }

    const fn sends<T: JsonSchema>(mut self) -> Self {
        self.request =
            Some(|| SchemaSettings::default().for_serialize().into_generator().into_root_schema_for::<T>());
        self
    }

    const fn reads<T: JsonSchema>(mut self) -> Self {
        self.response = Some(|| SchemaSettings::default().into_generator().into_root_schema_for::<T>());
        self
    }
}

const fn get(path: &'static str) -> Route {
    Route::new(Method::GET, path).may_be_repeated()
}

const fn post(path: &'static str) -> Route {
    Route::new(Method::POST, path)
}

const fn patch(path: &'static str) -> Route {
    Route::new(Method::PATCH, path)
}

const fn put(path: &'static str) -> Route {
    Route::new(Method::PUT, path).may_be_repeated()
}

/// By id: what a second one finds is gone, and that is what the first one was for.
const fn delete(path: &'static str) -> Route {
    Route::new(Method::DELETE, path).may_be_repeated()
}

macro_rules! routes {
    ($($name:ident = $route:expr;)*) => {
        $(pub(crate) static $name: Route = $route;)*

        /// All of them.
        pub static ROUTES: &[&Route] = &[$(&$name),*];
    };
}

routes! {
    BUILD_INFO = get("/api/v2/buildinfo").without_token().reads::<BuildInfo>();
    ENTITLEMENTS = get("/api/v2/entitlements").without_token().reads::<Entitlements>();
    // Not repeatable: within a minute after the first one it is refused.
    REFRESH_ENTITLEMENTS = post("/api/v2/licenses/refresh-entitlements");

    LIST_LICENSES = get("/api/v2/licenses").reads::<Vec<License>>();
    // Not repeatable: the second one is refused with a 500, which says nothing about the first.
    ADD_LICENSE = post("/api/v2/licenses").sends::<AddLicense<'static>>().reads::<License>();
    DELETE_LICENSE = delete("/api/v2/licenses/{id}");

    LIST_ORGANIZATIONS = get("/api/v2/organizations").reads::<Vec<Organization>>();
    CREATE_ORGANIZATION = post("/api/v2/organizations").sends::<CreateOrganization>().reads::<Organization>();
    UPDATE_ORGANIZATION = patch("/api/v2/organizations/{organization}")
        .may_be_repeated().sends::<UpdateOrganization>().reads::<Organization>();
    DELETE_ORGANIZATION = delete("/api/v2/organizations/{organization}");

    LIST_GROUPS = get("/api/v2/organizations/{organization}/groups").reads::<Vec<Group>>();
    CREATE_GROUP = post("/api/v2/organizations/{organization}/groups").sends::<CreateGroup>().reads::<Group>();
    GROUP = get("/api/v2/groups/{group}").reads::<Group>();
    // Not repeatable: a member who is added twice fails the whole call.
    UPDATE_GROUP = patch("/api/v2/groups/{group}").sends::<UpdateGroup>().reads::<Group>();
    DELETE_GROUP = delete("/api/v2/groups/{group}");

    LIST_MEMBERS = get("/api/v2/organizations/{organization}/paginated-members").reads::<MemberPage>();
    LIST_ROLES = get("/api/v2/organizations/{organization}/members/roles").reads::<Vec<AssignableRole>>();

    LIST_PROVISIONER_KEYS = get("/api/v2/organizations/{organization}/provisionerkeys/daemons")
        .reads::<Vec<KeyWithDaemons>>();
    CREATE_PROVISIONER_KEY = post("/api/v2/organizations/{organization}/provisionerkeys")
        .sends::<CreateProvisionerKey<'static>>().reads::<CreatedProvisionerKey>();
    // By its name, and not repeatable: the name may be another key's by then.
    DELETE_PROVISIONER_KEY = Route::new(
        Method::DELETE, "/api/v2/organizations/{organization}/provisionerkeys/{provisionerkey}");
    PROVISIONER_KEY = get("/api/v2/provisionerkeys/{provisionerkey}").without_token().reads::<ProvisionerKey>();

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

    APPEARANCE = get("/api/v2/appearance").reads::<Appearance>();
    PUT_APPEARANCE = put("/api/v2/appearance").sends::<UpdateAppearance>();

    FIRST_USER = get("/api/v2/users/first").without_token();
    CREATE_FIRST_USER = post("/api/v2/users/first").without_token().sends::<CreateFirstUser>();
    AUTH_METHODS = get("/api/v2/users/authmethods").without_token().reads::<AuthMethods>();
    LOGIN = post("/api/v2/users/login").without_token().sends::<Login<'static>>().reads::<LoggedIn>();
    // What a second one finds is a session that has ended, and that is what the first one was for.
    LOGOUT = post("/api/v2/users/logout").may_be_repeated();
    USER = get("/api/v2/users/{user}").reads::<User>();
    CREATE_USER = post("/api/v2/users").sends::<CreateUser>().reads::<User>();
    DELETE_USER = delete("/api/v2/users/{user}");
    TOKEN_LIMITS = get("/api/v2/users/{user}/keys/tokens/tokenconfig").reads::<TokenLimits>();
    LIST_TOKENS = get("/api/v2/users/{user}/keys/tokens").reads::<Vec<Token>>();
    CREATE_TOKEN = post("/api/v2/users/{user}/keys/tokens").sends::<CreateToken>().reads::<CreatedToken>();
    TOKEN = get("/api/v2/users/{user}/keys/{keyid}").reads::<Token>();
    DELETE_TOKEN = delete("/api/v2/users/{user}/keys/{keyid}");
}
