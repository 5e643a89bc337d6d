//! Who may use and administer a template: declared by names, found by ids.

use std::collections::{BTreeMap, BTreeSet};

use api::{EVERYONE, TemplateAcl, TemplateRole};
use client::{
    organizations::Organization,
    templates::{TemplateAccess, TemplateGroup, UpdateTemplateAccess},
};
use uuid::Uuid;

use crate::{
    coder::{Coder, missing},
    pipeline::{diff::Diff, outcome::Trouble},
};

/// Roles by the names of those who have them.
pub(crate) type Roles = BTreeMap<String, String>;

/// What a manifest declares of groups and users. `None` for what is managed elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    pub(crate) groups: Option<Roles>,
    pub(crate) users: Option<Roles>,
    /// Declared users whose roles Coder does not show while they are suspended. They are compared once they are not.
    pub(crate) suspended: BTreeSet<String>,
}

impl Access {
    pub(crate) fn declared(acl: Option<&TemplateAcl>) -> Self {
        let roles = |declared: &BTreeMap<String, TemplateRole>| {
            let role = |it: &TemplateRole| match it {
                TemplateRole::Use => "use".to_owned(),
                TemplateRole::Admin => "admin".to_owned(),
            };
            declared.iter().map(|(name, it)| (name.clone(), role(it))).collect()
        };
        let acl = acl.cloned().unwrap_or_default();
        let (groups, users) = (acl.groups.as_ref().map(roles), acl.users.as_ref().map(roles));
        Self { groups, users, suspended: BTreeSet::new() }
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.groups.is_none() && self.users.is_none()
    }

    /// Whether a new template is not for everyone in the organization.
    pub(crate) fn hides_from_everyone(&self) -> bool {
        self.groups.as_ref().is_some_and(|it| !it.contains_key(EVERYONE))
    }

    /// What a template has when it was just created.
    pub(crate) fn of_new_template(&self) -> Self {
        let everyone = (EVERYONE.to_owned(), "use".to_owned());
        let groups = if self.hides_from_everyone() { Roles::new() } else { Roles::from([everyone]) };
        Self { groups: Some(groups), users: Some(Roles::new()), suspended: BTreeSet::new() }
    }

    /// What a template has. Groups of other organizations have the names of these in front of theirs.
    pub(crate) fn found(access: &TemplateAccess, home: Uuid, organizations: &[Organization]) -> Self {
        let name = |it: &TemplateGroup| {
            if it.organization_id == home {
                return it.name.clone();
            }
            let organization = organizations.iter().find(|known| known.id == it.organization_id);
            let organization =
                organization.map_or_else(|| it.organization_id.to_string(), |known| known.name.clone());
            format!("{organization}/{}", it.name)
        };
        let groups = access.groups.iter().map(|it| (name(it), it.role.clone()));
        let users = access.users.iter().map(|it| (it.username.clone(), it.role.clone()));
        Self { groups: Some(groups.collect()), users: Some(users.collect()), suspended: BTreeSet::new() }
    }

    /// The same with user names in place of e-mail addresses. Groups and users that are not there are waited for.
    pub(crate) async fn resolved(&self, home: &Organization, coder: &Coder) -> Result<Self, Trouble> {
        let wanted: Vec<&String> = self.groups.iter().flat_map(BTreeMap::keys).collect();
        let groups = if wanted.is_empty() { Vec::new() } else { coder.groups(home.id).await?.to_vec() };
        for name in wanted {
            let is_there = groups.iter().any(|it| it.name == *name);
            if !is_there && !coder.promises().has_group_of(home, name) {
                return Err(missing(format!("spec.acl.groups: group {name} does not exist")).into());
            }
        }
        let Some(users) = self.users.as_ref().filter(|it| !it.is_empty()) else { return Ok(self.clone()) };
        let members = coder.members(home.id).await?;
        let (mut names, mut suspended) = (Roles::new(), BTreeSet::new());
        for (person, role) in users {
            let member = members.iter().find(|it| is_called(person, &it.username, &it.email));
            let member = member.ok_or_else(|| {
                missing(format!("spec.acl.users: {person} is not a member of the organization"))
            })?;
            if member.is_suspended() {
                suspended.insert(member.username.clone());
            } else {
                names.insert(member.username.clone(), role.clone());
            }
        }
        Ok(Self { users: Some(names), suspended, ..self.clone() })
    }

    /// Adds the differences. Returns whether a user or a group loses a role.
    pub(crate) fn difference(&self, found: &Self, diff: &mut Diff) -> bool {
        let mut loses = false;
        let pairs = [("acl.groups", &self.groups, &found.groups), ("acl.users", &self.users, &found.users)];
        for (field, declared, found) in pairs {
            let mut found = found.clone().unwrap_or_default();
            if field == "acl.users" {
                found.retain(|name, _| !self.suspended.contains(name));
            }
            if let Some(declared) = diff.pick(field, declared.as_ref(), &found) {
                loses |= found.iter().any(|(name, role)| declared.get(name) != Some(role));
            }
        }
        loses
    }

    /// The change from what a template has, by ids.
    pub(crate) async fn change(
        &self,
        found: &TemplateAccess,
        home: Uuid,
        coder: &Coder,
    ) -> Result<UpdateTemplateAccess, Trouble> {
        let mut change = UpdateTemplateAccess::default();
        if let Some(declared) = &self.groups {
            let groups = coder.groups(home).await?;
            let stays = |it: &TemplateGroup| it.organization_id == home && declared.contains_key(&it.name);
            let gone = found.groups.iter().filter(|it| !stays(it));
            change.group_perms.extend(gone.map(|it| (it.id.to_string(), String::new())));
            for (name, role) in declared {
                let group = groups.iter().find(|it| it.name == *name);
                let group = group.ok_or_else(|| missing(format!("group {name} is not there any more")))?;
                if !found.groups.iter().any(|it| it.id == group.id && it.role == *role) {
                    change.group_perms.insert(group.id.to_string(), role.clone());
                }
            }
        }
        if let Some(declared) = &self.users {
            let stays = |name: &String| declared.contains_key(name) || self.suspended.contains(name);
            let gone = found.users.iter().filter(|it| !stays(&it.username));
            change.user_perms.extend(gone.map(|it| (it.id.to_string(), String::new())));
            for (name, role) in declared {
                if found.users.iter().any(|it| it.username == *name && it.role == *role) {
                    continue;
                }
                let members = coder.members(home).await?;
                let member = members.iter().find(|it| it.username == *name);
                let member = member.ok_or_else(|| missing(format!("{name} is not a member any more")))?;
                change.user_perms.insert(member.user_id.to_string(), role.clone());
            }
        }
        Ok(change)
    }
}

/// Whether a manifest means this account: by its user name or its e-mail address.
pub(super) fn is_called(person: &str, username: &str, email: &str) -> bool {
    person.eq_ignore_ascii_case(username) || (!email.is_empty() && person.eq_ignore_ascii_case(email))
}
