//! Which handler serves a request: the client's route table, each route with its handler.

use client::routes::{ROUTES, Route};
use http::Method;

use crate::{
    ai_providers, answer::Handled, appearance, audit, authorization, call::Call, entitlements, files, groups,
    licenses, members, model_configs, organizations, people, provisioner_daemons, provisioner_keys, roles,
    server_config, sessions, sharing, sync, templates, tokens, users, versions, workspaces,
};

/// Serves a request of one route.
pub(crate) type Handler = fn(&mut Call<'_>) -> Handled;

/// Who may use a route, in the order in which coderd checks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// No token is read.
    Anonymous,
    /// Any account.
    Account,
    /// Any account; coderd would also let a workspace agent in, and so has other words for a missing token.
    AccountOrAgent,
    /// Any account, then the licence for the feature.
    Licensed(&'static str),
    /// The licence for the feature, then any account.
    LicensedFirst(&'static str),
}

/// A route of the client with what serves it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    method: Method,
    path: &'static str,
    pub(crate) access: Access,
    pub(crate) handler: Handler,
}

/// A route that a request matches, with the values of the parameters of its path.
pub(crate) type Match<'a> = (&'a Endpoint, Vec<(&'static str, String)>);

/// Every endpoint.
#[derive(Debug)]
pub(crate) struct Router(Vec<Endpoint>);

/// Why no endpoint serves a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unrouted {
    UnknownPath,
    OtherMethod,
}

impl Router {
    pub(crate) fn new() -> Self {
        let endpoint = |route: &&'static Route| {
            let (access, handler) = handler(route)?;
            Some(Endpoint { method: route.method().clone(), path: route.path(), access, handler })
        };
        let daemons = Endpoint {
            method: Method::GET,
            path: provisioner_daemons::PATH,
            access: Access::Anonymous,
            handler: provisioner_daemons::serve,
        };
        Self(ROUTES.iter().filter_map(endpoint).chain([daemons]).collect())
    }

    /// Finds the endpoint whose path has the most literal segments.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Result<Match<'_>, Unrouted> {
        let path = path.strip_suffix('/').unwrap_or(path);
        let begins = |it: &&Endpoint| path.starts_with(it.path.split('{').next().unwrap_or_default());
        let matching = self.0.iter().filter(begins).filter_map(|it| Some((it, parameters(it.path, path)?)));
        let mut matching: Vec<Match<'_>> = matching.collect();
        matching.sort_by_key(|(_, parameters)| parameters.len());
        if matching.is_empty() {
            return Err(Unrouted::UnknownPath);
        }
        matching.into_iter().find(|(it, _)| it.method == *method).ok_or(Unrouted::OtherMethod)
    }
}

/// The values of a template's parameters. `None` where the path is not of its form.
fn parameters(template: &'static str, path: &str) -> Option<Vec<(&'static str, String)>> {
    let mut segments = path.split('/');
    let mut parameters = Vec::new();
    for expected in template.split('/') {
        let segment = segments.next()?;
        match expected.strip_prefix('{').and_then(|it| it.strip_suffix('}')) {
            Some(_) if segment.is_empty() => return None,
            Some(name) => parameters.push((name, decoded(segment))),
            None if expected == segment => {}
            None => return None,
        }
    }
    segments.next().is_none().then_some(parameters)
}

/// A segment without percent encoding. coderd finds no object whose name has a slash, however it is encoded.
fn decoded(segment: &str) -> String {
    if segment.to_ascii_lowercase().contains("%2f") {
        return segment.to_owned();
    }
    let form = format!("x={}", segment.replace('+', "%2B"));
    url::form_urlencoded::parse(form.as_bytes())
        .next()
        .map_or_else(String::new, |(_, value)| value.into_owned())
}

const GROUPS: &str = "template_rbac";
const ORGANIZATIONS: &str = "multiple_organizations";
const ROLES: &str = "custom_roles";
const DAEMONS: &str = "external_provisioner_daemons";

/// The one table of what serves a route. `None` is found by a test.
fn handler(route: &Route) -> Option<(Access, Handler)> {
    use Access::{Account, AccountOrAgent, Anonymous, Licensed, LicensedFirst};
    let path = route.path();
    let path = path.strip_prefix("/api/v2").or_else(|| path.strip_prefix("/api/experimental"))?;
    Some(match (route.method().as_str(), path) {
        ("GET", "/buildinfo") => (Anonymous, sessions::build_info),
        ("GET", "/entitlements") => (Anonymous, entitlements::entitlements),
        ("POST", "/licenses/refresh-entitlements") => (Account, entitlements::refresh),
        ("GET", "/licenses") => (Account, licenses::list),
        ("POST", "/licenses") => (Account, licenses::add),
        ("DELETE", "/licenses/{id}") => (Account, licenses::delete),
        ("GET", "/organizations") => (Account, organizations::list),
        ("POST", "/organizations") => (Licensed(ORGANIZATIONS), organizations::create),
        ("PATCH", "/organizations/{organization}") => (Licensed(ORGANIZATIONS), organizations::update),
        ("DELETE", "/organizations/{organization}") => (Licensed(ORGANIZATIONS), organizations::delete),
        ("GET", "/organizations/{organization}/settings/workspace-sharing") => (Account, sharing::sharing),
        ("PATCH", "/organizations/{organization}/settings/workspace-sharing") => (Account, sharing::update),
        ("GET", "/organizations/{organization}/groups") => (Licensed(GROUPS), groups::list),
        ("POST", "/organizations/{organization}/groups") => (Licensed(GROUPS), groups::create),
        ("GET", "/groups/{group}") => (LicensedFirst(GROUPS), groups::group),
        ("PATCH", "/groups/{group}") => (LicensedFirst(GROUPS), groups::update),
        ("DELETE", "/groups/{group}") => (LicensedFirst(GROUPS), groups::delete),
        ("GET", "/organizations/{organization}/paginated-members") => (Account, members::list),
        ("GET", "/organizations/{organization}/members/roles") => (Account, members::roles),
        ("POST", "/organizations/{organization}/members/roles") => (Licensed(ROLES), roles::create),
        ("PUT", "/organizations/{organization}/members/roles") => (Licensed(ROLES), roles::update),
        ("DELETE", "/organizations/{organization}/members/roles/{roleName}") => {
            (Licensed(ROLES), roles::delete)
        }
        ("GET", "/organizations/{organization}/provisionerkeys/daemons") => {
            (Licensed(DAEMONS), provisioner_keys::list)
        }
        ("POST", "/organizations/{organization}/provisionerkeys") => {
            (Licensed(DAEMONS), provisioner_keys::create)
        }
        ("DELETE", "/organizations/{organization}/provisionerkeys/{provisionerkey}") => {
            (Licensed(DAEMONS), provisioner_keys::delete)
        }
        ("GET", "/provisionerkeys/{provisionerkey}") => (Anonymous, provisioner_keys::prove),
        ("GET", "/settings/idpsync/organization") => (Account, sync::organization_sync),
        ("PATCH", "/settings/idpsync/organization") => (Account, sync::put_organization_sync),
        ("GET", "/organizations/{organization}/settings/idpsync/groups") => (Account, sync::group_sync),
        ("PATCH", "/organizations/{organization}/settings/idpsync/groups") => (Account, sync::put_group_sync),
        ("GET", "/organizations/{organization}/settings/idpsync/roles") => (Account, sync::role_sync),
        ("PATCH", "/organizations/{organization}/settings/idpsync/roles") => (Account, sync::put_role_sync),
        ("GET", "/appearance") => (AccountOrAgent, appearance::appearance),
        ("PUT", "/appearance") => (Account, appearance::put_appearance),
        ("GET", "/deployment/config") => (Account, server_config::server_config),
        ("GET", "/ai/providers") => (Account, ai_providers::list),
        ("POST", "/ai/providers") => (Account, ai_providers::create),
        ("GET", "/ai/providers/{idOrName}") => (Account, ai_providers::provider),
        ("PATCH", "/ai/providers/{idOrName}") => (Account, ai_providers::update),
        ("DELETE", "/ai/providers/{idOrName}") => (Account, ai_providers::delete),
        ("GET", "/chats/model-configs") => (Account, model_configs::list),
        ("POST", "/chats/model-configs") => (Account, model_configs::create),
        ("PATCH", "/chats/model-configs/{modelConfig}") => (Account, model_configs::update),
        ("DELETE", "/chats/model-configs/{modelConfig}") => (Account, model_configs::delete),
        (method, path) => return account_handler(method, path),
    })
}

/// The same for accounts, their tokens and what belongs to them.
fn account_handler(method: &str, path: &str) -> Option<(Access, Handler)> {
    use Access::{Account, Anonymous};
    Some(match (method, path) {
        ("GET", "/audit") => (Account, audit::list),
        ("GET", "/users/first") => (Anonymous, users::first_user),
        ("POST", "/users/first") => (Anonymous, users::create_first_user),
        ("GET", "/users/authmethods") => (Anonymous, sessions::auth_methods),
        ("POST", "/users/login") => (Anonymous, sessions::login),
        ("POST", "/users/logout") => (Account, sessions::logout),
        ("GET", "/users/{user}") => (Account, users::user),
        ("POST", "/users") => (Account, users::create),
        ("GET", "/users") => (Account, people::list),
        ("PUT", "/users/{user}/profile") => (Account, people::update_profile),
        ("PUT", "/users/{user}/roles") => (Account, people::update_roles),
        ("PUT", "/users/{user}/status/suspend") => (Account, people::suspend),
        ("PUT", "/users/{user}/status/activate") => (Account, people::activate),
        ("POST", "/organizations/{organization}/members/{user}") => (Account, people::add_member),
        ("DELETE", "/organizations/{organization}/members/{user}") => (Account, people::remove_member),
        ("DELETE", "/users/{user}") => (Account, users::delete),
        ("GET", "/users/{user}/keys/tokens/tokenconfig") => (Account, tokens::limits),
        ("GET", "/users/{user}/keys/tokens") => (Account, tokens::list),
        ("POST", "/users/{user}/keys/tokens") => (Account, tokens::create),
        ("GET", "/users/{user}/keys/{keyid}") => (Account, tokens::token),
        ("DELETE", "/users/{user}/keys/{keyid}") => (Account, tokens::delete),
        (method, path) => return of_templates(method, path),
    })
}

/// The same for templates and what belongs to them.
fn of_templates(method: &str, path: &str) -> Option<(Access, Handler)> {
    use Access::{Account, LicensedFirst};
    Some(match (method, path) {
        ("POST", "/files") => (Account, files::upload),
        ("GET", "/files/{fileID}") => (Account, files::download),
        ("GET", "/organizations/{organization}/templates") => (Account, templates::list),
        ("POST", "/organizations/{organization}/templates") => (Account, templates::create),
        ("GET", "/templates/{template}") => (Account, templates::template),
        ("PATCH", "/templates/{template}") => (Account, templates::update),
        ("DELETE", "/templates/{template}") => (Account, templates::delete),
        ("PATCH", "/templates/{template}/versions") => (Account, templates::promote),
        ("GET", "/templates/{template}/acl") => (LicensedFirst(GROUPS), templates::access),
        ("PATCH", "/templates/{template}/acl") => (LicensedFirst(GROUPS), templates::update_access),
        ("GET", "/templates/{template}/versions/{templateversionname}") => (Account, versions::by_name),
        ("POST", "/organizations/{organization}/templateversions") => (Account, versions::create),
        ("GET", "/templateversions/{templateversion}") => (Account, versions::version),
        ("GET", "/templateversions/{templateversion}/logs") => (Account, versions::logs),
        ("GET", "/templateversions/{templateversion}/variables") => (Account, versions::variables),
        ("POST", "/templateversions/{templateversion}/archive") => (Account, versions::archive),
        ("POST", "/templateversions/{templateversion}/unarchive") => (Account, versions::unarchive),
        ("GET", "/organizations/{organization}/provisionerjobs") => (Account, versions::jobs),
        ("PATCH", "/templateversions/{templateversion}") => (Account, versions::update),
        ("GET", "/workspaces") => (Account, workspaces::list),
        ("GET", "/workspaces/{workspace}") => (Account, workspaces::read),
        ("POST", "/authcheck") => (Account, authorization::check),
        ("POST", "/organizations/{organization}/members/{user}/workspaces") => (Account, workspaces::create),
        ("POST", "/workspaces/{workspace}/builds") => (Account, workspaces::build),
        ("GET", "/workspacebuilds/{workspacebuild}/logs") => (Account, workspaces::logs),
        ("PATCH", "/workspacebuilds/{workspacebuild}/cancel") => (Account, workspaces::cancel),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_the_client_has_a_handler() {
        let missing: Vec<&&Route> = ROUTES.iter().filter(|it| handler(it).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn literal_segments_win_over_parameters() {
        let router = Router::new();
        let path = |method: Method, path: &str| router.find(&method, path).map(|(it, _)| it.path);
        assert_eq!(path(Method::GET, "/api/v2/users/first"), Ok("/api/v2/users/first"));
        assert_eq!(path(Method::GET, "/api/v2/users/me"), Ok("/api/v2/users/{user}"));
        assert_eq!(path(Method::GET, "/api/v2/users/me/keys/tokens"), Ok("/api/v2/users/{user}/keys/tokens"));
        assert_eq!(path(Method::PUT, "/api/v2/users"), Err(Unrouted::OtherMethod));
        assert_eq!(path(Method::GET, "/api/v2/nonsense"), Err(Unrouted::UnknownPath));
    }

    #[test]
    fn parameters_are_decoded() {
        let template = "/api/v2/organizations/{organization}/provisionerkeys/{provisionerkey}";
        let found = parameters(template, "/api/v2/organizations/o/provisionerkeys/a%20b+c").unwrap();
        assert_eq!(found, [("organization", "o".to_owned()), ("provisionerkey", "a b+c".to_owned())]);
        assert_eq!(parameters(template, "/api/v2/organizations//provisionerkeys/a"), None);
    }
}
