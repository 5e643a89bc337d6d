//! What earlier manifests will have made, so that a plan can count on it before it is there.

use std::collections::{BTreeMap, BTreeSet};

use api::{DEFAULT_ORGANIZATION, EVERYONE};
use client::organizations::Organization;

use crate::pipeline::remote_name::RemoteName;

/// What manifests that come earlier will have made: a plan may count on it before it is there.
#[derive(Debug, Clone, Default)]
pub struct Promises {
    organizations: BTreeSet<String>,
    groups: BTreeSet<(String, String)>,
    roles: BTreeSet<(String, String)>,
    ai_providers: BTreeSet<String>,
    /// User names by user name and by e-mail address.
    users: BTreeMap<String, String>,
}

impl Promises {
    /// Adds an object that a manifest will have made.
    pub fn add(&mut self, name: &RemoteName) {
        match name {
            RemoteName::Organization(name) => {
                self.organizations.insert(name.to_lowercase());
                // It comes with every organization.
                self.groups.insert((name.to_lowercase(), EVERYONE.to_owned()));
            }
            RemoteName::Group { organization, name } => {
                self.groups.insert((organization.to_lowercase(), name.clone()));
            }
            RemoteName::User { name, email } => {
                for key in [Some(name), email.as_ref()].into_iter().flatten() {
                    self.users.insert(key.to_lowercase(), name.clone());
                }
            }
            RemoteName::Role { organization, name } => {
                self.roles.insert((organization.to_lowercase(), name.to_lowercase()));
            }
            RemoteName::AiProvider(name) => {
                self.ai_providers.insert(name.clone());
            }
        }
    }

    /// The name of a promised user, who is referred to by name or by e-mail address.
    pub fn user(&self, person: &str) -> Option<&String> {
        self.users.get(&person.to_lowercase())
    }

    /// Whether a role of an organization is promised, under whichever name of the organization.
    pub fn has_role_of(&self, home: &Organization, name: &str) -> bool {
        let has =
            |organization: &str| self.roles.contains(&(organization.to_lowercase(), name.to_lowercase()));
        has(&home.name) || (home.is_default && has(DEFAULT_ORGANIZATION))
    }

    pub fn has_organization(&self, name: &str) -> bool {
        self.organizations.contains(&name.to_lowercase())
    }

    pub fn has_ai_provider(&self, name: &str) -> bool {
        self.ai_providers.contains(name)
    }

    pub fn has_group(&self, organization: &str, name: &str) -> bool {
        self.groups.contains(&(organization.to_lowercase(), name.to_owned()))
    }

    /// The same for an organization that is there, under whichever of its names the group was promised.
    pub fn has_group_of(&self, home: &Organization, name: &str) -> bool {
        self.has_group(&home.name, name) || (home.is_default && self.has_group(DEFAULT_ORGANIZATION, name))
    }
}
