//! One request on its way through the deployment, with what handlers need to serve it.

use http::HeaderMap;
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::{
    answer::{Answer, not_found, unlicensed},
    body::Fields,
    features,
    ids::Ids,
    rights::{self, Right},
    settings::Settings,
    state::{Change, Organization, State, User},
};

/// The moment that coderd shows for "never".
pub(crate) const NEVER: &str = "0001-01-01T00:00:00Z";
/// The name that always means the default organization.
const DEFAULT_ORGANIZATION: &str = "default";
/// The name that means the account of the caller.
const ME: &str = "me";

/// A request, its caller, and the state that it reads and changes.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) settings: &'a Settings,
    pub(crate) now: Timestamp,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    pub(crate) parameters: Vec<(&'static str, String)>,
    pub(crate) query: Vec<(String, String)>,
    /// The account that the token belongs to; nil on anonymous routes.
    pub(crate) caller: Uuid,
    /// The id of the caller's token; empty on anonymous routes.
    pub(crate) api_key: String,
    /// What the request changed, for the audit log.
    pub(crate) change: Option<Change>,
}

impl Call<'_> {
    pub(crate) fn ids(&mut self) -> Ids<'_> {
        Ids { seed: self.settings.seed, issued: &mut self.state.issued }
    }

    pub(crate) fn fields(&self, type_name: &'static str) -> Result<Fields, Answer> {
        Fields::read(type_name, self.body)
    }

    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(it, _)| *it == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    /// Whether the caller has a right.
    pub(crate) fn may(&self, right: Right) -> bool {
        self.state.users.get(&self.caller).is_some_and(|it| rights::has(it, right))
    }

    /// Refuses the call where the licences do not cover the feature.
    pub(crate) fn licensed(&mut self, feature: &'static str) -> Result<(), Answer> {
        features::keep_fresh(self.state, self.now);
        let is_enabled = self.state.entitlements.features.get(feature).is_some_and(|it| it.enabled);
        if is_enabled { Ok(()) } else { Err(unlicensed(&features::title(feature))) }
    }

    /// The organization of the path, if the caller may see it. By id also a deleted one is found.
    pub(crate) fn organization(&self) -> Result<&Organization, Answer> {
        let is_visible =
            |it: &&Organization| it.members.contains_key(&self.caller) || self.may(Right::ReadOrganizations);
        self.any_organization().filter(is_visible).ok_or_else(not_found)
    }

    /// The organization of the path, whoever calls.
    pub(crate) fn any_organization(&self) -> Option<&Organization> {
        let wanted = self.parameter("organization");
        match wanted.parse::<Uuid>() {
            Ok(id) if id.is_nil() => self.state.organizations.get(&self.state.default_organization),
            Ok(id) => self.state.organizations.get(&id),
            Err(_) if wanted == DEFAULT_ORGANIZATION => {
                self.state.organizations.get(&self.state.default_organization)
            }
            Err(_) => organization_named(self.state, wanted),
        }
    }

    /// The account of the path, if the caller may see it. By id also a deleted one is found.
    pub(crate) fn user(&self) -> Result<&User, Answer> {
        let wanted = self.parameter("user");
        let found = match wanted.parse::<Uuid>() {
            Ok(id) => self.state.users.get(&id),
            Err(_) if wanted == ME => self.state.users.get(&self.caller),
            Err(_) => user_named(self.state, wanted),
        };
        let is_visible = |it: &&User| it.id == self.caller || self.may(Right::ReadUsers);
        found.filter(is_visible).ok_or_else(not_found)
    }

    /// Notes what the request changed.
    pub(crate) fn changed(
        &mut self,
        resource_type: &str,
        (resource_id, target): (impl ToString, &str),
        before: Value,
        after: Value,
    ) {
        self.change = Some(Change {
            resource_type: resource_type.to_owned(),
            resource_id: resource_id.to_string(),
            target: target.to_owned(),
            before,
            after,
        });
    }
}

/// The organization of that name that is not deleted.
pub(crate) fn organization_named<'a>(state: &'a State, name: &str) -> Option<&'a Organization> {
    state.organizations.values().find(|it| !it.deleted && it.name.eq_ignore_ascii_case(name))
}

/// The account of that name that is not deleted.
pub(crate) fn user_named<'a>(state: &'a State, name: &str) -> Option<&'a User> {
    state.users.values().find(|it| !it.deleted && it.username.eq_ignore_ascii_case(name))
}
