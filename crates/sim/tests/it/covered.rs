//! Every route of the client, with the case of the suite that covers it.
//!
//! `cargo xtask tidy` fails for a route that is not listed; a test checks that the case gets a success from its route.

/// The routes that are covered by a refusal: this one succeeds only a minute after the last change of a licence.
pub(crate) const BY_REFUSAL: [&str; 1] = ["POST /api/v2/licenses/refresh-entitlements"];

/// The routes, each with its case.
pub(crate) const COVERED: &[(&str, &str)] = &[
    ("GET /api/v2/buildinfo", "first_user::deployment_without_users"),
    ("GET /api/v2/entitlements", "first_user::first_user"),
    ("POST /api/v2/licenses/refresh-entitlements", "licenses::premium"),
    ("GET /api/v2/licenses", "licenses::refused_licenses"),
    ("POST /api/v2/licenses", "licenses::terms"),
    ("DELETE /api/v2/licenses/{id}", "licenses::terms"),
    ("GET /api/v2/organizations", "first_user::login"),
    ("POST /api/v2/organizations", "organizations::names"),
    ("PATCH /api/v2/organizations/{organization}", "organizations::changes"),
    ("DELETE /api/v2/organizations/{organization}", "organizations::deletion"),
    ("GET /api/v2/organizations/{organization}/groups", "groups::changes"),
    ("POST /api/v2/organizations/{organization}/groups", "groups::names"),
    ("GET /api/v2/groups/{group}", "groups::changes"),
    ("PATCH /api/v2/groups/{group}", "groups::changes"),
    ("DELETE /api/v2/groups/{group}", "groups::changes"),
    ("GET /api/v2/organizations/{organization}/paginated-members", "members::members"),
    ("GET /api/v2/organizations/{organization}/members/roles", "members::roles"),
    ("GET /api/v2/organizations/{organization}/provisionerkeys/daemons", "provisioner_keys::daemons"),
    ("POST /api/v2/organizations/{organization}/provisionerkeys", "provisioner_keys::keys"),
    (
        "DELETE /api/v2/organizations/{organization}/provisionerkeys/{provisionerkey}",
        "provisioner_keys::keys",
    ),
    ("GET /api/v2/provisionerkeys/{provisionerkey}", "provisioner_keys::keys"),
    ("GET /api/v2/settings/idpsync/organization", "sync::organization_sync"),
    ("PATCH /api/v2/settings/idpsync/organization", "sync::organization_sync"),
    ("GET /api/v2/organizations/{organization}/settings/idpsync/groups", "sync::group_sync"),
    ("PATCH /api/v2/organizations/{organization}/settings/idpsync/groups", "sync::group_sync"),
    ("GET /api/v2/organizations/{organization}/settings/idpsync/roles", "sync::role_sync"),
    ("PATCH /api/v2/organizations/{organization}/settings/idpsync/roles", "sync::role_sync"),
    ("GET /api/v2/appearance", "appearance::appearance"),
    ("PUT /api/v2/appearance", "appearance::appearance"),
    ("GET /api/v2/users/first", "first_user::first_user"),
    ("POST /api/v2/users/first", "first_user::first_user"),
    ("GET /api/v2/users/authmethods", "first_user::deployment_without_users"),
    ("POST /api/v2/users/login", "first_user::login"),
    ("POST /api/v2/users/logout", "tokens::logout"),
    ("GET /api/v2/users/{user}", "accounts::accounts"),
    ("POST /api/v2/users", "accounts::accounts"),
    ("DELETE /api/v2/users/{user}", "accounts::deletion"),
    ("GET /api/v2/users/{user}/keys/tokens/tokenconfig", "accounts::service_accounts"),
    ("GET /api/v2/users/{user}/keys/tokens", "tokens::tokens"),
    ("POST /api/v2/users/{user}/keys/tokens", "tokens::tokens"),
    ("GET /api/v2/users/{user}/keys/{keyid}", "tokens::tokens"),
    ("DELETE /api/v2/users/{user}/keys/{keyid}", "tokens::tokens"),
];
