//! Names by which manifests refer to objects of a deployment.

use std::fmt;

use api::DEFAULT_ORGANIZATION;

/// An object of a deployment that manifests refer to by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteName {
    Organization(String),
    Group {
        organization: String,
        name: String,
    },
    /// A role of an organization.
    Role {
        organization: String,
        name: String,
    },
    AiProvider(String),
    /// A user, by name. References may have the e-mail address in place of the name.
    User {
        name: String,
        email: Option<String>,
    },
}

impl RemoteName {
    /// Whether both may be the same object. `default` is the default organization, whatever it is called.
    pub fn may_be(&self, other: &Self) -> bool {
        let is_same = |one: &str, two: &str| {
            one.eq_ignore_ascii_case(two) || one == DEFAULT_ORGANIZATION || two == DEFAULT_ORGANIZATION
        };
        match (self, other) {
            (Self::Organization(one), Self::Organization(two)) => is_same(one, two),
            (Self::Group { organization, name }, Self::Group { organization: other, name: other_name }) => {
                is_same(organization, other) && name == other_name
            }
            (Self::Role { organization, name }, Self::Role { organization: other, name: other_name }) => {
                is_same(organization, other) && name.eq_ignore_ascii_case(other_name)
            }
            (Self::AiProvider(one), Self::AiProvider(two)) => one == two,
            (Self::User { name, email }, Self::User { name: other, email: other_email }) => {
                let is = |email: &Option<String>, name: &str| {
                    email.as_ref().is_some_and(|it| it.eq_ignore_ascii_case(name))
                };
                name.eq_ignore_ascii_case(other) || is(email, other) || is(other_email, name)
            }
            (
                Self::Organization(_)
                | Self::Group { .. }
                | Self::Role { .. }
                | Self::AiProvider(_)
                | Self::User { .. },
                _,
            ) => false,
        }
    }
}

impl fmt::Display for RemoteName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Organization(name) => write!(formatter, "organization {name}"),
            Self::Group { organization, name } => write!(formatter, "group {organization}/{name}"),
            Self::Role { organization, name } => write!(formatter, "role {organization}/{name}"),
            Self::AiProvider(name) => write!(formatter, "AI provider {name}"),
            Self::User { name, .. } => write!(formatter, "user {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_by_object_and_the_default_organization_by_any_name() {
        let organization = |name: &str| RemoteName::Organization(name.to_owned());
        let group = |organization: &str, name: &str| RemoteName::Group {
            organization: organization.to_owned(),
            name: name.to_owned(),
        };
        assert!(organization("alpha").may_be(&organization("Alpha")));
        assert!(organization("default").may_be(&organization("coder")));
        assert!(!organization("alpha").may_be(&organization("bravo")));
        assert!(group("alpha", "a").may_be(&group("alpha", "a")));
        assert!(group("default", "a").may_be(&group("coder", "a")));
        assert!(!group("alpha", "a").may_be(&group("bravo", "a")));
        assert!(!group("alpha", "a").may_be(&group("alpha", "A")), "names of groups have a case");
        assert!(!organization("a").may_be(&group("a", "a")));
    }
}
